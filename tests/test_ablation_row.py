"""What is kept of a finished row: its scores unit by unit, its curves, its answers to a few questions."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_ablation import row_result, study_questions, units_in
from small_questions import make_questions, perfect_output, write_small_set

from data_gen.records import read_questions, write_rows
from eval.ablation.curves import curves_of, thinned
from eval.ablation.records import RowResult, TestQuestions
from eval.ablation.store import keep_questions, read_kept, to_json
from eval.ablation.study import shown_questions
from eval.ablation_row import main, part_words
from eval.surds import main as evaluate
from rewards.grading import TASKS

IMAGES = 40
HISTORY = [
    {"step": 5, "loss": 0.5, "rewards/acc/mean": 0.1, "rewards/acc/std": 0.3, "rewards/acc/yaw": 0.2, "kl": 0.00123456,
     "accuracy/yaw": 0.25, "grad_norm": 3.0, "completions/mean_length": 70.94, "time_spent_s": 51.5},
    {"step": 10, "held_out/yaw": 0.4, "held_out/yaw/valid": 1.0, "held_out/score": 0.3},
    {"step": 10, "loss": math.nan, "rewards/acc/mean": 0.2},
    {"step": 10, "train_runtime": 43.4, "train_loss": 0.002, "time_spent_s": 94.8},
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_set(tmp_path_factory.mktemp("row") / "data", IMAGES)


@pytest.fixture(scope="module")
def runs(data: Path) -> dict[str, Path]:
    """Finished runs: `greedy` right but on yaw, `sampled` right in one of two answers, and both on depth alone."""
    questions = read_questions(data)
    right = {question.id: perfect_output(question) for question in questions}
    silent = dict.fromkeys(right, "no idea")
    depth = data.parent / "official" / "questions.jsonl"
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    depth.parent.mkdir()
    (depth.parent / "manifest.json").write_text(json.dumps({"image_root": "../data", "source": "synthetic"}))
    write_rows(depth, (row for row in rows if row["task"] == "depth"))
    blind = {name: text if not name.startswith("yaw") else "no idea" for name, text in right.items()}
    return {
        "greedy": replayed(data, "greedy", blind),
        "sampled": sampled(data, "sampled", [right, silent]),
        "depth": replayed(depth, "depth", right),
        "depth-sampled": sampled(depth, "depth-sampled", [right, right, silent, silent]),
    }


def replayed(data: Path, label: str, outputs: Mapping[str, str]) -> Path:
    """The run folder of stored outputs."""
    names = {question.id for question in read_questions(data)}
    stored, out = data.parents[1] / f"{label}.jsonl", data.parents[1] / label
    write_rows(stored, ({"id": name, "output": text, "tokens": 5} for name, text in outputs.items() if name in names))
    assert evaluate(["--data", str(data), "--replay", str(stored), "--label", label, "--out", str(out)]) == 0
    return out


def sampled(data: Path, label: str, outputs_K: Sequence[Mapping[str, str]]) -> Path:
    """The run folder of several answers a question, as a sampled run leaves it."""
    runs = [replayed(data, f"{label}-{number}", outputs) for number, outputs in enumerate(outputs_K)]
    out = data.parents[1] / label
    shutil.copytree(runs[0], out)
    lines = [
        {**json.loads(line), "sample": number}
        for number, run in enumerate(runs)
        for line in (run / "predictions.jsonl").read_text().splitlines()
    ]
    write_rows(out / "predictions.jsonl", lines)
    set_temperature(out, 1.0)
    return out


def set_temperature(run: Path, temperature: float) -> None:
    config = run / "config.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "temperature": temperature}))


def trained(folder: Path, history: Sequence[Mapping[str, Any]] = HISTORY) -> Path:
    """A training folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 10, "log_history": list(history)}))
    return folder


def words(runs: Mapping[str, Path], out: Path, train: object, row: str = "sft-grpo", seed: int = 0) -> list[str]:
    return [
        "--study", "mini", "--row", row, "--seed", str(seed), "--commands", "c0ffee", "--train", str(train),
        "--part", f"matched:{runs['greedy']}:{runs['sampled']}",
        "--part", f"official:{runs['depth']}:{runs['depth-sampled']}", "--out", str(out / f"{row}-{seed}.json"),
    ]  # fmt: skip


