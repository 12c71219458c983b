"""Training with the shared prefix ends where TRL's own path ends, in one process and in two."""

from __future__ import annotations

import json
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from prefix_processes import CASES, GROUP, apart, make_trainer, save_sharp, train, train_both
from processes import torchrun
from test_prefix import shifted
from trl import GRPOTrainer

import training.update.prefix
from training.cpu_attention import NAME as CPU_ATTENTION


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_sharp(tmp_path_factory.mktemp("sharp"))


@pytest.fixture(scope="module")
def questions(traces: Path) -> Path:
    return traces.with_name("questions.jsonl")


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
    monkeypatch.setattr(training.update.prefix, "blocks_kept_together", lambda _: nullcontext())  # TRL's own shuffling
    trainer = make_trainer(questions, sharp, tmp_path, "--max_steps", "1")
    with pytest.raises(ValueError, match=r"different (prompts|pictures)"):
        train(trainer)


def test_an_unsupported_setting_is_told_once_and_trained_by_trl(
    sharp: str, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ("--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "4", "--max_steps", "1")
    trainer = make_trainer(questions, sharp, tmp_path, *odd)
    assert capsys.readouterr().err.count("every completion encodes its own prompt in the update: --per_device") == 1
    assert trainer.model.config.text_config._attn_implementation == CPU_ATTENTION
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
    monkeypatch.setattr(training.update.prefix, "pack", shifted)
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
    script = str(Path(__file__).with_name("prefix_processes.py"))
    done = torchrun(script, case, str(questions), sharp, str(tmp_path), timeout_s=500)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["zero_stage"] == int(case.removeprefix("zero") if case.startswith("zero") else 0)
    assert seen["world"] == 2 and seen["shared"] == [False, True] and seen["same_completions"]
    assert seen["apart"] < 5e-5 and seen["moved"] > 5e-4, seen
