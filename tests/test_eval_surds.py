"""The SURDS evaluation command: parity, what a run folder holds, floors and intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from eval_runs import lines_of, summary_of
from shared import json_lines, need
from small_questions import perfect_output, write_small_set

from data_gen.questions import published_units, questions_of
from data_gen.records import question_to_row, read_questions, write_rows
from data_gen.scene_records import read_scenes
from eval.surds import main

PUBLIC_NAMES = {"pixel": "xy2d"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


@pytest.mark.parametrize(
    ("scoring", "file"), [("official", "expected_scores.json"), ("strict", "expected_scores_strict.json")]
)
def test_replayed_parity_outputs_give_the_expected_scores(scoring: str, file: str, tmp_path: Path) -> None:
    expected = json.loads(need(f"parity/{file}").read_text())
    units = published_units(read_scenes(need("parity/metadata.jsonl")))
    rows = [question_to_row(q) for unit in units for q in questions_of(unit, source="metadata")]
    write_rows(tmp_path / "questions.jsonl", rows)
    outputs = [
        {"id": f"{row['unit'].replace('xy2d', 'pixel')}-{row['variant']}", "output": row["output"]}
        for row in json_lines("parity/predictions.jsonl")
    ]
    write_rows(tmp_path / "outputs.jsonl", outputs)
    out = tmp_path / "run"
    data = tmp_path / "questions.jsonl"
    assert evaluate("--data", data, "--replay", tmp_path / "outputs.jsonl", "--scoring", scoring, "--out", out) == 0
    summary = summary_of(out)
    assert summary["score"] == pytest.approx(expected["overall"], abs=1e-12)
    for task, figures in summary["tasks"].items():
        for name, value in expected[PUBLIC_NAMES.get(task, task)].items():
            assert figures[name] == pytest.approx(value, abs=1e-12), (task, name)
    assert list(summary["other_scorings"]) == [{"official": "strict", "strict": "official"}[scoring]]


def test_the_run_folder_holds_what_a_reader_needs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = read_questions(data)
    write_rows(tmp_path / "best.jsonl", ({"id": q.id, "output": perfect_output(q), "tokens": 9} for q in questions))
    assert (
        evaluate("--data", data, "--replay", tmp_path / "best.jsonl", "--out", tmp_path / "run", "--label", "best") == 0
    )
    summary = summary_of(tmp_path / "run")
    assert (summary["score"], summary["label"], summary["mean_tokens"]) == (pytest.approx(1), "best", 9)
    assert (summary["benchmark"], summary["source"], summary["scoring_version"]) == ("surds-fair", "synthetic", 1)
    assert {"units", "valid_rate", "valid_accuracy", "single_question", "ci95", "floors"} <= set(
        summary["tasks"]["yaw"]
    )
    rows = [json.loads(line) for line in lines_of(tmp_path / "run")]
    assert [row["id"] for row in rows] == [question.id for question in questions]
    assert rows[0]["boxes"] == [{"name": questions[0].objects[0].name, "bbox": list(questions[0].objects[0].bbox)}]
    assert rows[0]["score"] == {"strict": 1.0, "official": 1.0}
    assert "synthetic world" in capsys.readouterr().out
    assert "synthetic world" in (tmp_path / "run" / "report.html").read_text()


def test_boxes_are_kept_in_original_pixels_and_a_replay_keeps_frame_and_style(data: Path, tmp_path: Path) -> None:
    question = next(question for question in read_questions(data) if question.task == "pixel")
    output = "<location>car: [500, 250, 1000, 500]</location><think>t</think><answer>[500, 500]</answer>"
    write_rows(tmp_path / "outputs.jsonl", [{"id": question.id, "output": output}])
    first, second = tmp_path / "first", tmp_path / "second"
    evaluate("--data", data, "--replay", tmp_path / "outputs.jsonl", "--frame", "thousand", "--out", first)
    evaluate("--data", data, "--replay", first, "--out", second)
    row = next(json.loads(line) for line in lines_of(second) if json.loads(line)["id"] == question.id)
    assert row["boxes"] == [{"name": "car", "bbox": [80, 24, 160, 48]}]
    assert (first / "predictions.jsonl").read_bytes() == (second / "predictions.jsonl").read_bytes()


def test_a_limit_counts_units_of_every_task(data: Path, tmp_path: Path) -> None:
    assert evaluate("--data", data, "--engine", "random", "--limit", "2", "--out", tmp_path / "run") == 0
    assert {figures["units"] for figures in summary_of(tmp_path / "run")["tasks"].values()} == {2}


def test_no_interval_claims_certainty(data: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "none.jsonl", ({"id": q.id, "output": ""} for q in read_questions(data)))
    assert evaluate("--data", data, "--replay", tmp_path / "none.jsonl", "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    assert all(figures["ci95"] == [0, pytest.approx(0.3930, abs=1e-4)] for figures in summary["tasks"].values())
    assert summary["ci95"] == [0, pytest.approx(0.3930, abs=1e-4)]


def test_floors_of_every_kind_stand_beside_the_scores(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("--data", data, "--engine", "random", "--seed", "5", "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    floors = {task: set(figures["floors"]) for task, figures in summary["tasks"].items()}
    always = {"independent", "random_run", "honest"}
    constants = {"constant_position", "constant_text"}
    assert floors["pixel"] == always | {"constant_point"}
    assert floors["depth"] == always | constants | {"widest_option", "best_rank"}
    assert floors["yaw"] == floors["distance"] == always | constants | {"self_consistent"}
    assert all(figures["score"] == figures["floors"]["random_run"] for figures in summary["tasks"].values())
    printed = capsys.readouterr().out
    assert re.search(r"depth: constant position [\d.]+, constant text [\d.]+, widest range [\d.]+, best of", printed)