def test_scores_curves_answers_and_cost_are_kept(runs: dict[str, Path], tmp_path: Path) -> None:
    assert main(words(runs, tmp_path, trained(tmp_path / "train"))) == 0
    kept = read_kept(tmp_path / "sft-grpo-0.json", RowResult)
    questions = read_kept(tmp_path / "questions.json", TestQuestions)
    assert kept.questions == questions.fingerprint and kept.commands == "c0ffee"
    assert [(group.part, group.task) for group in questions.units] == [
        *(("matched", task) for task in TASKS), ("official", "depth")
    ]  # fmt: skip
    tasks = [group.task for group in questions.units for _ in group.names]
    greedy, drawn = kept.scores["greedy"], kept.scores["sampled"]
    assert greedy.unit_scores == tuple(0.0 if task == "yaw" else 1.0 for task in tasks)
    assert drawn.unit_scores == (0.5,) * len(tasks), "half of the answers, of pairs too"
    assert (greedy.temperature, greedy.samples, drawn.temperature, drawn.samples) == (0, 1, 1, 2)
    assert greedy.well_formed["yaw"] == 0 and greedy.loc["depth"] == greedy.valid["pixel"] == 1
    assert (kept.cost.steps, kept.cost.seconds) == (10, 94.8) and "core" in kept.cost.machine
    assert kept.curves["loss"] == ((5, 0.5),), "what is no number is a gap"
    assert kept.curves["rewards/acc/mean"] == ((5, 0.1), (10, 0.2)) and kept.curves["kl"] == ((5, 0.00123),)
    assert kept.curves.keys() == {
        "loss", "kl", "rewards/acc/mean", "rewards/acc/yaw", "accuracy/yaw", "held_out/yaw", "held_out/score",
        "completions/mean_length",
    }  # fmt: skip
    assert questions.floors["matched"]["yaw"]["honest"] == 0.25


