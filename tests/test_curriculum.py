"""Pass rates: measured once by the model itself, kept with the run, and what the order of the questions goes by."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from small_questions import perfect_output
from test_training import GRPO, fails, grpo_trainer, log_of

import training.rollouts.sampling
from data_gen.command_line import UsageError
from data_gen.files import write_whole
from data_gen.prompts import prompt_of
from data_gen.records import Question, read_questions
from rewards.boxes import CoordinateFrame
from training import grpo
from training.schedule.curriculum import read_pass_rates, shares, spread_of, write_pass_rates

OPTIONS = {"model": "tiny", "num_generations": 4}
CURRICULUM = ["--curriculum", "pass-rate", "--max_steps", "2", "--frame", "original", "--save_strategy", "no",
              "--max_completion_length", "4"]  # fmt: skip


@pytest.mark.parametrize(("count", "processes", "size"), [(10, 2, 3), (1, 2, 2), (12, 2, 3), (5, 1, 4)])
def test_every_place_is_dealt_in_equally_many_full_lists(count: int, processes: int, size: int) -> None:
    dealt = [list(shares(count, processes, process, size)) for process in range(processes)]
    assert len({len(of_process) for of_process in dealt}) == 1
    assert all(len(places) == size for of_process in dealt for places in of_process)
    assert {place for of_process in dealt for places in of_process for place in places} == set(range(count))
    assert sum(len(places) for of_process in dealt for places in of_process) < count + processes * size


def test_rates_are_read_again_only_for_the_same_questions_and_options(tmp_path: Path) -> None:
    path, rates = tmp_path / "pass_rates.jsonl", {"a": 0.25, "b": 1.0, "c": 0.0, "d": 0.0}
    assert read_pass_rates(path, list(rates), OPTIONS) is None
    write_pass_rates(path, rates, OPTIONS)
    assert read_pass_rates(path, list(rates), OPTIONS) == rates
    assert spread_of(rates) == "questions never solved: 2, sometimes: 1, always: 1"
    with pytest.raises(UsageError, match="about 4 other questions than the 3 of --data"):
        read_pass_rates(path, ["a", "b", "c"], OPTIONS)
    with pytest.raises(UsageError, match=r"other options \(num_generations: 4 -> 8\); start anew with --overwrite"):
        read_pass_rates(path, list(rates), {**OPTIONS, "num_generations": 8})
    for broken in ("", "{", '{"options": {}}\n{"question_id": "a"}'):
        path.write_text(broken)
        with pytest.raises(UsageError, match="holds no pass rates"):
            read_pass_rates(path, list(rates), OPTIONS)


def rate_of(question: Question) -> float:
    """A pass rate for each question, the same for all of its task and far from the order of the file."""
    return {"yaw": 0.5, "pixel": 0.25, "depth": 1.0, "distance": 0.0}.get(question.task, 0.75)


def answering(questions: list[Question], asked: Counter[str]) -> Callable[[Any], Any]:
    """Stands for generation by a model with known pass rates: right for that share of a question's completions."""
    by_text: dict[str, list[Question]] = {}

    def generate(prompts: list[Any]) -> Any:
        completions = []
        for prompt in prompts:
            image, text = prompt[-1]["content"]
            (question,) = [item for item in by_text[text["text"]] if str(image["image"]).endswith(item.image)]
            right = asked[question.id] < 4 * rate_of(question)
            asked[question.id] += 1
            completions.append([{"role": "assistant", "content": perfect_output(question) if right else "no idea"}])
        return None, None, None, completions

    for item in questions:
        by_text.setdefault(prompt_of(item, CoordinateFrame("original")), []).append(item)
    return generate


def trained(path: Path, out: Path, *options: str, known: bool = True) -> tuple[Any, Counter[str]]:
    """A trained run whose pass rates are known, and how often each question was asked to measure them."""
    trainer = grpo_trainer(path, out, *CURRICULUM, *options)
    asked: Counter[str] = Counter()
    if known:
        generate, known_model = trainer._generate, answering(read_questions(path), asked)

        def either(prompts: list[Any]) -> Any:
            return generate(prompts) if (out / "pass_rates.jsonl").exists() else known_model(prompts)

        trainer._generate = either
    trainer.train()
    return trainer, asked


def names_of(trainer: Any) -> list[str]:
    return [trainer.asked[place].question_id for place in trainer.order]


