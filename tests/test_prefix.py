"""The shared prefix in the update: the scores, gradients and trained weights of TRL's own path, or that path itself."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig
from prefix_processes import CASES, GROUP, apart, make_trainer, relative, train, train_both
from sharp_model import SHARPER, sharp_tiny, write_noise
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForImageTextToText
from trl import GRPOTrainer
from trl.trainer import grpo_trainer
from trl.trainer.utils import add_fused_lm_head

import training.prefix
import training.prefix_attention
from training.model import load_model, save_frame
from training.packing import GroupSpan, PackedRow, pack
from training.prefill import Continuation, Prefixes, generate_from
from training.prefix_attention import packed_attention

TEMPERATURE = "0.9"
WIDTH = 17  # of the completions, in tokens


def save_sharp(folder: Path, sharper: float) -> str:
    """The tiny model with sharp attention as a checkpoint; one token in eight ends a completion."""
    loaded = sharp_tiny()
    with torch.no_grad():
        for layer in loaded.model.model.language_model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight.mul_(sharper / SHARPER)
    vocabulary = range(8, loaded.model.config.text_config.vocab_size)
    loaded.model.generation_config.eos_token_id = [loaded.processor.tokenizer.eos_token_id, *vocabulary[::8]]
    loaded.model.save_pretrained(folder)
    loaded.processor.save_pretrained(folder)
    save_frame(folder, loaded.frame, tiny=True)
    return str(folder)


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A third as sharp as elsewhere: through several steps, rounding errors of the sharpest grow tenfold each."""
    return save_sharp(tmp_path_factory.mktemp("sharp"), SHARPER / 3)


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


def test_buffered_pictures_and_small_batches_change_nothing(
    trainers: tuple[Any, Any], batch: Batch, expected: Scores
) -> None:
    shared = trainers[1]
    pictures = training.prefix._pictures(batch.inputs)
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
    return training.prefix_attention._causal(query, key, value, scale)


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [(training.prefix, "pack", shifted), (training.prefix_attention, "packed_attention", plainly_causal)],
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
    assert shared.config.text_config._attn_implementation == training.prefix_attention.NAME
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
    pictures = training.prefix._pictures(batch.inputs)
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
        assert training.prefix_attention.NAME not in path.read_text(), path
    again = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert again.config.text_config._attn_implementation == "sdpa"
    text = {"input_ids": torch.arange(20, 60)[None]}
    with torch.no_grad():
        assert torch.equal(again(**text).logits, shared.model.eval()(**text).logits)


def test_groups_stay_together_and_their_pictures_are_kept_once(sharp: str, questions: Path, tmp_path: Path) -> None:
    trainer = make_trainer(questions, sharp, tmp_path, "--max_steps", "1")
    patches: list[int] = []
    visual = trainer.model.model.visual
    visual.register_forward_pre_hook(lambda _, args: patches.append(len(args[0])) if torch.is_grad_enabled() else None)
    train(trainer)
    buffered = trainer._buffered_inputs
    assert len(buffered) == 2 and len(patches) == 2
    for held, seen in zip(buffered, patches, strict=True):
        assert held["num_images"] == [1, 0, 0, 0, 1, 0, 0, 0]
        assert len(held["image_grid_thw"]) == 2 and len(held["pixel_values"]) == seen
        for prompts in held["prompt_ids"].view(2, GROUP, -1):
            assert (prompts == prompts[0]).all()


def test_groups_that_were_taken_apart_stop_the_run(
    sharp: str, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.prefix, "blocks_kept_together", lambda _: nullcontext())  # TRL's own shuffling
    trainer = make_trainer(questions, sharp, tmp_path, "--max_steps", "1")
    with pytest.raises(ValueError, match=r"different (prompts|pictures)"):
        train(trainer)


def test_trls_shuffling_is_put_back_whatever_happens(trainers: tuple[Any, Any]) -> None:
    stock = grpo_trainer.shuffle_sequence_dict
    with pytest.raises(RuntimeError), training.prefix.blocks_kept_together(4):
        assert grpo_trainer.shuffle_sequence_dict is not stock
        raise RuntimeError
    assert grpo_trainer.shuffle_sequence_dict is stock


