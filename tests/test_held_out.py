"""The held-out score of a training: the evaluator's own number, without a trace in what is learned."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from reward_runs import OPTIONS, logged, reward_trainer
from small_questions import make_questions, write_small_set

from data_gen.records import Trace, question_to_row, read_questions, trace_to_row, write_rows
from eval import surds
from rewards.grading import TASKS
from training import grpo, sft
from training.scoring.held_out import Graded, held_out_figures
from training.scoring.held_out_questions import first_units, leaks

ANSWER_TOKENS = "96"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """questions.jsonl over four images."""
    return write_small_set(tmp_path_factory.mktemp("held-out"), images=4)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """questions.jsonl over four other images."""
    return write_small_set(tmp_path_factory.mktemp("trained"), images=4, seed=1)


@pytest.fixture(scope="module")
def learned(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that knows some of the answers by heart."""
    traces, out = small.with_name("cot.jsonl"), tmp_path_factory.mktemp("sft") / "run"
    write_rows(traces, (trace_to_row(Trace(item, "So.", "test")) for item in read_questions(small)))
    sft.main([
        "--data", str(traces), "--out", str(out), "--model", "tiny", "--gradient_checkpointing", "false",
        "--gradient_accumulation_steps", "1", "--per_device_train_batch_size", "8", "--learning_rate", "4e-3",
        "--max_steps", "70", "--save_strategy", "no",
    ])  # fmt: skip
    return out


def test_the_score_is_the_evaluators(small: Path, learned: Path, tmp_path: Path) -> None:
    options = [
        "--max_completion_length", ANSWER_TOKENS, "--learning_rate", "1e-5", "--save_strategy", "steps", "--rewards",
        "format,reward_runs.hashed", "--per_device_eval_batch_size", "3",
    ]  # fmt: skip
    asked = read_questions(small)
    trainer = reward_trainer(small, tmp_path / "run", *options, held_out=asked, model=str(learned))
    trainer.train()
    checkpoint = tmp_path / "run" / "checkpoint-1"
    surds.main(["--ckpt", str(checkpoint), "--data", str(small), "--out", str(tmp_path / "eval"), "--max-new-tokens",
                ANSWER_TOKENS])  # fmt: skip
    summary = json.loads((tmp_path / "eval" / "summary.json").read_text())
    held_out = logged(trainer)
    assert held_out["held_out/score"] == summary["score"]
    assert set(summary["tasks"]) == set(TASKS)
    for task, figures in summary["tasks"].items():
        assert held_out[f"held_out/{task}"] == figures["score"], task
        assert held_out[f"held_out/{task}/valid"] == figures["valid_rate"], task
    scores = [figures["score"] for figures in summary["tasks"].values()]
    assert min(scores) < 0.5 <= max(scores)  # neither an untrained model nor a perfect one would show much


def weights_of(trainer: Any) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in trainer.model.parameters()]