def test_questions_come_from_easy_to_hard_and_are_measured_once(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = traces.with_name("questions.jsonl")
    questions = {item.id: item for item in read_questions(path)}
    first, asked = trained(path, tmp_path)
    assert asked == dict.fromkeys(questions, 4)
    rates = [rate_of(questions[name]) for name in names_of(first)]
    assert len(rates) == len(questions) and rates == sorted(rates, reverse=True) and rates[0] == 1.0
    pair_ids = [questions[name].pair_id for name in names_of(first)]
    assert sum(a is not None and a == b for a, b in pairwise(pair_ids)) == len(set(pair_ids) - {None})
    told = capsys.readouterr().out
    assert f"measuring the pass rate of {len(questions)} questions: {4 * len(questions)} completions" in told
    assert "questions never solved: " in told
    # A second start of the same run measures nothing, has the same order and trains the same.
    again, asked_again = trained(path, tmp_path)
    assert not asked_again and names_of(again) == names_of(first)
    for (name, weight), (_, other) in zip(first.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert torch.equal(weight, other), name
    assert first.state.num_input_tokens_seen == again.state.num_input_tokens_seen
    assert [e["num_tokens"] for e in first.state.log_history if "loss" in e] == [
        e["num_tokens"] for e in again.state.log_history if "loss" in e
    ]


def test_a_real_model_is_measured_by_its_own_generation(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rates = traces.with_name("questions.jsonl"), tmp_path / "pass_rates.jsonl"
    monkeypatch.setattr(training.rollouts.sampling, "count_tokens", lambda *_: 3 if rates.exists() else 1000)
    trainer, _ = trained(path, tmp_path, "--limit", "6", "--rewards", "acc,pair", known=False)
    counted = [entry["completions/image_tokens"] for entry in trainer.state.log_history if "loss" in entry]
    assert counted == [3, 3]  # what was counted in the measuring is in no line about training
    head, *rows = map(json.loads, (tmp_path / "pass_rates.jsonl").read_text().splitlines())
    assert head["options"]["model"] == "tiny" and head["options"]["temperature"] == 1.0
    assert len(rows) == 6 and all(row["pass_rate"] in (0, 0.25, 0.5, 0.75, 1) for row in rows)
    assert not any("eval" in name for entry in trainer.state.log_history for name in entry)
    pair_of = {item.id: item.pair_id for item in read_questions(path)}
    names = names_of(trainer)
    assert all(pair_of[a] == pair_of[b] for a, b in zip(names[::2], names[1::2], strict=True))


def test_a_killed_run_goes_on_in_its_order_and_only_in_that(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages, out = tmp_path / "stages.yaml", tmp_path / "run"
    text = "- {name: a, rewards: [format], steps: 1}\n- {name: b, rewards: [format, acc], steps: 2, difficulty: [0, 1]}"
    stages.write_text(text)
    words = ["--data", str(traces.with_name("questions.jsonl")), "--out", str(out), "--stages", str(stages), *GRPO,
             "--limit", "6", "--max_completion_length", "4", "--save_steps", "2",
             "--save_total_limit", "9"]  # fmt: skip
    grpo.main([*words, "--curriculum", "pass-rate"])
    whole = log_of(out)
    for name in ("frame.json", "model.safetensors", "trainer_state.json"):
        (out / name).unlink()
    shutil.rmtree(out / "checkpoint-3")
    capsys.readouterr()
    assert "curriculum: pass-rate -> none" in fails(capsys, grpo.main, [*words, "--resume"])
    words += ["--curriculum", "pass-rate", "--resume"]
    stages.write_text(text.replace("steps: 2", "steps: 3"))
    assert "stages_sha256" in fails(capsys, grpo.main, words)
    stages.write_text(text)
    kept = (out / "pass_rates.jsonl").read_bytes()
    (out / "pass_rates.jsonl").unlink()
    assert "pass_rates.jsonl is gone" in fails(capsys, grpo.main, words)
    write_whole(out / "pass_rates.jsonl", kept)
    grpo.main(words)
    assert "measuring" not in capsys.readouterr().out
    told = ("step", "stage", "loss", "num_tokens", "kl", "rewards/format/mean")
    for before, after in zip(whole[:3], log_of(out)[:3], strict=True):
        assert {name: before[name] for name in told} == pytest.approx({name: after[name] for name in told})


def test_a_difficulty_that_leaves_nothing_ends_the_run_with_the_counts(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text("- {name: half, rewards: [acc], steps: 2, difficulty: [0.1, 0.9], tasks: [pixel, distance]}")
    path = traces.with_name("questions.jsonl")
    trainer, _ = trained(path, tmp_path / "some", "--stages", str(stages))
    assert {name.split("-")[0] for name in names_of(trainer)} == {"pixel"} and len(names_of(trainer)) == 4
    stages.write_text("- {name: half, rewards: [acc], steps: 2, difficulty: [0.1, 0.9], tasks: [distance]}")
    with pytest.raises(SystemExit) as stop:
        trained(path, tmp_path / "none", "--stages", str(stages))
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "stages.yaml, stage 1 (half): there are no questions of distance with a pass rate in [0.1, 0.9]" in message
    assert "sometimes: 0" in message