def test_evaluation_gives_the_same_figures(sharp: str, questions: Path, tmp_path: Path) -> None:
    options = ("--num_generations_eval", "2", "--per_device_eval_batch_size", "4", "--beta", "0.1")
    options += ("--reward_weights", "1")
    seen = []
    for words in (("--shared_prefix", "false"), ()):
        trainer = make_trainer(questions, sharp, tmp_path, *options, *words)
        with torch.no_grad():
            for weight in trainer.model.parameters():  # away from the reference model
                weight.mul_(1.01)
        torch.manual_seed(0)
        seen.append(GRPOTrainer.evaluate(trainer, trainer.train_dataset.select(range(5))))
    stock, shared = seen
    for name in ("eval_loss", "eval_kl", "eval_entropy", "eval_completions/mean_length"):
        assert shared[name] == pytest.approx(stock[name], rel=1e-4), name
    assert stock["eval_kl"] > 1e-4


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
    assert training.prefix.why_not(trainer) is None
    owner = trainer
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    monkeypatch.setattr(owner, name, value, raising=False)
    assert words in (training.prefix.why_not(trainer) or "")


def test_an_unsupported_setting_is_told_once_and_trained_by_trl(
    sharp: str, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ("--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "4", "--max_steps", "1")
    trainer = make_trainer(questions, sharp, tmp_path, *odd)
    assert capsys.readouterr().err.count("every completion encodes its own prompt in the update: --per_device") == 1
    assert trainer.model.config.text_config._attn_implementation == "sdpa"
    trained = train(trainer)
    assert not trained.shared and trained.moved() > 1e-4
    make_trainer(questions, sharp, tmp_path, "--shared_prefix", "false")
    assert "encodes its own prompt" not in capsys.readouterr().err


def check_case(case: str, model: str, questions: Path, out: Path) -> None:
    stock, shared = train_both(questions, model, out, *CASES[case])
    assert shared.shared and not stock.shared
    assert shared.completions == stock.completions and len({len(ids) for ids in stock.completions}) > 5
    assert apart(shared, stock) < 5e-5
    assert stock.moved() > 5e-4
    for one, other in zip(shared.log, stock.log, strict=True):
        for name in {"grad_norm", "entropy", "kl", "clip_ratio/region_mean"} & other.keys():
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("case", ["full", "lora"])
def test_four_steps_end_where_trls_do(case: str, sharp: str, questions: Path, tmp_path: Path) -> None:
    check_case(case, sharp, questions, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["checkpointed", "iterations", "reference", "frozen", "subgroups", "masked", "everything"]
)
def test_four_steps_of_the_other_settings(case: str, sharp: str, questions: Path, tmp_path: Path) -> None:
    check_case(case, sharp, questions, tmp_path)


def test_a_step_with_wrong_positions_ends_elsewhere(
    sharp: str, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.prefix, "pack", shifted)
    stock, shared = train_both(questions, sharp, tmp_path, "--max_steps", "1")
    assert apart(shared, stock) > 1e-2


needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")


@pytest.mark.parametrize(
    "case",
    [
        "iterations",
        pytest.param("everything", marks=pytest.mark.slow),
        pytest.param("lora", marks=pytest.mark.slow),
        pytest.param("spanning", marks=pytest.mark.slow),
        pytest.param("zero2", marks=[pytest.mark.slow, needs_deepspeed]),
        pytest.param("zero3", marks=[pytest.mark.slow, needs_deepspeed]),
    ],
)
def test_four_steps_in_two_processes(case: str, sharp: str, questions: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("prefix_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    words = [str(script), case, str(questions), sharp, str(tmp_path)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["zero_stage"] == int(case.removeprefix("zero") if case.startswith("zero") else 0)
    assert seen["world"] == 2 and seen["shared"] == [False, True] and seen["same_completions"]
    assert seen["apart"] < 5e-5 and seen["moved"] > 5e-4, seen


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
    assert load_model("tiny").model.config.model_type in training.prefix.FAMILIES