def test_examples_are_the_greedy_outputs_to_the_questions_shown(
    runs: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    assert main(words(runs, tmp_path, "none", "base")) == 0
    kept = read_kept(tmp_path / "base-0.json", RowResult)
    shown = read_kept(tmp_path / "questions.json", TestQuestions).shown
    assert [item.question_id for item in kept.examples] == [row["id"] for row in shown]
    outputs = {item.question_id: item.output for item in kept.examples}
    right = {question.id: perfect_output(question) for question in read_questions(data)}
    assert all(text == ("no idea" if name.startswith("yaw") else right[name]) for name, text in outputs.items())
    assert kept.curves == {} and (kept.cost.steps, kept.cost.seconds) == (0, 0)


def test_twenty_questions_are_drawn_by_the_question_file_alone() -> None:
    questions = make_questions(IMAGES)
    shown = shown_questions(questions)
    assert len(shown) == len({question.image for question in shown}) == 20
    counts = [sum(question.task == task for question in shown) for task in TASKS]
    assert max(counts) - min(counts) <= 1
    random.seed(1)
    assert shown_questions(make_questions(IMAGES)) == shown
    assert shown_questions(make_questions(IMAGES, seed=1)) != shown
    assert len(shown_questions(make_questions(8))) == 8, "no image twice"


def test_questions_are_written_once_and_others_refused(
    runs: dict[str, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(runs, tmp_path, "none", "base")) == 0
    there = (tmp_path / "questions.json").read_bytes()
    assert main(words(runs, tmp_path, trained(tmp_path / "train"), seed=1)) == 0
    assert (tmp_path / "questions.json").read_bytes() == there
    fewer = [*words(runs, tmp_path, "none", "base", 2)[:12], *words(runs, tmp_path, "none", "base", 2)[-2:]]
    assert main(fewer) == 2, "without its second part"
    assert "is of other questions" in capsys.readouterr().err
    assert not (tmp_path / "base-2.json").exists()


def test_rows_that_end_at_once_both_write_their_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second row comes and goes while the first one has written its file and not yet named it."""
    asked, write = study_questions(), Path.write_bytes

    def written_meanwhile(path: Path, content: bytes) -> int:
        count = write(path, content)
        monkeypatch.undo()
        assert keep_questions(asked, tmp_path).fingerprint == asked.fingerprint
        return count

    monkeypatch.setattr(Path, "write_bytes", written_meanwhile)
    assert keep_questions(asked, tmp_path).fingerprint == asked.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["questions.json"]


def test_what_does_not_belong_together_is_refused(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    untimed = trained(tmp_path / "untimed", HISTORY[1:3])
    cases: list[tuple[dict[str, Path], object, str]] = [
        ({"greedy": runs["sampled"], "sampled": runs["greedy"]}, "none", "must be greedy"),
        ({"sampled": runs["greedy"]}, "none", "must be greedy"),
        ({"sampled": runs["depth-sampled"]}, "none", "not of the same questions"),
        ({"greedy": runs["depth"], "sampled": runs["depth-sampled"]}, "none", "must hold all six tasks"),
        ({"greedy": tmp_path}, "none", "is no run folder"),
        ({}, tmp_path, "has no trainer_state.json"),
        ({}, untimed, "has no time_spent_s"),
    ]
    for others, train, told in cases:
        assert main(words({**runs, **others}, tmp_path / "results", train)) == 2, told
        assert told in capsys.readouterr().err
    assert not (tmp_path / "results").exists(), "nothing is written"
    assert main([*words(runs, tmp_path, "none"), "--out", str(tmp_path / "sft-0.json")]) == 2
    assert "sft-grpo-0.json" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["matched:a", "matched:a:b:c", ":a:b", "matched::b"])
def test_a_part_has_a_name_and_two_runs(text: str) -> None:
    with pytest.raises(Exception, match="NAME:GREEDY_RUN:SAMPLED_RUN"):
        part_words(text)


def test_curves_are_thinned_by_means_of_neighbours_and_later_values_win() -> None:
    assert thinned([(step, float(step)) for step in range(1, 7)], most=3) == ((2, 1.5), (4, 3.5), (6, 5.5))
    assert thinned([(1, 1.0), (2, 2.0)], most=60) == ((1, 1.0), (2, 2.0))
    assert len(thinned([(step, 0.0) for step in range(1001)])) <= 60
    long = curves_of([{"step": step, "loss": 1.0, "rewards/acc/yaw": 1.0} for step in range(1, 121)])
    assert (len(long["loss"]), len(long["rewards/acc/yaw"])) == (60, 30)
    again = [{"step": 5, "loss": 1.0}, {"step": 10, "loss": 2.0}, {"step": 10, "loss": 3.0}]
    assert curves_of(again) == {"loss": ((5, 1.0), (10, 3.0))}


def test_a_file_holds_what_was_kept_in_few_lines_and_bytes(tmp_path: Path) -> None:
    """A study of 300 units a task, in which half of the scores are fractions and every curve is at its longest."""
    questions = study_questions(600)
    rng = random.Random(0)
    units = [rng.choice((0.0, 1.0, 0.25, 1 / 3)) for _ in range(units_in(questions))]
    assert len(units) == 2100
    names = [
        *(f"rewards/{name}/mean" for name in TASKS),
        *(f"accuracy/{task}" for task in TASKS),
        "loss",
        "kl",
        "entropy",
    ]
    curves = {name: [(10 * step, rng.random()) for step in range(60)] for name in names}
    result = row_result(questions, "sft", 0, units, curves, output="x" * 300)
    text = to_json(result)
    assert len(text) < 60_000 and text.count("\n") < 80
    path = tmp_path / "sft-0.json"
    path.write_text(text)
    kept = read_kept(path, RowResult)
    assert kept.scores["greedy"].unit_scores == pytest.approx(units, abs=5e-5)
    assert kept.examples == result.examples and kept.cost == result.cost
    assert to_json(kept) == text


def test_runs_of_a_model_are_read_greedy_and_sampled(data: Path, tmp_path: Path) -> None:
    for mode, options in (("greedy", []), ("sampled", ["--temperature", "1", "--samples", "2"])):
        where = ["--ckpt", "mini", "--data", str(data), "--limit", "1", "--max-new-tokens", "2"]
        assert evaluate([*where, "--out", str(tmp_path / mode), *options]) == 0
    out = tmp_path / "results" / "base-0.json"
    options = ["--study", "s", "--row", "base", "--seed", "0", "--commands", "c", "--train", "none", "--out", str(out)]
    assert main([*options, "--part", f"matched:{tmp_path / 'greedy'}:{tmp_path / 'sampled'}"]) == 0
    scores = read_kept(out, RowResult).scores
    assert (scores["sampled"].temperature, scores["sampled"].samples) == (1, 2)
    assert len(scores["greedy"].unit_scores) == len(scores["sampled"].unit_scores) == 6
