"""Completions of the GRPO trainer: sampled as TRL samples them with one prefill per prompt, never with image tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from processes import torchrun
from sharp_model import drawn_like_generate, sharp_tiny, write_noise
from trl.data_utils import prepare_multimodal_messages

import training.prefill
import training.rollouts.sampling
from data_gen.records import read_questions
from training import grpo
from training.grpo_arguments import parse_grpo
from training.model import save_frame
from training.prefill import Prefixes, distinct_prompts
from training.rollouts.sampling import NEVER, SharedPrefill, count_tokens, strip_tokens

FAST = [
    "--gradient_accumulation_steps", "1", "--per_device_train_batch_size", "8", "--max_completion_length", "12",
    "--rewards", "format",
]  # fmt: skip
SIZES = [(160, 96), (96, 160), (56, 224)]


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder of the tiny model with sharp attention."""
    folder = tmp_path_factory.mktemp("sharp")
    loaded = sharp_tiny()
    loaded.model.save_pretrained(folder)
    loaded.processor.save_pretrained(folder)
    save_frame(folder, loaded.frame, tiny=True)
    return folder


@pytest.fixture(scope="module")
def make(sharp: Path, traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Builds the real trainer on the sharp model, with options."""

    def build(*options: str) -> Any:
        questions = traces.with_name("questions.jsonl")
        out = str(tmp_path_factory.mktemp("run"))
        told = parse_grpo(["--data", str(questions), "--out", out, "--model", str(sharp), *FAST, *options])
        chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
        trainer, _ = grpo.make_trainer(told, chosen, questions.parent)
        trainer.reward_funcs[0] = lambda completions, **_: [float(index % 3) for index, _ in enumerate(completions)]
        return trainer

    return build


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Groups of three: texts of several lengths, one, two and no pictures, the same text about other pictures."""
    paths = [str(path) for path in write_noise(tmp_path_factory.mktemp("noise"), [*SIZES, SIZES[0]])]
    asked = [
        ("Where is the red car?", paths[:1]),
        ("Where is the red car?", paths[3:]),  # same size, same text, other pixels
        ("How far is the red car from the blue truck, and which of them is closer to the camera?", paths[1:2]),
        ("Which is closer?", paths[:2]),
        ("Which is closer?", paths[1::-1]),
        ("Which is closer?", [paths[2]]),
        ("What is the colour of the white car?", []),
    ]
    chats = [prepare_multimodal_messages([{"role": "user", "content": text}], images) for text, images in asked]
    return [chat for chat in chats for _ in range(3)]


def sample(trainer: Any, prompts: list[Any], shared: bool, seed: int = 5) -> list[list[int]]:
    """Completion ids of one generation, with TRL's own path or the shared one; with the draws of `generate` in both."""
    ids, images, fields = trainer._tokenize_prompts(prompts)
    trainer.shared_prefill = shared
    torch.manual_seed(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training.rollouts.sampling, "drawn_at_random", drawn_like_generate)
        return trainer._generate_single_turn(ids, images, fields, 3)[0]


VARIANTS = [
    [],
    ["--generation_kwargs", '{"do_sample": false}'],
    ["--repetition_penalty", "1.3", "--temperature", "0.7", "--top_k", "20"],
    ["--use_peft", "--lora_r", "4", "--gradient_checkpointing", "true"],
]


@pytest.mark.parametrize("options", VARIANTS, ids=["sampled", "greedy", "penalised", "adapter"])
def test_completions_are_those_of_trl(make: Callable[..., Any], prompts: list[Any], options: list[str]) -> None:
    trainer = make(*options)
    assert trainer.shared_prefill
    if "--use_peft" in options:
        for name, weight in trainer.model.named_parameters():
            if "lora_B" in name:  # zero at first, so that an adapter that is left out would not be noticed
                torch.nn.init.normal_(weight, std=0.2, generator=torch.Generator().manual_seed(1))
    patches = count_patches(trainer)
    stock = sample(trainer, prompts, shared=False)
    encoded = patches.pop()
    assert sample(trainer, prompts, shared=True) == stock
    assert patches == [encoded // 3]
    assert len({tuple(row) for row in stock}) > 6
    if "--generation_kwargs" not in options:
        assert sample(trainer, prompts, shared=True, seed=6) != stock


def count_patches(trainer: Any) -> list[int]:
    """Grows by the number of patches at every call of the vision tower."""
    seen: list[int] = []
    model = trainer._generating_model()
    model.model.visual.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    return seen


def test_order_and_repeats_do_not_matter(make: Callable[..., Any], prompts: list[Any]) -> None:
    trainer = make()
    mixed = random.Random(0).sample(prompts, len(prompts))
    assert sample(trainer, mixed, shared=True) == sample(trainer, mixed, shared=False)
    assert sample(trainer, mixed[:1], shared=True) == sample(trainer, mixed[:1], shared=False)


def merged_by_text(prompts: Prefixes, model: Any) -> tuple[list[int], list[int]]:
    """Wrong: rows with the same tokens share a prefill whatever their pixels are."""
    return distinct_prompts(Prefixes(prompts.input_ids, prompts.attention_mask), model)


def test_the_same_text_about_other_pictures_is_another_prompt(
    make: Callable[..., Any], prompts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make()
    right = sample(trainer, prompts, shared=True)
    monkeypatch.setattr(training.prefill, "distinct_prompts", merged_by_text)
    wrong = sample(trainer, prompts, shared=True)
    assert wrong[:3] == right[:3] and wrong[3:6] != right[3:6]


def test_text_only_batches_are_shared_too(make: Callable[..., Any], prompts: list[Any]) -> None:
    trainer = make()
    assert sample(trainer, prompts[-3:], shared=True) == sample(trainer, prompts[-3:], shared=False)


def test_it_can_be_switched_off_and_falls_back_before_training(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make("--no_shared_prefill").shared_prefill is False
    assert capsys.readouterr().err.count("prefills its own prompt") == 0
    for options, reason in (
        (["--cache_implementation", "static"], "cache_implementation: static"),
        (["--generation_kwargs", '{"num_beams": 2}'], "num_beams: 2"),
    ):
        assert make(*options).shared_prefill is False
        error = capsys.readouterr().err
        assert error.count("prefills its own prompt") == 1 and reason in error
    monkeypatch.setattr(training.prefill, "FAMILIES", ())
    assert make().shared_prefill is False
    assert "qwen2_5_vl numbers image tokens" in capsys.readouterr().err


@pytest.fixture()
def greedy_for_images(make: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Builds a trainer whose model, asked for the next token, likes image marks best."""

    def build(*options: str) -> Any:
        trainer = make(*options)
        model = trainer._generating_model()
        ids = [model.config.image_token_id, model.config.vision_start_token_id, model.config.video_token_id]

        def favour(_: Any, __: Any, logits: torch.Tensor) -> torch.Tensor:
            return logits.index_add(-1, torch.tensor(ids), torch.full((*logits.shape[:-1], 3), 4.0))

        model.lm_head.register_forward_hook(favour)
        return trainer

    yield build


def test_image_tokens_are_not_sampled_and_the_users_own_settings_stay(
    greedy_for_images: Callable[..., Any], prompts: list[Any]
) -> None:
    trainer = greedy_for_images("--generation_kwargs", '{"suppress_tokens": [300]}')
    assert trainer._image_tokens < set(trainer.generation_config.suppress_tokens)
    assert 300 in trainer.generation_config.suppress_tokens
    assert count_tokens(sample(trainer, prompts, shared=True), {*trainer._image_tokens, 300}) == 0
    trainer.generation_config.suppress_tokens = None
    assert trainer._pending_metrics["completions/image_tokens"].pop() == 0
    sample(trainer, prompts, shared=True)
    assert trainer._pending_metrics["completions/image_tokens"].pop() > 10


def logged(trainer: Any) -> dict[str, Any]:
    return {name: value for entry in trainer.state.log_history for name, value in entry.items()}


def test_a_step_survives_image_tokens_in_completions(
    greedy_for_images: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = greedy_for_images("--max_steps", "1")
    trainer.generation_config.suppress_tokens = None
    trainer.train()
    assert logged(trainer)["completions/image_tokens"] > 5
    # Control: with the tokens left in, the forward pass finds more image tokens than image features.
    trainer = greedy_for_images("--max_steps", "1")
    trainer.generation_config.suppress_tokens = None
    monkeypatch.setattr(training.rollouts.sampling, "strip_tokens", lambda ids, logps, *_: (ids, logps))
    with pytest.raises((ValueError, RuntimeError), match="do not match"):
        trainer.train()


def test_stripping_keeps_log_probs_beside_their_tokens() -> None:
    ids, logps = [[5, 9, 6], [9, 9], [7]], [[-1.0, -2.0, -3.0], [-1.0, -1.0], [-4.0]]
    assert strip_tokens(ids, logps, {9}, 2) == ([[5, 6], [2], [7]], [[-1.0, -3.0], [None], [-4.0]])
    assert strip_tokens(ids, None, {9}, 2) == ([[5, 6], [2], [7]], None)
    assert strip_tokens(ids, logps, {1}, 2) == (ids, logps)


def test_vllm_is_told_by_a_bias_that_the_user_can_set() -> None:
    trainer: Any = SharedPrefill.__new__(SharedPrefill)
    trainer.use_vllm, trainer._image_tokens = True, frozenset({8, 9})
    trainer.vllm_generation = SimpleNamespace(generation_kwargs={"logit_bias": {8: 1.5, 3: 2.0}, "seed": 1})
    trainer._suppress_image_tokens()
    assert trainer.vllm_generation.generation_kwargs == {"logit_bias": {8: 1.5, 9: NEVER, 3: 2.0}, "seed": 1}


ZERO3 = {
    "zero_optimization": {"stage": 3},
    "zero_allow_untested_optimizer": True,
    **dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"), "auto"),
}
needs_deepspeed = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed"),
]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="ddp"),
        pytest.param(["--deepspeed", json.dumps(ZERO3)], marks=needs_deepspeed, id="zero3"),
        pytest.param(
            ["--deepspeed", json.dumps(ZERO3), "--use_peft", "--lora_r", "4", "--freeze", "vision,projector"],
            marks=needs_deepspeed,
            id="zero3-adapter-frozen",
        ),
        pytest.param(
            ["--deepspeed", json.dumps(ZERO3), "--ds3_gather_for_generation", "false"],
            marks=needs_deepspeed,
            id="zero3-sharded",
        ),
    ],
)
def test_two_processes_sample_what_trl_samples(sharp: Path, traces: Path, tmp_path: Path, options: list[str]) -> None:
    script = str(Path(__file__).with_name("sampling_processes.py"))
    told = [script, str(traces.with_name("questions.jsonl")), str(sharp), str(tmp_path), *options]
    done = torchrun(*told, timeout_s=600)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in (0, 1):
        seen = json.loads((tmp_path / f"process-{rank}.json").read_text())
        shared, stock = seen["shared"], seen["stock"]
        assert (shared["world"], shared["shared"], stock["shared"]) == (2, True, False)
        assert shared["zero3"] is ("--deepspeed" in options)
        assert len(shared["completions"]) == 2 * 16 and shared["completions"] == stock["completions"]
        assert shared["losses"] == pytest.approx(stock["losses"], rel=1e-4, abs=1e-6)
