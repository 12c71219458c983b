"""Attention on a CPU, the growing cache and the learnt places: stock results, and bfloat16 only where it may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sharp_model import sharp_tiny
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

import training.cpu_attention
from data_gen.records import read_traces
from training import sft
from training.arguments import DataArguments, ModelArguments, SurdsSFTConfig, parse_arguments
from training.cpu_attention import NAME, mixed_precision
from training.growing_cache import ROOM, GrowingLayer, growing_cache
from training.learnt_only import LearntOnly, learnt_inputs

LENGTHS = (30, 17)  # of two texts, in tokens; padded on the left


@pytest.fixture(scope="module")
def model() -> Any:
    return sharp_tiny().model


def texts(model: Any, lengths: tuple[int, ...] = LENGTHS) -> dict[str, torch.Tensor]:
    ids = torch.randint(20, 300, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(0))
    mask = torch.stack([torch.arange(max(lengths)) >= max(lengths) - length for length in lengths]).long()
    return {"input_ids": ids, "attention_mask": mask}


def log_probs(model: Any, attention: str) -> torch.Tensor:
    model.set_attn_implementation(attention)
    with torch.no_grad():
        logits = model(**texts(model)).logits.float().log_softmax(-1)
    model.set_attn_implementation(NAME)
    return logits[texts(model)["attention_mask"].bool()]


def test_it_is_set_for_all_parts_and_gives_what_sdpa_gives(model: Any) -> None:
    config = model.config
    assert {part._attn_implementation for part in (config, config.text_config, config.vision_config)} == {NAME}
    torch.testing.assert_close(log_probs(model, NAME), log_probs(model, "sdpa"), rtol=1e-4, atol=1e-4)


def test_under_autocast_attention_computes_in_single_precision(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def watched(*parts: Any, **options: Any) -> torch.Tensor:
        seen.update({part.dtype for part in parts} | {torch.is_autocast_enabled("cpu")})
        return functional.scaled_dot_product_attention(*parts, **options)

    monkeypatch.setattr(training.cpu_attention, "scaled_dot_product_attention", watched)
    exact = log_probs(model, NAME)
    with mixed_precision():
        mixed, stock = log_probs(model, NAME), log_probs(model, "sdpa")
    assert seen == {torch.float32, False}
    error = (mixed - exact).abs().mean()
    assert 1e-5 < error < 2 * (stock - exact).abs().mean()


def test_a_growing_cache_holds_what_the_stock_cache_holds(model: Any) -> None:
    inputs, steps = texts(model), ROOM + 3  # over the border of the first room
    caches = DynamicCache(config=model.config), growing_cache(model.config)
    for cache in caches:
        with torch.no_grad():
            model(**inputs, past_key_values=cache)
            cache.batch_select_indices(torch.tensor([1, 0, 1]))
            ids = torch.randint(20, 300, (3, steps), generator=torch.Generator().manual_seed(1))
            mask = torch.cat([inputs["attention_mask"][[1, 0, 1]], torch.ones_like(ids)], dim=1)
            for at in range(steps):
                seen = mask[:, : max(LENGTHS) + at + 1]
                model(input_ids=ids[:, at : at + 1], attention_mask=seen, past_key_values=cache)
    stock, growing = caches
    assert growing.get_seq_length() == stock.get_seq_length() == max(LENGTHS) + steps
    for theirs, ours in zip(stock.layers, growing.layers, strict=True):
        torch.testing.assert_close(ours.keys, theirs.keys)
        torch.testing.assert_close(ours.values, theirs.values)
    assert len({layer.keys.data_ptr() for layer in growing.layers}) == len(growing.layers)


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.batch_repeat_interleave(2),
        lambda layer: layer.reorder_cache(torch.tensor([1, 0])),
        lambda layer: layer.crop(-3),
    ],
    ids=["repeated", "reordered", "cropped"],
)
def test_a_growing_layer_follows_every_stock_change(change: Callable[[DynamicLayer], None]) -> None:
    kept = []
    for layer in (DynamicLayer(), GrowingLayer()):
        drawn = torch.Generator().manual_seed(0)
        layer.update(*torch.randn(2, 2, 1, 6, 8, generator=drawn))
        change(layer)
        layer.batch_select_indices(torch.tensor([1, 1, 0]))
        kept.append(layer.update(*torch.randn(2, 3, 1, 2, 8, generator=drawn)))
    torch.testing.assert_close(kept[1], kept[0])


@pytest.fixture
def make(traces: Path, tmp_path: Path) -> Callable[..., Any]:
    """Builds the real SFT trainer of four traces on the tiny model, with options."""

    def build(*options: str) -> Any:
        classes = [ModelArguments, DataArguments, SurdsSFTConfig]
        words = ["--model", "tiny", "--out", str(tmp_path), "--per_device_train_batch_size", "4", "--max_steps", "1"]
        model, _, config = parse_arguments(classes, [*words, "--save_strategy", "no", *options])
        return sft.make_trainer(model, config, read_traces(traces)[:4], traces.parent)[0]

    return build


def trained(trainer: Any) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """What the first step logs, and the weights after it."""
    trainer.train()
    return trainer.state.log_history[0], dict(trainer.model.named_parameters())


OPTIONS = ["--logging_steps", "1", "--gradient_accumulation_steps", "2", "--learning_rate", "1e-3"]


def test_only_learnt_places_reach_the_head_and_the_step_is_that_of_trl(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(*OPTIONS)
    places: list[int] = []
    trainer.model.base_model.register_forward_hook(lambda *told: places.append(told[-1].last_hidden_state.shape[1]))
    log, weights = trained(trainer)
    monkeypatch.setattr(training.learnt_only, "learnt_inputs", lambda inputs: inputs)
    stock_log, stock_weights = trained(make(*OPTIONS))
    batch = trainer.data_collator([trainer.train_dataset[index] for index in range(4)])
    assert places and set(places) == {int((batch["labels"][:, 1:] != -100).sum())}
    for name in ("loss", "mean_token_accuracy", "entropy", "grad_norm"):
        assert log[name] == pytest.approx(stock_log[name], rel=1e-4), name
    for name, weight in weights.items():
        torch.testing.assert_close(weight, stock_weights[name], rtol=1e-3, atol=1e-4)


def test_nothing_learnt_and_smoothed_labels_are_left_to_trl(make: Callable[..., Any]) -> None:
    inputs = {"labels": torch.full((2, 5), -100)}
    assert learnt_inputs(inputs) is inputs
    smoothed = make("--label_smoothing_factor", "0.1")
    assert isinstance(smoothed, LearntOnly) and not smoothed.learnt_only


def test_a_step_in_bfloat16_is_near_that_in_single_precision(make: Callable[..., Any]) -> None:
    assert not make().args.bf16  # not unless asked for
    exact, mixed = trained(make(*OPTIONS))[0], trained(make(*OPTIONS, "--bf16", "true"))[0]
    assert mixed["loss"] != exact["loss"]
    assert mixed["loss"] == pytest.approx(exact["loss"], rel=2e-3)
    assert mixed["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)