def test_training_is_the_same_with_and_without_it(small: Path, other: Path, tmp_path: Path) -> None:
    options = ["--max_steps", "3", "--rewards", "reward_runs.hashed", "--logging_steps", "2"]
    plain = reward_trainer(other, tmp_path / "plain", *options)
    plain.train()
    asked = read_questions(small)
    scored = reward_trainer(other, tmp_path / "scored", *options, "--eval_steps", "2", held_out=asked)
    before = weights_of(scored)
    config = scored.generation_config
    scored.train()
    assert all(torch.equal(one, two) for one, two in zip(weights_of(plain), weights_of(scored), strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(before, weights_of(scored), strict=True))
    assert scored.generation_config is config and config.do_sample and scored.model.training
    steps = [entry["step"] for entry in scored.state.log_history if "held_out/score" in entry]
    assert steps == [2, 3]  # every second, and the last
    training = [{name: entry[name] for name in entry if "time" not in name and "per_second" not in name}
                for entry in scored.state.log_history if "held_out/score" not in entry]  # fmt: skip
    without = [{name: entry[name] for name in entry if "time" not in name and "per_second" not in name}
               for entry in plain.state.log_history]  # fmt: skip
    assert training == without
    names = [set(entry) for entry in scored.state.log_history if "held_out/score" in entry]
    of_tasks = {f"held_out/{task}{end}" for task in TASKS for end in ("", "/valid")}
    assert names == [{"held_out/score", *of_tasks, "epoch", "step"}] * 2


def test_the_best_checkpoint_is_loaded_at_the_end(small: Path, learned: Path, tmp_path: Path) -> None:
    """A learning rate that destroys the model: the best score is that of the first step."""
    options = [
        "--max_steps", "3", "--rewards", "reward_runs.hashed", "--eval_steps", "1", "--learning_rate", "3e-2",
        "--warmup_steps", "2", "--save_strategy", "best", "--load_best_model_at_end", "--max_completion_length", "64",
    ]  # fmt: skip
    asked = [item for item in read_questions(small) if item.task in ("depth", "pixel")]
    trainer = reward_trainer(small, tmp_path, *options, held_out=asked, model=str(learned))
    trainer.train()
    scores = {e["step"]: e["held_out/score"] for e in trainer.state.log_history if "held_out/score" in e}
    assert scores[1] > scores[3]
    assert trainer.state.best_global_step == 1 and trainer.state.best_metric == scores[1]
    assert trainer.evaluate()["eval_held_out/score"] == scores[1]
    assert not trainer._pending_metrics  # which would go into the next line about training


def test_a_pair_counts_only_whole_and_the_score_is_the_mean_of_tasks() -> None:
    asked = [item for item in make_questions(images=4) if item.task in ("distance", "pixel")]
    rows = [{"task": item.task, "pair_id": item.pair_id, "question_id": item.id} for item in asked]
    grades = [Graded(place, 0.5 if item.task == "pixel" else 1.0, True) for place, item in enumerate(asked)]
    wrong = next(place for place, item in enumerate(asked) if item.task == "distance")
    grades[wrong] = Graded(wrong, 0.0, False)
    distances = sum(item.task == "distance" for item in asked)
    figures = held_out_figures(rows, grades)
    assert figures["held_out/distance"] == 1 - 2 / distances
    assert figures["held_out/distance/valid"] == 1 - 1 / distances
    assert figures["held_out/pixel"] == 0.5
    assert figures["held_out/score"] == (0.5 + 1 - 2 / distances) / 2
    assert len(figures) == 5  # nothing of the tasks that did not come


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_a_limit_takes_the_units_that_the_evaluator_takes(limit: int | None) -> None:
    asked = make_questions(images=12)
    assert first_units(asked, limit) == surds.chosen_questions(asked, limit)


def test_what_is_trained_on_is_not_held_out(tmp_path: Path) -> None:
    ours, theirs = make_questions(images=2), make_questions(images=2, seed=1)
    one, two = tmp_path / "one", tmp_path / "two"
    assert leaks(ours, one, theirs, two) == []
    assert leaks(ours, one, theirs, one) == [f"image {(one / name).resolve()}" for name in ("000.png", "001.png")]
    named = [replace(item, scene="scene-0003") for item in ours]
    assert leaks(named, one, [replace(item, scene="scene-0004") for item in theirs], one) == []
    assert leaks(named, one, [*theirs, replace(theirs[0], scene="scene-0003")], two) == ["scene scene-0003"]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        grpo.main(["--model", "tiny", *OPTIONS, *words])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_bad_held_out_questions_are_refused_before_anything_is_written(
    small: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--data", str(other), "--out", str(tmp_path / "run")]
    leak = refused(capsys, *run, "--held_out", str(other))
    assert "is not held out" in leak and "000.png" in leak and "val split" in leak
    assert "no file at" in refused(capsys, *run, "--held_out", str(tmp_path / "none.jsonl"))
    assert "at least 1" in refused(capsys, *run, "--held_out", str(small), "--held_out_limit", "0")
    answers = ["--num_generations_eval", "2"]
    assert "answered once" in refused(capsys, *run, "--held_out", str(small), *answers)
    assert "lies in the folder of the run" in refused(
        capsys, *run[:2], "--out", str(small.parent), "--held_out", str(small)
    )
    assert "without --held_out" in refused(capsys, *run, "--held_out_limit", "3")
    assert "give --held_out" in refused(capsys, *run, "--eval_strategy", "steps")
    assert "give --held_out" in refused(capsys, *run, "--load_best_model_at_end", "--save_strategy", "best")
    halves = tmp_path / "questions.jsonl"
    shutil.copy(small.with_name("manifest.json"), tmp_path)
    for image in small.parent.glob("*.png"):
        shutil.copy(image, tmp_path)
    write_rows(halves, [question_to_row(item) for item in read_questions(small) if item.variant == 0])
    assert "lacks the other half" in refused(capsys, *run, "--held_out", str(halves))
    assert not (tmp_path / "run").exists()


def test_the_command_line_scores_the_held_out_questions(
    small: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--data", str(other), "--out", str(tmp_path), "--held_out", str(small), "--held_out_limit", "1"]
    grpo.main(["--model", "tiny", *OPTIONS, *run, "--rewards", "format"])
    log = json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in log if "held_out/score" in entry] == [1]
    config = (tmp_path / "config.yaml").read_text()
    assert "eval_strategy: steps" in config and "eval_steps: 100" in config
    lines = [line for line in capsys.readouterr().out.splitlines() if "step 1: " in line]
    assert any("step 1: held-out score 0" in line for line in lines)
    assert any("reward " in line and "format " in line and "accuracy" not in line for line in lines)
