"""One prefill, many continuations: the tokens are those of one `generate` call per question, in float32."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from sharp_model import questions_about, sharp_tiny, write_noise

import training.prefill
from eval.engines import Reply, Request
from eval.hf_engine import HfEngine, image_batches, split_after_images
from training.model import LoadedModel
from training.prefill import prefill

SIZES = [(160, 96), (96, 160), (56, 224), (120, 120)]
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return sharp_tiny()


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """Pictures of several shapes with one to five questions; two of them shown together, in either order."""
    paths = write_noise(tmp_path_factory.mktemp("noise"), SIZES)
    asked = [
        question
        for index, (path, size) in enumerate(zip(paths, SIZES, strict=True))
        for question in questions_about([path], [size], f"one-{index}", (5, 1, 4, 2)[index])
    ]
    asked += questions_about(paths[:2], SIZES[:2], "two", 3) + questions_about(paths[1::-1], SIZES[1::-1], "owt", 2)
    return random.Random(0).sample(asked, len(asked))


@pytest.fixture(scope="module")
def expected(loaded: LoadedModel, requests: list[Request]) -> dict[str, Reply]:
    """One plain `generate` call per question."""
    return answers(HfEngine(loaded, NEW_TOKENS, batch_size=1, share_images=False), requests)


def answers(engine: HfEngine, requests: list[Request]) -> dict[str, Reply]:
    return {reply.id: reply for reply in engine.replies(requests)}


@pytest.mark.parametrize("batch_size", [1, 3, 7, 32])
def test_shared_images_give_the_tokens_of_one_call_per_question(
    loaded: LoadedModel, requests: list[Request], expected: dict[str, Reply], batch_size: int
) -> None:
    assert answers(HfEngine(loaded, NEW_TOKENS, batch_size), requests) == expected
    assert len({reply.output for reply in expected.values()}) > len(requests) // 2  # questions and pictures matter


def test_batches_of_whole_prompts_give_the_same_too(
    loaded: LoadedModel, requests: list[Request], expected: dict[str, Reply]
) -> None:
    assert answers(HfEngine(loaded, NEW_TOKENS, 7, share_images=False), requests) == expected


def test_answers_of_a_batch_end_where_each_of_them_ends(loaded: LoadedModel, requests: list[Request]) -> None:
    model = loaded.model
    before = model.generation_config.eos_token_id
    widths: list[int] = []
    layer = loaded.model.model.language_model.layers[0]
    common = [loaded.processor.tokenizer.convert_tokens_to_ids(mark) for mark in ("<|im_end|>",)]
    plain = HfEngine(loaded, NEW_TOKENS, batch_size=1, share_images=False)
    written = [loaded.processor.tokenizer(reply.output)["input_ids"] for reply in plain.replies(requests)]
    ends = [*common, *{ids[len(ids) // 2] for ids in written[: len(written) // 2] if ids}]
    model.generation_config.eos_token_id = ends
    try:
        early = answers(plain, requests)
        assert len({reply.tokens for reply in early.values()}) > 2 and max(r.tokens for r in early.values()) > 0
        hook = layer.register_forward_pre_hook(lambda _, args: widths.append(len(args[0])))
        assert answers(HfEngine(loaded, NEW_TOKENS, 32), requests) == early
        hook.remove()
        assert min(widths[1:]) < widths[1] == len(requests), "what has ended is left out"
        assert answers(HfEngine(loaded, NEW_TOKENS, 7), requests) == early
    finally:
        model.generation_config.eos_token_id = before


def without_offsets(model: Any, prefixes: Any) -> Any:
    cache, deltas_N1 = prefill(model, prefixes)
    return cache, torch.zeros_like(deltas_N1)


def offsets_of_the_neighbour(model: Any, prefixes: Any) -> Any:
    cache, deltas_N1 = prefill(model, prefixes)
    return cache, deltas_N1.roll(1, 0)


def cache_of_the_neighbour(model: Any, prefixes: Any) -> Any:
    cache, deltas_N1 = prefill(model, prefixes)
    cache.batch_select_indices(torch.arange(len(deltas_N1)).roll(1))
    return cache, deltas_N1


def pads_seen(model: Any, prefixes: Any) -> Any:
    return prefill(model, replace(prefixes, attention_mask=torch.ones_like(prefixes.attention_mask)))


@pytest.mark.parametrize("wrong", [without_offsets, offsets_of_the_neighbour, cache_of_the_neighbour, pads_seen])
def test_wrong_positions_or_caches_would_be_noticed(
    loaded: LoadedModel,
    requests: list[Request],
    expected: dict[str, Reply],
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[[Any, Any], Any],
) -> None:
    monkeypatch.setattr(training.prefill, "prefill", wrong)
    got = answers(HfEngine(loaded, NEW_TOKENS, 32), requests)
    assert got.keys() == expected.keys() and got != expected


def test_an_image_is_encoded_once_and_the_halves_of_a_prompt_have_its_tokens(
    loaded: LoadedModel, requests: list[Request]
) -> None:
    patches: list[int] = []
    hook = loaded.model.model.visual.register_forward_pre_hook(lambda _, args: patches.append(len(args[0])))
    group = [request for request in requests if request.id.startswith("one-0")]
    try:
        answers(HfEngine(loaded, 2, 8), group)
        shared = sum(patches)
        answers(HfEngine(loaded, 2, 8, share_images=False), group)
    finally:
        hook.remove()
    assert sum(patches) - shared == len(group) * shared
    tokenizer = loaded.processor.tokenizer
    for request in requests:
        head, tail = split_after_images(loaded.processor, request)
        assert tokenizer(head)["input_ids"] + tokenizer(tail)["input_ids"] == tokenizer(head + tail)["input_ids"]


def test_batches_keep_a_group_whole_and_do_not_outgrow_their_size(requests: list[Request]) -> None:
    batches = [batch for window in image_batches(requests, 5) for batch in window]
    assert sorted(request.id for batch in batches for request in batch) == sorted(r.id for r in requests)
    assert all(0 < len(batch) <= 5 for batch in batches)
    for images in {request.images for request in requests}:
        assert sum(images in {request.images for request in batch} for batch in batches) == 1
    assert [len(batch) for (batch,) in image_batches([r for r in requests if r.id.startswith("one-0")], 2)] == [2, 2, 1]


def test_a_resumed_run_answers_the_rest_alike(
    loaded: LoadedModel, requests: list[Request], expected: dict[str, Reply]
) -> None:
    done = set(list(expected)[::2])
    rest = {reply.id: reply for reply in HfEngine(loaded, NEW_TOKENS, 7).replies(requests, done)}
    assert rest == {name: reply for name, reply in expected.items() if name not in done}


def test_other_families_encode_whole_prompts_and_say_so(
    loaded: LoadedModel,
    requests: list[Request],
    expected: dict[str, Reply],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(training.prefill, "FAMILIES", ())
    monkeypatch.setattr(training.prefill, "begin_rows", None)
    assert answers(HfEngine(loaded, NEW_TOKENS, 8), requests) == expected
    assert capsys.readouterr().err.count("qwen2_5_vl are encoded anew") == 1
