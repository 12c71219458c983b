"""Rewards by name and by dotted path, their weights, TRL's options over them, and what happens when one is at fault."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reward_runs import OPTIONS, logged, reward_trainer

from data_gen.records import read_questions
from rewards import limits_of, select_rewards
from rewards.settings import RewardSettings
from training import grpo
from training.scoring.checked_rewards import RewardError, problem_of
from training.scoring.reward_checks import unpaid_tasks


@pytest.fixture(scope="module")
def questions(traces: Path) -> Path:
    return traces.with_name("questions.jsonl")


def test_an_own_reward_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pack_of_mine"
    package.mkdir()
    (package / "short.py").write_text(
        "def brief(completions, **_):\n    return [1 / len(item) for item in completions]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    acc, brief = select_rewards("acc, pack_of_mine.short.brief", RewardSettings(values=(-1.0, 1.0)))
    assert brief(["ab", "abcd"], task=["yaw", "yaw"]) == [0.5, 0.25]
    assert [item.__name__ for item in (acc, brief)] == ["acc", "brief"]  # type: ignore[attr-defined]
    assert (limits_of(acc), limits_of(brief)) == ((-1.0, 1.0), None)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("acc,no_such_module.mine", "no module 'no_such_module' in"),
        ("reward_runs.mine", r"the module reward_runs \(.*reward_runs.py\) has no 'mine'"),
        ("reward_runs.deeper.mine", "no module 'reward_runs.deeper'"),
        ("reward_runs.NO_FUNCTION", "is of type int; a function is needed"),
        ("acc,.mine", "no dotted path"),
        ("speed", "unknown reward 'speed'"),
        ("", "unknown reward ''"),
        ("reward_runs.hashed,reward_runs.hashed", "named twice"),
        ("acc,rewards.logic", "'rewards.logic' is of type module"),
        ("acc,reward_runs.pair", "would be logged as pair, which is one of ours"),
    ],
)
def test_what_is_no_reward_is_refused_with_what_there_is(names: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        select_rewards(names)
    clash = reason.startswith(("named twice", "would be logged"))
    assert clash or "known: format, loc, acc, logic, pair, or the dotted path" in str(refusal.value)


def test_an_error_inside_an_own_module_is_not_taken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_reward.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_there"):
        select_rewards("broken_reward.mine")


def refused(capsys: pytest.CaptureFixture[str], questions: Path, out: Path, *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        grpo.main(["--data", str(questions), "--out", str(out), "--model", "tiny", *OPTIONS, *words])
    assert stop.value.code == 2
    assert not out.exists()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--rewards", "format,no_such_module.mine"], "known: format, loc, acc, logic, pair, or the dotted path"),
        (["--rewards", "format,acc", "--reward_weights", "1"], "1 weights for the 2 rewards"),
        (["--rewards", "format,acc", "--reward_weights", "0", "0"], "not all of them 0"),
        (["--rewards", "format,acc", "--reward_weights", "1", "nan"], "finite numbers"),
        (["--rewards", "pair"], "pays nothing on pixel, depth: pair applies to mirrored questions only"),
        (["--rewards", "acc,pair", "--reward_weights", "0", "1"], "pays nothing on pixel, depth"),
    ],
)
def test_rewards_that_cannot_work_are_refused_before_anything_is_loaded(
    words: list[str], reason: str, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reason in refused(capsys, questions, tmp_path / "out", *words)


def test_only_single_questions_go_unpaid(questions: Path) -> None:
    asked = read_questions(questions)
    assert unpaid_tasks(["acc", "pair"], [1, 1], asked) == []
    assert unpaid_tasks(["pair"], [1], [item for item in asked if item.pair_id]) == []
    assert unpaid_tasks(["mine.function"], [1], asked) == []  # what an own reward applies to is not known


def test_the_command_line_takes_an_own_reward_from_where_it_is_started(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rewards.py").write_text(
        "def answer_length(completions, task, question_id, **columns):\n"
        "    assert len(completions) == len(task) == len(question_id) == len(columns['images'])\n"
        "    return [len(item[0]['content']) % 7 for item in completions]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    rewards = ["--rewards", "format,my_rewards.answer_length"]
    grpo.main(["--data", str(questions), "--out", "run", "--model", "tiny", *OPTIONS, *rewards])
    assert "rewards/answer_length/mean" in (tmp_path / "run" / "trainer_state.json").read_text()


def one_step(questions: Path, out: Path, *options: str) -> tuple[list[torch.Tensor], dict[str, Any], Any]:
    """Weights after one step, the log, and the trainer."""
    trainer = reward_trainer(questions, out, *options)
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    after = [weight.detach() for weight in trainer.model.parameters()]
    assert not all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert math.isfinite(logged(trainer)["loss"])
    return after, logged(trainer), trainer


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_a_reward_of_weight_0_is_logged_and_changes_nothing(aggregation: str, questions: Path, tmp_path: Path) -> None:
    how = ["--multi_objective_aggregation", aggregation, "--rewards"]
    both = "reward_runs.hashed,reward_runs.rehashed"
    alone, log_alone, _ = one_step(questions, tmp_path, *how, "reward_runs.hashed")
    metered, log, _ = one_step(questions, tmp_path, *how, both, "--reward_weights", "1", "0")
    paid, _, _ = one_step(questions, tmp_path, *how, both, "--reward_weights", "1", "0.5")
    assert all(torch.equal(one, two) for one, two in zip(alone, metered, strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(alone, paid, strict=True))
    assert log["rewards/rehashed/mean"] > 0 and log["rewards/rehashed/std"] > 0
    assert log["reward"] == log_alone["reward"] == pytest.approx(log["rewards/hashed/mean"])


@pytest.mark.parametrize(
    ("option", "value", "attribute", "expected"),
    [
        ("--scale_rewards", "none", "scale_rewards", "none"),
        ("--scale_rewards", "batch", "scale_rewards", "batch"),
        ("--multi_objective_aggregation", "normalize_then_sum", "multi_objective_aggregation", "normalize_then_sum"),
        ("--loss_type", "dr_grpo", "loss_type", "dr_grpo"),
        ("--loss_type", "dapo", "loss_type", "dapo"),
        ("--importance_sampling_level", "sequence", "importance_sampling_level", "sequence"),
        ("--beta", "0", "beta", 0.0),
    ],
)
def test_trls_options_over_rewards_are_taken(
    option: str, value: str, attribute: str, expected: Any, questions: Path, tmp_path: Path
) -> None:
    rewards = ["--rewards", "format,reward_runs.hashed,reward_runs.rehashed", "--reward_weights", "1", "2", "0.5"]
    _, log, trainer = one_step(questions, tmp_path, *rewards, option, value)
    assert getattr(trainer, attribute) == expected
    assert trainer.reward_weights.tolist() == [1.0, 2.0, 0.5]
    assert log["reward"] == pytest.approx(2 * log["rewards/hashed/mean"] + 0.5 * log["rewards/rehashed/mean"])
    assert ("kl" in log) is (option != "--beta")


def test_identical_completions_teach_nothing_and_break_nothing(questions: Path, tmp_path: Path) -> None:
    trainer = reward_trainer(questions, tmp_path, "--rewards", "reward_runs.hashed", "--top_k", "1", "--beta", "0")
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    assert all(torch.equal(one, two) for one, two in zip(before, trainer.model.parameters(), strict=True))
    log = logged(trainer)
    assert log["frac_reward_zero_std"] == log["rewards/hashed/no_spread"] == 1.0
    assert log["loss"] == 0.0


@pytest.fixture(scope="module")
def trainer(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer with two rewards, one of ours and one of the user's."""
    return reward_trainer(questions, tmp_path_factory.mktemp("faults"), "--rewards", "acc,reward_runs.hashed")


