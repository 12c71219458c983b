"""Frozen parts of the vision tower: exactly these stay as they are, and a frozen tower encodes an image once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sharp_model import write_noise

import training.frozen
import training.run
from data_gen.records import read_questions
from training import grpo, sft
from training.arguments import ModelArguments, parse_arguments
from training.bounded_cache import BoundedCache
from training.frozen import excluded_modules, freeze, keep_features, kept_features
from training.grpo_arguments import parse_grpo
from training.model import LoadedModel, load_model

FAST = ["--model", "tiny", "--save_strategy", "no", "--learning_rate", "1e-3"]
GRPO = [
    *FAST, "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2", "--max_completion_length", "8",
    "--rewards", "format",
]  # fmt: skip
BOTH = "vision,projector"


def grpo_trainer(traces: Path, out: Path, *options: str) -> Any:
    questions = traces.with_name("questions.jsonl")
    told = parse_grpo(["--data", str(questions), "--out", str(out), *GRPO, *options])
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, questions.parent)
    trainer.reward_funcs[0] = lambda completions, **_: [float(index % 3) for index, _ in enumerate(completions)]
    return trainer


def part_of(name: str) -> str:
    if "visual." not in name:
        return "language"
    return "projector" if "visual.merger." in name else "vision"


def parts_that_changed(before: dict[str, torch.Tensor], after: Any) -> dict[str, set[bool]]:
    """For each part whether its parameters changed: one answer, unless some did and some did not."""
    changed: dict[str, set[bool]] = {}
    for name, weight in after.named_parameters():
        changed.setdefault(part_of(name), set()).add(not torch.equal(weight.cpu(), before[name]))
    return changed


def values(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("told", ["", "vision", "projector", " projector, vision"])
def test_exactly_the_frozen_parts_stay_as_they_are(traces: Path, tmp_path: Path, told: str) -> None:
    trainer = grpo_trainer(traces, tmp_path, "--max_steps", "1", "--freeze", told)
    before = values(trainer.model)
    trainer.train()
    frozen = {name.strip() for name in told.split(",")}
    wanted = {part: {part not in frozen} for part in ("language", "vision", "projector")}
    assert parts_that_changed(before, trainer.model) == wanted
    for name, weight in trainer.model.named_parameters():
        assert weight.requires_grad is (part_of(name) not in frozen)
        assert weight.grad is None or part_of(name) not in frozen


def test_sft_freezes_too(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max_steps", "2", "--per_device_train_batch_size", "8", "--freeze", "vision"]
    sft.main(["--data", str(traces), "--out", str(tmp_path / "run"), *FAST, *options])
    changed = parts_that_changed(values(load_model("tiny").model), load_model(str(tmp_path / "run")).model)
    assert changed == {"language": {True}, "vision": {False}, "projector": {True}}
    assert re.search(r"0\.96 M parameters \(0\.\d\d M frozen\)", capsys.readouterr().out)


@pytest.mark.parametrize("told", ["vision", "projector", BOTH])
def test_frozen_parts_get_no_adapter(traces: Path, tmp_path: Path, told: str) -> None:
    trainer = grpo_trainer(traces, tmp_path, "--max_steps", "1", "--use_peft", "--lora_r", "4", "--freeze", told)
    adapted = {part_of(name) for name, _ in trainer.model.named_parameters() if "lora_" in name}
    assert adapted == {"language", "vision", "projector"} - set(told.split(","))
    trainer.train()
    assert trainer.state.global_step == 1


def test_names_of_modules_without_adapter() -> None:
    names = ["model.visual.blocks.0.attn.qkv", "model.visual.merger.mlp.0", "visual.merger.mlp.0", "model.lm_head",
             "model.language_model.layers.0.mlp.up_proj", "model.visual.patch_embed.proj"]  # fmt: skip
    assert excluded_modules(()) is None
    for told, wanted in ((("vision",), [0, 5]), (("projector",), [1, 2]), (("vision", "projector"), [0, 1, 2, 5])):
        pattern = excluded_modules(told)
        assert pattern and [at for at, name in enumerate(names) if re.fullmatch(pattern, name)] == wanted


def test_unknown_parts_and_models_without_tower_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_arguments([ModelArguments], ["--freeze", "vision,language"])
    assert stop.value.code == 2 and "takes vision, projector; got language" in capsys.readouterr().err
    text_only = load_model("tiny").model.model.language_model
    text_only.model = torch.nn.Module()
    with pytest.raises(ValueError, match="towers named `visual`"):
        freeze(text_only, ["vision"])


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


REFERENCE = ["--beta", "0.1", "--num_iterations", "2", "--max_steps", "3"]
ADAPTER = ["--beta", "0.1", "--max_steps", "2", "--use_peft", "--lora_r", "4"]
TRL = ["--beta", "0", "--max_steps", "2", "--no_shared_prefill", "--no_shared_prefix"]


@pytest.mark.parametrize("told, options", [("vision", REFERENCE), (BOTH, REFERENCE), ("vision", TRL), (BOTH, ADAPTER)])
def test_each_image_is_encoded_once_with_the_losses_of_every_time(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, options: list[str]
) -> None:
    trainer = grpo_trainer(traces, tmp_path / "kept", "--freeze", told, *options)
    model = trainer._generating_model()
    ran: list[int] = []
    model.model.visual.patch_embed.register_forward_pre_hook(lambda _, args: ran.append(len(args[0])))
    trainer.train()
    patches_of_image = (168 // 14) * (84 // 14)
    kept = kept_features(model)
    assert kept and kept.encoded == len(kept._kept) > 4
    assert sum(ran) == kept.encoded * patches_of_image
    if trainer.ref_model is not None:
        of_reference = kept_features(trainer.ref_model)
        assert of_reference and of_reference.encoded == kept.encoded
    monkeypatch.setattr(training.run, "keep_features", lambda *_: None)
    plain = grpo_trainer(traces, tmp_path / "plain", "--freeze", told, *options)
    assert kept_features(plain._generating_model()) is None
    plain.train()
    assert losses(trainer) == pytest.approx(losses(plain), rel=1e-5, abs=1e-7)
    changed = zip(trainer.model.parameters(), plain.model.parameters(), strict=True)
    assert all(torch.allclose(one, other, atol=2e-5) for one, other in changed)


@pytest.fixture()
def frozen_model() -> LoadedModel:
    loaded = load_model("tiny")
    freeze(loaded.model, ["vision", "projector"])
    return loaded


def pixels_of(loaded: LoadedModel, paths: list[Path]) -> dict[str, Any]:
    return dict(loaded.processor.image_processor(images=[str(path) for path in paths], return_tensors="pt"))


Encode = Callable[[dict[str, Any]], torch.Tensor]


def encoder(loaded: LoadedModel) -> Encode:
    visual = loaded.model.model.visual
    return lambda images: visual(images["pixel_values"], grid_thw=images["image_grid_thw"]).pooler_output


@pytest.mark.parametrize("parts", [["vision"], ["vision", "projector"]])
def test_features_are_those_of_the_tower_in_every_order(
    frozen_model: LoadedModel, tmp_path: Path, parts: list[str]
) -> None:
    paths = write_noise(tmp_path, [(160, 96), (96, 160), (224, 112), (160, 96)])
    orders = [[0, 1], [1, 0, 1, 2], [3, 0, 0], [2, 3]]
    batches = [pixels_of(frozen_model, [paths[at] for at in order]) for order in orders]
    encode = encoder(frozen_model)
    expected = [encode(batch).detach() for batch in batches]
    keep_features(frozen_model.model, parts)
    for batch, wanted in zip(batches, expected, strict=True):
        assert torch.allclose(encode(batch), wanted, atol=1e-5)
    kept = kept_features(frozen_model.model)
    assert kept and kept.encoded == 4


def test_images_that_look_alike_where_they_are_sampled_are_told_apart(
    frozen_model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.frozen, "_SAMPLES", 1)
    paths = write_noise(tmp_path, [(160, 96)])
    first = pixels_of(frozen_model, paths)
    second = {**first, "pixel_values": first["pixel_values"].clone()}
    second["pixel_values"][5, 7] += 0.01
    both = {name: torch.cat([first[name], second[name]]) for name in first}
    encode = encoder(frozen_model)
    expected = encode(both)
    keep_features(frozen_model.model, ["vision", "projector"])
    encode(first)
    assert torch.allclose(encode(both), expected, atol=1e-6)
    assert not torch.equal(expected[: len(expected) // 2], expected[len(expected) // 2 :])
    assert kept_features(frozen_model.model).encoded == 2  # type: ignore[union-attr]


def test_what_an_evaluation_left_behind_can_be_trained_on(frozen_model: LoadedModel, tmp_path: Path) -> None:
    images = pixels_of(frozen_model, write_noise(tmp_path, [(160, 96)]))
    keep_features(frozen_model.model, ["vision", "projector"])
    encode = encoder(frozen_model)
    with torch.inference_mode():
        encode({**images, "pixel_values": images["pixel_values"].clone()})
    factor = torch.ones(1, requires_grad=True)
    (encode(images) * factor).sum().backward()
    assert factor.grad is not None and kept_features(frozen_model.model).encoded == 1  # type: ignore[union-attr]


def test_mixed_precision_has_features_of_its_own(frozen_model: LoadedModel, tmp_path: Path) -> None:
    images = pixels_of(frozen_model, write_noise(tmp_path, [(160, 96)]))
    keep_features(frozen_model.model, ["vision", "projector"])
    encode = encoder(frozen_model)
    exact = encode(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = encode(images)
    assert not torch.equal(exact, mixed.float()) and torch.equal(encode(images), exact)


def test_what_is_kept_has_a_bound(frozen_model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_noise(tmp_path, [(160, 96)] * 3)
    monkeypatch.setattr(training.frozen, "KEPT_BYTES", 800_000)
    encode = encoder(frozen_model)
    expected = [encode(pixels_of(frozen_model, [path])) for path in paths]
    keep_features(frozen_model.model, ["vision", "projector"])
    for _ in range(2):
        for path, wanted in zip(paths, expected, strict=True):
            assert torch.allclose(encode(pixels_of(frozen_model, [path])), wanted, atol=1e-6)
    kept = kept_features(frozen_model.model)
    assert kept and kept.encoded == 6 and 0 < kept._kept.held_bytes <= 800_000
    assert isinstance(kept._kept, BoundedCache)


def test_sharded_weights_and_other_families_keep_nothing(
    frozen_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.frozen, "is_deepspeed_zero3_enabled", lambda: True)
    keep_features(frozen_model.model, ["vision", "projector"])
    assert kept_features(frozen_model.model) is None
    monkeypatch.undo()
    keep_features(frozen_model.model, ["projector"])
    assert kept_features(frozen_model.model) is None  # the blocks are trained
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    keep_features(frozen_model.model, ["vision"])
    assert kept_features(frozen_model.model) is None
