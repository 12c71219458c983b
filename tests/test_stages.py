"""Stages of a GRPO run: what the file may say, what each stage pays, and where a resumed run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_training import GRPO, fails, grpo_trainer, varied

from data_gen.command_line import UsageError
from training import grpo
from training.arguments import changed_options, save_config
from training.grpo_arguments import parse_grpo
from training.schedule.stage_file import read_stages

TWO = """
- {name: first, rewards: [format, acc], weights: [1, 0], steps: 1, tasks: [pixel]}
- {name: second, rewards: [loc, acc, logic], steps: 2, tasks: [distance, yaw]}
"""


def stage_file(folder: Path, text: str = TWO) -> Path:
    path = folder / "stages.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "must hold a list of stages"),
        ("a: 1", "must hold a list of stages"),
        ("- [", "is no YAML"),
        ("- 5", "stage 1: must hold `key: value` lines"),
        (
            "- {name: a, rewards: [acc], steps: 1, reward: x}",
            r"stage 1 \(a\): unknown key 'reward'; known: name",
        ),
        ("- {name: a, steps: 1}", r"stage 1 \(a\): rewards missing"),
        ("- {name: a, rewards: acc, steps: 1}", "rewards must be a list of names"),
        ("- {name: a, rewards: [], steps: 1}", "rewards must be a list of names"),
        ("- {name: a, rewards: [acc, acc], steps: 1}", "rewards names one twice"),
        ("- {name: a, rewards: [acc], weights: [1, 2], steps: 1}", "2 weights for 1 rewards"),
        ("- {name: a, rewards: [acc], weights: [.nan], steps: 1}", "weights must be a list of numbers"),
        ("- {name: a, rewards: [acc], weights: [0], steps: 1}", "all weights are 0"),
        ("- {name: a, rewards: [acc], steps: 0}", "steps must be a whole number of at least 1, got 0"),
        ("- {name: a, rewards: [acc], steps: true}", "steps must be a whole number"),
        ("- {name: a, rewards: [acc], steps: 2.5}", "steps must be a whole number"),
        ("- {name: a, rewards: [acc], steps: 1, tasks: [speed]}", "unknown task 'speed'; known: yaw, pixel"),
        ("- {name: a, rewards: [acc], steps: 1, tasks: []}", "tasks must be a list of names"),
        ("- {name: a, rewards: [acc], steps: 1, difficulty: 0.5}", "difficulty must be two pass rates"),
        ("- {name: a, rewards: [acc], steps: 1, difficulty: [0.9, 0.1]}", "0 <= low <= high <= 1"),
        (
            "- {name: a, rewards: [acc], steps: 1}\n- {name: a, rewards: [acc], steps: 1}",
            "two stages have the same name",
        ),
    ],
)
def test_a_stage_file_that_says_nothing_sensible_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as error:
        read_stages(stage_file(tmp_path, text))
    assert "stages.yaml" in str(error.value)


def test_stages_set_rewards_and_steps_and_refuse_what_contradicts(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.run.load_model", lambda *_, **__: pytest.fail("a model was loaded"))
    path = stage_file(tmp_path)
    words = ["--data", str(traces.with_name("questions.jsonl")), "--out", str(tmp_path / "run"), *GRPO]
    told = parse_grpo([*words, "--stages", str(path)])
    assert told.rewards.rewards == "format,acc,loc,logic" and told.config.max_steps == 3
    assert parse_grpo([*words, "--stages", str(path), "--max_steps", "3"]).config.max_steps == 3
    one = "- {{name: only, rewards: [{}], steps: {}, tasks: [{}]}}"
    for text, options, reason in (
        (TWO, ["--max_steps", "4"], "makes 3 steps, --max_steps says 4"),
        (TWO, ["--reward_weights", "1", "1"], "drop --reward_weights"),
        (TWO, ["--ignore_data_skip", "true"], "drop --ignore_data_skip"),
        (one.format("speed", 1, "pixel"), [], "stage 1 (only): unknown reward 'speed'; known: format"),
        (one.format("acc", 3, "pixel"), ["--num_iterations", "2"], "stage 1 (only): 3 steps end within a generation "
         "batch, which serves 2 steps (steps_per_generation 1 x num_iterations 2 over gradient_accumulation_steps 1); "
         "nearest that fit: 2 or 4"),
        (one.format("acc", 1, "front_behind"), ["--limit", "2"], "stage 1 (only): there are no questions of front_"),
        (one.format("pair", 1, "pixel"), [], "pay nothing on pixel"),
        ("", ["--stages", str(tmp_path / "none.yaml")], "cannot be read"),
    ):  # fmt: skip
        message = fails(capsys, grpo.main, [*words, "--stages", str(stage_file(tmp_path, text)), *options])
        assert reason in message
    assert not (tmp_path / "run").exists()


def test_a_changed_stage_file_is_another_run(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(traces), "--out", str(tmp_path), *GRPO, "--stages", str(stage_file(tmp_path))]
    save_config(tmp_path, parse_grpo(words).parts)
    stage_file(tmp_path, TWO + "# a remark\n")
    assert changed_options(tmp_path, parse_grpo(words).parts) == []
    stage_file(tmp_path, TWO.replace("weights: [1, 0]", "weights: [1, 1]"))
    (change,) = changed_options(tmp_path, parse_grpo(words).parts)
    assert change.startswith("stages_sha256: ")
    assert "restore it" in fails(capsys, parse_grpo, ["--config", str(tmp_path / "config.yaml")])


Call = tuple[str, tuple[str, ...], int]  # name of the reward, questions of the batch, optimiser steps done


class Watched:
    """A reward with spread that notes which rows it is asked about, and when."""

    def __init__(self, name: str, seen: list[Call]) -> None:
        self.__name__, self.seen = name, seen

    def __call__(self, completions: list[Any], question_id: list[str], trainer_state: Any, **_: Any) -> list[float]:
        self.seen.append((self.__name__, tuple(dict.fromkeys(question_id)), trainer_state.global_step))
        return varied(completions)


def watched_trainer(questions: Path, out: Path, *options: str) -> tuple[Any, list[Call]]:
    trainer = grpo_trainer(questions, out, *options, reward=None)
    seen: list[Call] = []
    trainer.reward_funcs = [Watched(name, seen) for name in trainer.reward_func_names]
    return trainer, seen


def test_each_stage_pays_its_own_rewards_on_its_own_questions(traces: Path, tmp_path: Path) -> None:
    questions = traces.with_name("questions.jsonl")
    trainer, seen = watched_trainer(questions, tmp_path, "--stages", str(stage_file(tmp_path)))
    trainer.train()
    assert [name for name, *_ in seen] == ["format", "acc", *["loc", "acc", "logic"] * 2]
    assert all(name.startswith("pixel") for _, names, _ in seen[:2] for name in names)
    assert all(name.startswith(("distance", "yaw")) for _, names, _ in seen[2:] for name in names)
    first, second, third = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["stage"] for entry in (first, second, third)] == [1, 2, 2]
    assert third["stage_name"] == "second"
    assert "logic/verified" not in first and "logic/verified" in second
    # The meter is logged and not paid: the rewards of all functions are the same in this test.
    assert first["rewards/acc/mean"] == first["rewards/format/mean"] == first["reward"]
    assert first["rewards/loc/mean"] is None and second["rewards/format/mean"] is None
    assert second["reward"] == pytest.approx(3 * second["rewards/loc/mean"])
    row = {"stage": 0}
    assert [trainer.applies(name, row) for name in ("format", "acc", "loc", "logic")] == [True, True, False, False]


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_resumed_within_a_generation_batch_goes_on_in_its_stage(traces: Path, tmp_path: Path, stop: int) -> None:
    text = TWO.replace("steps: 1", "steps: 2")
    options = ["--stages", str(stage_file(tmp_path, text)), "--num_iterations", "2", "--save_steps", "1",
               "--save_total_limit", "9", "--max_completion_length", "4"]  # fmt: skip
    questions = traces.with_name("questions.jsonl")
    whole, seen = watched_trainer(questions, tmp_path / "run", *options)
    whole.train()
    batches = [(names, step) for name, names, step in seen if name == "acc"]
    (first, _), (second, _) = batches
    assert [step for _, step in batches] == [0, 2] and not set(first) & set(second)
    resumed, seen_again = watched_trainer(questions, tmp_path / "run", *options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{stop}"))
    # The batch that was under way is generated again, and not a step longer than it lasted.
    again = [(names, step) for name, names, step in seen_again if name == "acc"]
    assert again == ([(first, 1), (second, 2)] if stop == 1 else [(second, 3)])
    entries = [entry for entry in resumed.state.log_history if "loss" in entry]
    assert [entry["stage"] for entry in entries] == [1, 1, 2, 2]
