"""The shared prefix in the update: the scores, gradients and trained weights of TRL's own path, or that path itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig
from prefix_processes import GROUP, make_trainer, relative, save_sharp
from sharp_model import write_noise
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForImageTextToText
from trl import GRPOTrainer
from trl.trainer import grpo_trainer
from trl.trainer.utils import add_fused_lm_head

import training.update.prefix
import training.update.prefix_attention
from training.model import load_model
from training.prefill import Continuation, Prefixes, generate_from
from training.update.packing import GroupSpan, PackedRow, pack
from training.update.prefix_attention import of_one_type, packed_attention

TEMPERATURE = "0.9"
WIDTH = 17  # of the completions, in tokens


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_sharp(tmp_path_factory.mktemp("sharp"))


@pytest.fixture(scope="module")
def questions(traces: Path) -> Path:
    return traces.with_name("questions.jsonl")


@dataclass(frozen=True)
class Batch:
    """What TRL's trainer hands to its scoring method, and a weight for every completion token."""

    inputs: dict[str, Any]
    weights: torch.Tensor


@dataclass(frozen=True)
class Scores:
    log_probs: torch.Tensor
    entropies: torch.Tensor
    gradients: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def trainers(sharp: str, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """(TRL's own path, shared prefixes), the same weights."""
    options = ("--temperature", TEMPERATURE, "--max_steps", "1")
    out = tmp_path_factory.mktemp("trainers")
    stock = make_trainer(questions, sharp, out / "stock", *options, "--shared_prefix", "false")
    return stock, make_trainer(questions, sharp, out / "shared", *options)


def make_batch(processor: Any, folder: Path, pictures: bool = True) -> Batch:
    """Three groups: one picture, two pictures, another one, with prompts of different lengths; ragged completions.

    One completion is a single token, one is masked as a truncated one is.
    """
    from PIL import Image

    sizes = [(160, 96), (96, 160), (56, 224), (120, 120)]
    noise = [Image.open(path) for path in write_noise(folder, sizes)]
    shown = [noise[:1], noise[1:3], noise[3:]] if pictures else [[], [], []]
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    asked = ["How far is the red car?", "Which one is closer, the bus or the white truck?", "Where?"]
    texts = [f"<|im_start|>user\n{mark * len(one)}{text}" for one, text in zip(shown, asked, strict=True)]
    every = {"text": [text for text in texts for _ in range(GROUP)], "padding": True, "return_tensors": "pt"}
    if pictures:
        every["images"] = [one for one in shown for _ in range(GROUP)]
    made = processor(**every)
    numbers = torch.Generator().manual_seed(0)
    rows = len(made["input_ids"])
    lengths = torch.randint(2, WIDTH + 1, (rows, 1), generator=numbers)
    lengths[0], lengths[5], lengths[7] = WIDTH, 1, 0
    written = torch.randint(20, 1000, (rows, WIDTH), generator=numbers)
    mask = (torch.arange(WIDTH) < lengths).long()
    inputs = {
        "input_ids": torch.cat([made["input_ids"], written], 1),
        "attention_mask": torch.cat([made["attention_mask"], mask], 1),
        "logits_to_keep": WIDTH,
    }
    if pictures:
        types = made["mm_token_type_ids"]
        inputs |= {name: made[name] for name in ("pixel_values", "image_grid_thw")}
        inputs["num_images"] = [len(one) for one in shown for _ in range(GROUP)]
        inputs["mm_token_type_ids"] = torch.cat([types, torch.zeros_like(written)], 1)
    return Batch(inputs, torch.randn(2, rows, WIDTH, generator=numbers) * mask)


@pytest.fixture(scope="module")
def batch(trainers: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return make_batch(trainers[0].processing_class, tmp_path_factory.mktemp("noise"))


def score(trainer: Any, batch: Batch, **changed: Any) -> Scores:
    """Scores of a batch, and gradients of a weighted sum of them."""
    trainer.model.train()
    trainer.model.zero_grad()
    inputs = {**batch.inputs, **changed}
    log_probs, entropies, _ = trainer._get_per_token_logps_and_entropies(trainer.model, compute_entropy=True, **inputs)
    ((log_probs * batch.weights[0]).sum() + 0.1 * (entropies * batch.weights[1]).sum()).backward()
    gradients = {name: one.grad for name, one in trainer.model.named_parameters() if one.grad is not None}
    return Scores(log_probs.detach(), entropies.detach(), gradients)


@pytest.fixture(scope="module")
def expected(trainers: tuple[Any, Any], batch: Batch) -> Scores:
    """By TRL's own path."""
    return score(trainers[0], batch)


def differences(got: Scores, expected: Scores) -> tuple[float, float, float]:
    """Largest difference of a log-probability, of an entropy, and largest relative one of a parameter's gradient.

    The keys' biases are left out: adding the same to all keys changes no softmax, so that their gradient is rounding.
    """
    assert got.gradients.keys() == expected.gradients.keys()
    names = [name for name in got.gradients if not name.endswith("k_proj.bias")]
    return (
        (got.log_probs - expected.log_probs).abs().max().item(),
        (got.entropies - expected.entropies).abs().max().item(),
        max(relative(got.gradients[name], expected.gradients[name]) for name in names),
    )


def test_scores_and_gradients_are_those_of_trl(trainers: tuple[Any, Any], batch: Batch, expected: Scores) -> None:
    log_probs, entropies, gradients = differences(score(trainers[1], batch), expected)
    assert log_probs < 1e-5 and entropies < 1e-5 and gradients < 1e-5
    assert len(expected.gradients) > 60 and any("visual" in name for name in expected.gradients)
    assert expected.log_probs.abs().max() > 5 and (expected.log_probs[7] == 0).all()


def autocast_score(trainer: Any, batch: Batch) -> Scores:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return score(trainer, batch)


def test_under_autocast_it_is_as_near_as_trl_is(
    trainers: tuple[Any, Any], batch: Batch, expected: Scores, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def watched(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.add((query.dtype, key.dtype, value.dtype))
        return packed_attention(query, key, value, *rest)

    monkeypatch.setattr(training.update.prefix_attention, "packed_attention", watched)
    # What CUDA is given instead of a mask; it refuses tensors of different types.
    monkeypatch.setattr(
        training.update.prefix_attention, "last_places", lambda count, total, _: causal_lower_right(count, total)
    )
    stock, shared = (autocast_score(trainer, batch) for trainer in trainers)
    assert seen == {(torch.float32,) * 3}
    own_noise = relative(stock.log_probs, expected.log_probs)
    assert own_noise > 1e-4 and relative(shared.log_probs, expected.log_probs) < 2 * own_noise
    assert relative(shared.log_probs, stock.log_probs) < 2 * own_noise


def test_elsewhere_than_on_a_cpu_attention_has_the_type_of_its_values() -> None:
    query, key = torch.zeros(2, 1, 4, 3, 8, device="meta")
    value = torch.zeros(1, 4, 3, 8, device="meta", dtype=torch.bfloat16)
    assert {part.dtype for part in of_one_type(query, key, value)} == {torch.bfloat16}


def test_buffered_pictures_and_small_batches_change_nothing(
    trainers: tuple[Any, Any], batch: Batch, expected: Scores
) -> None:
    shared = trainers[1]
    pictures = training.update.prefix._pictures(batch.inputs)
    assert pictures is not None
    once = pictures.once_per(GROUP)
    assert len(once.pixel_values) * GROUP == len(pictures.pixel_values)
    kept = {"pixel_values": once.pixel_values, "image_grid_thw": once.grid_thw, "num_images": list(once.per_row)}
    assert max(differences(score(shared, batch, **kept, batch_size=GROUP), expected)) < 1e-5
    assert max(differences(score(shared, batch, batch_size=2 * GROUP), expected)) < 1e-5


def shifted(rows: Any, positions: torch.Tensor) -> PackedRow:
    """Every branch seven positions late."""
    row = pack(rows, positions)
    position_ids = row.position_ids.clone()
    position_ids[:, :, row.scored] += 7
    return replace(row, position_ids=position_ids)


def plainly_causal(query: Any, key: Any, value: Any, spans: Any, scale: float) -> torch.Tensor:
    """Branches see those before them."""
    return training.update.prefix_attention._causal(query, key, value, scale)


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [(training.update.prefix, "pack", shifted), (training.update.prefix_attention, "packed_attention", plainly_causal)],
)
def test_wrong_positions_or_masks_would_be_seen(
    trainers: tuple[Any, Any],
    batch: Batch,
    expected: Scores,
    module: Any,
    name: str,
    wrong: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, name, wrong)
    log_probs, entropies, gradients = differences(score(trainers[1], batch), expected)
    assert log_probs > 0.1 and entropies > 0.001 and gradients > 0.1


def test_attention_without_a_mask_is_that_with_one() -> None:
    """Prompts see themselves, branches their prompt and themselves, nobody what comes later; fewer key heads too."""
    spans = (GroupSpan(5, (3, 1, 4)), GroupSpan(0, (2,)), GroupSpan(2, ()))
    owner = [
        (group, branch)
        for group, span in enumerate(spans)
        for branch, size in enumerate((span.prefix, *span.branches))
        for _ in range(size)
    ]
    allowed = [
        [key <= query and owner[key][0] == group and owner[key][1] in (0, branch) for key in range(len(owner))]
        for query, (group, branch) in enumerate(owner)
    ]
    query, key, value = (torch.randn(1, heads, len(owner), 8, dtype=torch.double) for heads in (4, 2, 2))
    masked = scaled_dot_product_attention(query, key, value, torch.tensor(allowed), scale=0.3, enable_gqa=True)
    assert torch.allclose(packed_attention(query, key, value, spans, 0.3), masked)
    assert not torch.allclose(packed_attention(query, key, value, (GroupSpan(17, ()),), 0.3), masked)
    # What CUDA kernels are asked for instead of a mask.
    assert torch.equal(causal_lower_right(3, 7)._materialize(), torch.ones(3, 7, dtype=torch.bool).tril(4))


def test_rows_without_pictures(trainers: tuple[Any, Any], tmp_path: Path) -> None:
    text = make_batch(trainers[0].processing_class, tmp_path, pictures=False)
    stock, shared = (score(trainer, text) for trainer in trainers)
    assert max(differences(shared, stock)) < 1e-5 and len(shared.gradients) > 30


def test_a_batch_that_is_all_masked_has_zero_gradients(trainers: tuple[Any, Any], batch: Batch) -> None:
    mask = batch.inputs["attention_mask"].clone()
    mask[:, -WIDTH:] = 0
    got = score(trainers[1], batch, attention_mask=mask)
    assert (got.log_probs == 0).all() and (got.entropies == 0).all()
    assert len(got.gradients) > 60 and all((gradient == 0).all() for gradient in got.gradients.values())


def test_padding_pictures_and_caches_of_other_calls_are_honoured(trainers: tuple[Any, Any], batch: Batch) -> None:
    """Generation, text-only forward passes and prefills go through the registered attention with their masks."""
    stock, shared = (trainer.model.eval() for trainer in trainers)
    assert shared.config.text_config._attn_implementation == training.update.prefix_attention.NAME
    names = ("input_ids", "attention_mask", "mm_token_type_ids")
    prompts = {name: batch.inputs[name][:, :-WIDTH] for name in names}
    prompts |= {name: batch.inputs[name] for name in ("pixel_values", "image_grid_thw")}
    settings = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    written = stock.generate(**prompts, **settings)
    assert torch.equal(shared.generate(**prompts, **settings), written)
    assert (prompts["attention_mask"] == 0).any() and len(set(map(tuple, written[:, -8:].tolist()))) > 1
    unmasked = {**prompts, "attention_mask": torch.ones_like(prompts["attention_mask"])}
    with torch.no_grad():
        # Without pictures, as the verifier asks.
        text = {name: prompts[name] for name in ("input_ids", "attention_mask")}
        text["input_ids"] = text["input_ids"].clamp(min=20)
        logits = shared(**text, logits_to_keep=3).logits
        assert torch.allclose(logits, stock(**text, logits_to_keep=3).logits, atol=1e-5)
        blind = shared(**{**text, "attention_mask": unmasked["attention_mask"]}, logits_to_keep=3).logits
        assert not torch.allclose(logits, blind, atol=1e-2)
    heads = {name: prompts[name][::GROUP] for name in names[:2]}
    pictures = training.update.prefix._pictures(batch.inputs)
    assert pictures is not None
    once = pictures.once_per(GROUP)
    prefixes = Prefixes(**heads, pixel_values=once.pixel_values, image_grid_thw=once.grid_thw)
    rows = [Continuation(0, (50,)), Continuation(2, (60, 70)), Continuation(1, (80,))]
    assert torch.equal(
        *(generate_from(model, prefixes, rows, 0, max_new_tokens=6, do_sample=False) for model in (stock, shared))
    )


def test_a_saved_model_is_an_ordinary_one(trainers: tuple[Any, Any], batch: Batch, tmp_path: Path) -> None:
    shared = trainers[1]
    shared.save_model(str(tmp_path))
    for path in tmp_path.rglob("*.json"):
        assert training.update.prefix_attention.NAME not in path.read_text(), path
    again = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert again.config.text_config._attn_implementation == "sdpa"
    text = {"input_ids": torch.arange(20, 60)[None]}
    with torch.no_grad():
        assert torch.equal(again(**text).logits, shared.model.eval()(**text).logits)


def test_trls_shuffling_is_put_back_whatever_happens(trainers: tuple[Any, Any]) -> None:
    stock = grpo_trainer.shuffle_sequence_dict
    with pytest.raises(RuntimeError), training.update.prefix.blocks_kept_together(4):
        assert grpo_trainer.shuffle_sequence_dict is not stock
        raise RuntimeError
    assert grpo_trainer.shuffle_sequence_dict is stock


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model.config.model_type", "qwen3_vl", "the model is a qwen3_vl"),
        ("model.config.text_config._attn_implementation_internal", "eager", "the model has eager"),
        ("model.config.text_config.attention_dropout", 0.1, "attention dropout"),
        ("model.config.text_config.layer_types", ["sliding_attention"], "sliding-window"),
        ("model.peft_config", {"default": LoraConfig(lora_dropout=0.1)}, "LoRA dropout"),
        ("model.peft_config", {"default": PromptTuningConfig()}, "prompt-learning"),
        ("tools", [print], "tools"),
        ("environment_factories", {None: object}, "environments"),
        ("rollout_func", print, "rollout"),
        ("args.use_liger_kernel", True, "Liger"),
        ("args.torch_compile", True, "torch.compile"),
        ("is_fsdp_enabled", True, "FSDP"),
        ("args.per_device_train_batch_size", 3, "--per_device_train_batch_size 3 and --num_generations 4"),
    ],
)
def test_what_is_not_supported_has_a_reason(
    trainers: tuple[Any, Any], path: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainers[0]
    assert training.update.prefix.why_not(trainer) is None
    owner = trainer
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    monkeypatch.setattr(owner, name, value, raising=False)
    assert words in (training.update.prefix.why_not(trainer) or "")


def test_what_it_relies_on_in_trl() -> None:
    """An upgrade of TRL that changes any of this must be looked at."""
    names = {
        "_prepare_inputs": ["self", "generation_batch"],
        "_generate_and_score_completions": ["self", "inputs"],
        "_get_per_token_logps_and_entropies": [
            "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
            "compute_aux_loss", "pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask",
            "spatial_shapes", "num_tiles", "image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids",
        ],
    }  # fmt: skip
    for name, parameters in names.items():
        assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters) == parameters
    prepare = inspect.getsource(GRPOTrainer._prepare_inputs)
    assert prepare.count("shuffle_sequence_dict(") == 1
    order = ["split_pixel_values_by_grid(", "shuffle_sequence_dict(", "split_tensor_dict(", "unsplit_pixel_values_by"]
    assert sorted(order, key=prepare.index) == order
    generate = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert generate.count("self._get_per_token_logps_and_entropies(") == 3  # old, reference, adapter switched off
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    assert loss.count("self._get_per_token_logps_and_entropies(") == 1
    head = inspect.getsource(add_fused_lm_head)
    for fact in ("backbone_outputs.last_hidden_state\n", "labels = shift_labels", "mask = labels != -100"):
        assert fact in head, fact


def test_the_tiny_model_is_of_a_family_that_shares() -> None:
    assert load_model("tiny").model.config.model_type in training.update.prefix.FAMILIES
