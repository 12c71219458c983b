"""Generation behind shared prompts: attention as over whole rows, draws as `generate` makes them, rows that leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sharp_model import drawn_like_generate, sharp_tiny
from torch.nn.functional import scaled_dot_product_attention
from transformers import GenerationConfig

import training.rollouts.sampling
from training.behind_prompts import HIDDEN, SharedPrompts, attend_behind
from training.prefill import Prefixes, begin_behind
from training.rollouts.drawing import drawn_at_random, draws_plainly
from training.rollouts.sampling import sharing_generate

HEADS, KEY_HEADS, CHANNELS, PROMPT, OWN = 4, 2, 8, 9, 5
OF_ROW = (0, 1, 1, 0, 1, 2)
PADS = (0, 3, 8)


@pytest.fixture(scope="module")
def model() -> Any:
    return sharp_tiny().model


def parts() -> tuple[SharedPrompts, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three prompts with pads in front, and the new token's query and the own keys and values of six rows."""
    draw = torch.Generator().manual_seed(0)
    keys, values = (2 * torch.randn(3, KEY_HEADS, PROMPT, CHANNELS, generator=draw) for _ in range(2))
    bias = torch.stack([(torch.arange(PROMPT) < pads) for pads in PADS]).float() * HIDDEN
    behind = SharedPrompts(((keys, values),), bias[:, None, None], torch.tensor([0, 3, 4, 1, 5, 6]), 3)
    query = 2 * torch.randn(len(OF_ROW), HEADS, 1, CHANNELS, generator=draw)
    key, value = (torch.randn(len(OF_ROW), KEY_HEADS, OWN, CHANNELS, generator=draw) for _ in range(2))
    return behind, query, key, value


def over_whole_rows(of_row: Sequence[int] = OF_ROW) -> torch.Tensor:
    """torch's own attention over every row with its prompt in front."""
    behind, query, key, value = parts()
    keys, values = (
        torch.cat([of[[*of_row]], own], dim=2) for of, own in zip(behind.layers[0], (key, value), strict=True)
    )
    mask = torch.cat([behind.pad_bias[[*of_row]], torch.zeros(len(of_row), 1, 1, OWN)], dim=-1)
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)


def test_it_is_attention_over_the_whole_row() -> None:
    behind, query, key, value = parts()
    mixed = attend_behind(behind, 0, query, key, value, CHANNELS**-0.5)
    torch.testing.assert_close(mixed, over_whole_rows(), rtol=1e-5, atol=1e-5)
    assert (mixed - over_whole_rows((1, 0, 1, 0, 1, 2)))[:2].abs().amax(dim=(1, 2, 3)).min() > 0.1, "of another prompt"


def test_it_is_the_same_for_the_rows_that_are_left() -> None:
    behind, query, key, value = parts()
    left = torch.tensor([4, 5, 0])
    mixed = attend_behind(behind.only(left), 0, query[left], key[left], value[left], CHANNELS**-0.5)
    torch.testing.assert_close(mixed, over_whole_rows()[left], rtol=1e-5, atol=1e-5)


def prompts() -> Prefixes:
    """Two texts of several lengths, three and two times."""
    ids = torch.randint(20, 300, (2, 40), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, :13] = 0
    rows = [0, 1, 0, 1, 0]
    return Prefixes(ids[rows], mask[rows])


SETTINGS = {"max_new_tokens": 24, "do_sample": True, "pad_token_id": 0, "top_k": 0, "top_p": 1.0}


@pytest.mark.parametrize("told", [{}, {"temperature": 0.6, "suppress_tokens": [50, 60]}], ids=["plain", "cooler"])
def test_rows_are_those_of_generate_also_when_others_have_left(
    model: Any, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def watched(*arguments: Any) -> Any:
        begun.append(len(arguments[1].input_ids))
        return begin_behind(*arguments)

    asked = prompts()
    inputs = {"input_ids": asked.input_ids, "attention_mask": asked.attention_mask}
    free = GenerationConfig(**SETTINGS, **told, eos_token_id=1)
    torch.manual_seed(3)
    written = model.generate(**inputs, generation_config=free)[:, 40:]
    # What some rows write early ends them: they leave the batch and the draws of the others must not move.
    config = GenerationConfig(**SETTINGS, **told, eos_token_id=[1, *written[[0, 2, 3], 5].tolist()])
    torch.manual_seed(3)
    expected = model.generate(**inputs, generation_config=config)
    monkeypatch.setattr(training.rollouts.sampling, "begin_behind", watched)
    monkeypatch.setattr(training.rollouts.sampling, "drawn_at_random", drawn_like_generate)
    torch.manual_seed(3)
    with sharing_generate(model):
        assert torch.equal(model.generate(**inputs, generation_config=config), expected)
    assert begun == [5] and not torch.equal(written, expected[:, 40:])


def test_draws_have_the_configs_distribution_whoever_has_left() -> None:
    logits = torch.tensor([[1.0, 0.0, 2.0, 5.0], [0.0, 0.0, 0.0, 9.0]])
    config = GenerationConfig(**SETTINGS, temperature=0.7, suppress_tokens=[3])
    count = 20_000
    torch.manual_seed(0)
    rows = torch.arange(count)
    drawn = drawn_at_random(config, count)(0, rows, logits[[0]].expand(count, -1))
    wanted = torch.cat([(logits[0, :3] / 0.7).softmax(0), torch.zeros(1)])
    torch.testing.assert_close(torch.bincount(drawn, minlength=4) / count, wanted, atol=0.01, rtol=0)
    torch.manual_seed(0)
    left = rows[count // 2 :: 3]
    fewer = drawn_at_random(config, count)(0, left, logits[[0]].expand(len(left), -1))
    assert torch.equal(fewer, drawn[left])


def test_what_is_more_than_a_draw_goes_the_stock_way(model: Any) -> None:
    plain = GenerationConfig(**SETTINGS, eos_token_id=1)
    assert draws_plainly(plain)
    for name, value in (("top_k", 20), ("top_p", 0.9), ("repetition_penalty", 1.3), ("min_p", 0.1), ("num_beams", 2)):
        changed = GenerationConfig.from_dict({**plain.to_dict(), name: value})
        assert not draws_plainly(changed), name
    assert not draws_plainly(GenerationConfig.from_dict({**plain.to_dict(), "do_sample": False}))


def test_prompts_are_kept_once(model: Any) -> None:
    begun = begin_behind(model, prompts())
    assert begun.behind is not None and begun.behind.length == 39 and begun.cache.get_seq_length() == 0
    assert len(begun.behind.layers[0][0]) == 2 and begun.behind.most_rows == 3