def raises(completions: list[Any], question_id: list[str], **_: Any) -> list[float]:
    if any(name.startswith("pixel") for name in question_id):
        raise KeyError("no such column")
    return [0.0 for _ in completions]


def raises_on_all_alone(completions: list[Any], **_: Any) -> list[float]:
    raise RuntimeError(f"{len(completions)} completions")


def second(value: object) -> Callable[..., list[Any]]:
    """A reward that gives `value` to the first completion of the second question."""
    return lambda completions, **_: [value if place == 4 else 1.0 for place, _ in enumerate(completions)]


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (raises, "reward hashed raised KeyError: 'no such column', at question pixel-0-0, completion '"),
        (raises_on_all_alone, "reward hashed raised RuntimeError: 8 completions, at one of 8 questions"),
        (second(math.nan), "reward hashed: a finite number is needed, got nan, at question pixel-0-0, completion '"),
        (second(-math.inf), "a finite number is needed, got -inf, at question pixel-0-0"),
        (second(10**400), "a finite number is needed, got 1000"),
        (second(1e39), "a finite number is needed, got 1e+39"),  # no float32
        (second("1"), "a number or None is needed, got '1' of type str, at question pixel-0-0"),
        (second([1.0]), "a number or None is needed, got [1.0] of type list, at question pixel-0-0"),
        (second(torch.tensor(1.0)), "got tensor(1.) of type Tensor, at question pixel-0-0"),
        (
            lambda completions, **_: [1.0],
            "reward hashed: 1 values for 8 completions, of questions depth-0-0 to pixel-0-0",
        ),
        (lambda completions, **_: 1.0, "a list of a number or None per completion is needed, got float"),
        (lambda completions, **_: None, "a list of a number or None per completion is needed, got NoneType"),
        (lambda completions, **_: "11111111", "a list of a number or None per completion is needed, got str"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_fault_names_the_reward_the_question_and_the_value(
    reward: Callable[..., Any], reason: str, trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "reward_funcs", [trainer.reward_funcs[0], reward])
    with pytest.raises(RewardError) as fault:
        trainer._generate_and_score_completions(two_questions(trainer))
    assert reason in str(fault.value)
    assert isinstance(fault.value.__cause__, KeyError) is (reward is raises)


def two_questions(trainer: Any) -> list[dict[str, Any]]:
    """Four completions each are asked for of a depth and of a pixel question."""
    of_id = {row["question_id"]: row for row in trainer.train_dataset}
    return [of_id["depth-0-0"]] * 4 + [of_id["pixel-0-0"]] * 4


@pytest.mark.parametrize("value", [1.5, -0.1, 1.00001])
def test_our_rewards_stay_within_their_values(value: float, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewards.acc._score", lambda *_: value)
    with pytest.raises(RewardError, match=f"reward acc: {value} lies outside its range 0.0 to 1.0, at question depth"):
        trainer._generate_and_score_completions(two_questions(trainer))


def test_a_row_without_any_paid_reward_is_a_fault(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(completions: list[Any], **_: Any) -> list[None]:
        return [None for _ in completions]

    rows = two_questions(trainer)
    monkeypatch.setattr(trainer, "reward_funcs", [nothing, trainer.reward_funcs[1]])
    trainer._generate_and_score_completions(rows)
    reason = "every paid reward is None for question depth-0-0 of the task depth"
    with monkeypatch.context() as weighted, pytest.raises(RewardError, match=reason):
        weighted.setattr(trainer, "reward_weights", torch.tensor([1.0, 0.0]))  # the other only meters
        trainer._generate_and_score_completions(rows)
    monkeypatch.setattr(trainer, "reward_funcs", [nothing, nothing])
    with pytest.raises(RewardError, match=reason):
        trainer._generate_and_score_completions(rows)


def test_a_fault_ends_the_training_and_leaves_the_rewards_as_they_were(questions: Path, tmp_path: Path) -> None:
    trainer = reward_trainer(questions, tmp_path, "--rewards", "reward_runs.hashed")
    functions = [raises_on_all_alone]
    trainer.reward_funcs = functions
    with pytest.raises(RewardError, match="reward hashed raised RuntimeError"):
        trainer.train()
    assert trainer.reward_funcs is functions and trainer.state.global_step == 0


@pytest.mark.parametrize(
    ("value", "limits"),
    [(None, (0, 1)), (0, (0, 1)), (1.0 + 1e-9, (0, 1)), (True, (0, 1)), (np.float32(0.5), (0, 1)), (-7e30, None)],
)
def test_what_a_reward_may_be(value: object, limits: tuple[float, float] | None) -> None:
    assert problem_of(value, limits) is None
