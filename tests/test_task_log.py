"""What GRPO logs per task and per reward: over whole groups, all processes and all batches of a log line alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import torchrun
from reward_runs import logged, reward_trainer
from sharp_model import sharp_tiny
from two_reward_processes import HELD_OUT, fingerprinted

from data_gen.records import read_questions
from rewards.grading import TASKS
from training.scoring.task_log import Sampled, figures_of, has_spread

NAN = float("nan")
NAMES = ["acc", "pair"]


def group(task: str, scores: Sequence[float], tokens: Sequence[int] = (5, 5)) -> list[Sampled]:
    return [Sampled(task, score, length) for score, length in zip(scores, tokens, strict=True)]


def test_figures_are_those_of_each_task_and_leave_out_what_is_not_there() -> None:
    samples = [*group("pixel", [0.3, 0.0], [5, 9]), *group("yaw", [1.0, 1.0]), *group("pixel", [0.5, 0.5])]
    rewards_NR = torch.tensor([[1.0, NAN], [0.0, NAN], [1.0, 0.5], [1.0, 1.0], [1.0, NAN], [1.0, NAN]])
    assert figures_of(samples, rewards_NR, torch.tensor([1.0, 1.0]), NAMES, 2) == {
        "rewards/acc/yaw": [1.0, 1.0], "rewards/acc/pixel": [1.0, 0.0, 1.0, 1.0], "rewards/pair/yaw": [0.5, 1.0],
        "accuracy/yaw": [1.0, 1.0], "accuracy/pixel": pytest.approx([0.3, 0.0, 0.5, 0.5]),
        "completions/mean_length/yaw": [5.0, 5.0], "completions/mean_length/pixel": [5.0, 9.0, 5.0, 5.0],
        "spread/yaw": [1.0], "spread/pixel": [1.0, 0.0],
        "rewards/acc/no_spread": [0.0, 1.0, 1.0], "rewards/pair/no_spread": [0.0],
    }  # fmt: skip


def test_only_what_is_paid_gives_a_group_spread() -> None:
    samples = [*group("yaw", [1.0, 0.0]), *group("depth", [1.0, 0.0])]
    rewards_NR = torch.tensor([[1.0, 0.5], [0.0, 1.5], [1.0, 0.0], [0.0, 1.0]])
    weights = {(1.0, 0.0): (1.0, 1.0), (0.0, 0.0): (0.0, 0.0), (1.0, 1.0): (0.0, 0.0)}
    for weight, (yaw, depth) in weights.items():  # weighed alike, the two rewards cancel out
        figures = figures_of(samples, rewards_NR, torch.tensor(weight), NAMES, 2)
        assert (figures["spread/yaw"], figures["spread/depth"]) == ([yaw], [depth])
        assert figures["rewards/acc/no_spread"] == figures["rewards/pair/no_spread"] == [0.0, 0.0]


def test_spread_is_more_than_rounding() -> None:
    values_NG = torch.tensor([[0.1 + 0.2, 0.3], [0.3, 0.31], [NAN, 0.3], [NAN, NAN], [1.0, NAN]])
    assert has_spread(values_NG).tolist() == [False, True, False, False, False]
    assert has_spread(torch.empty(0, 4)).tolist() == []


def test_every_completion_of_a_log_line_counts_the_same(traces: Path, tmp_path: Path) -> None:
    """Two steps in one line of the log: its mean over a task is not the mean of the two batches' means."""
    rewards = ["--rewards", "reward_runs.hashed,reward_runs.of_pixels", "--reward_weights", "1", "0"]
    steps = ["--max_steps", "4", "--per_device_train_batch_size", "8", "--logging_steps"]
    questions = traces.with_name("questions.jsonl")
    each, all_four = (reward_trainer(questions, tmp_path / n, *rewards, *steps, n) for n in ("1", "4"))
    seen: dict[str, list[float]] = {}

    def watch(*args: Any) -> torch.Tensor:
        values = compute(*args)
        for row, value in zip(args[0], values[:, 0].tolist(), strict=True):
            seen.setdefault(row["task"], []).append(value)
        return values

    compute, all_four._calculate_rewards = all_four._calculate_rewards, watch
    each.train()
    all_four.train()
    log = logged(all_four)
    for task, values in seen.items():
        assert log[f"rewards/hashed/{task}"] == pytest.approx(sum(values) / len(values))
    assert {name.split("/")[1] for name in log if name.startswith("accuracy/")} == set(seen)
    means: dict[str, list[float]] = {}
    for entry in each.state.log_history:
        for task in seen:
            if f"rewards/hashed/{task}" in entry:
                means.setdefault(task, []).append(entry[f"rewards/hashed/{task}"])
    assert any(sum(of) / len(of) != pytest.approx(log[f"rewards/hashed/{task}"]) for task, of in means.items())
    assert not any(value != value or value is None for value in log.values())  # nothing is NaN
    kinds = ("rewards/hashed", "accuracy", "completions/mean_length", "spread")
    for entry in each.state.log_history[:-1]:
        there = {task for task in TASKS if f"accuracy/{task}" in entry}
        assert there and all(f"{kind}/{task}" in entry for kind in kinds for task in there)
        assert ("rewards/of_pixels/pixel" in entry) is ("pixel" in there) is ("rewards/of_pixels/no_spread" in entry)
        assert not any(f"rewards/of_pixels/{task}" in entry for task in set(TASKS) - {"pixel"})


def test_two_processes_log_the_same_score_the_same_and_stop_together(traces: Path, tmp_path: Path) -> None:
    questions, script = traces.with_name("questions.jsonl"), Path(__file__).with_name("two_reward_processes.py")
    (tmp_path / "here.py").write_text(
        "def length(completions, **_):\n    return [len(item[0]['content']) for item in completions]"
    )
    loaded, model = sharp_tiny(), tmp_path / "model"  # whose answers differ between questions
    loaded.model.save_pretrained(model)
    loaded.processor.save_pretrained(model)
    done = torchrun(str(script), str(questions), str(model), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"process-{rank}.json").read_text()) for rank in (0, 1))
    assert (first["world"], second["world"]) == (2, 2)
    assert first["log"] == second["log"]
    assert {"rewards/length/mean", "rewards/length/no_spread", "held_out/score"} <= set(first["log"])
    assert first["fault"] == second["fault"]
    assert first["fault"].startswith("reward hashed raised LookupError: only in process 1, at question ")
    alone = reward_trainer(questions, tmp_path / "one", held_out=read_questions(questions)[:HELD_OUT], model=str(model))
    assert first["graded"] == second["graded"] == fingerprinted(alone)
    assert len(first["graded"]) == HELD_OUT and len({score for _, score in first["graded"]}) > 1
