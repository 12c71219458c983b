"""The evaluation command: parity, resume, refusal to mix, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shared import json_lines, need
from small_questions import perfect_output, write_small_set

from data_gen.questions import published_units, questions_of
from data_gen.records import question_to_row, read_questions, write_rows
from data_gen.scene_records import read_scenes
from eval.engines import RandomEngine
from eval.surds import main

PUBLIC_NAMES = {"pixel": "xy2d"}


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def lines_of(folder: Path) -> list[str]:
    return (folder / "predictions.jsonl").read_text().splitlines()


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


@pytest.mark.parametrize("cut", [1, 40, 700, 2000])
def test_a_killed_run_resumes_to_the_same_files_and_asks_nothing_twice(
    cut: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    predictions, summary = tmp_path / "run" / "predictions.jsonl", tmp_path / "run" / "summary.json"
    whole, scores = predictions.read_bytes(), summary.read_bytes()
    predictions.write_bytes(whole[:-cut])
    kept = whole[:-cut].count(b"\n")
    summary.unlink()
    asked: list[str] = []
    replies = RandomEngine.replies

    def counted(self: RandomEngine, requests: Any, done: Any = ()) -> Any:
        of_the_run = any(request.prompt for request in requests)  # and not of the random floor
        for reply in replies(self, requests, done):
            asked.extend([reply.id] * of_the_run)
            yield reply

    monkeypatch.setattr(RandomEngine, "replies", counted)
    assert evaluate(*options) == 2, "a folder that is not empty needs --resume"
    assert evaluate(*options, "--resume") == 0
    assert (predictions.read_bytes(), summary.read_bytes()) == (whole, scores)
    assert len(asked) == len(set(asked)) == whole.count(b"\n") - kept


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (["--seed", "1"], "model: random, seed 0 there, random, seed 1 now"),
        (["--prompt-style", "direct"], "prompts: located"),
        (["--frame", "thousand"], "frame: "),
        (["--limit", "2"], "questions: "),
    ],
)
def test_another_model_prompt_or_data_is_not_mixed_in(
    change: list[str], named: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    before = lines_of(tmp_path / "run")
    assert evaluate(*options, "--resume", *change) == 2
    assert named in capsys.readouterr().err
    assert lines_of(tmp_path / "run") == before
    assert evaluate(*options, "--overwrite", *change) == 0


def test_another_scoring_of_the_same_run_is_no_other_run(data: Path, tmp_path: Path) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    assert evaluate(*options, "--resume", "--scoring", "official") == 0
    assert summary_of(tmp_path / "run")["scoring"] == "official"


def test_a_limit_counts_units_of_every_task(data: Path, tmp_path: Path) -> None:
    assert evaluate("--data", data, "--engine", "random", "--limit", "2", "--out", tmp_path / "run") == 0
    assert {figures["units"] for figures in summary_of(tmp_path / "run")["tasks"].values()} == {2}


BAD_INPUT = {
    "no data": ([], "python data_gen/build_surds.py"),
    "no file": (["--data", "{tmp}/none.jsonl"], "none.jsonl; build one with: python data_gen/build_surds.py"),
    "no model": (["--data", "{data}"], "give --ckpt"),
    "no replay": (["--data", "{data}", "--replay", "{tmp}/none"], "no predictions at"),
    "no checkpoint": (["--data", "{data}", "--ckpt", "{tmp}/none"], "no checkpoint"),
    "no weights": (["--data", "{data}", "--ckpt", "{tmp}/empty"], "empty cannot be loaded"),
    "other outputs": (["--data", "{data}", "--replay", "{tmp}/other.jsonl"], "no stored output has the id"),
    "bad number": (["--data", "{data}", "--engine", "random", "--limit", "0"], "--limit must be at least 1"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_with_2_and_the_remedy(
    case: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"id": "x", "output": ""}\n')
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    options, message = BAD_INPUT[case]
    assert evaluate(*(option.format(tmp=tmp_path, data=data) for option in options)) == 2
    assert message in capsys.readouterr().err


def test_a_missing_image_is_named_before_a_model_loads(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data.parent / "003.png").unlink()
    assert evaluate("--data", data, "--ckpt", "not/loaded", "--out", tmp_path / "run") == 2
    assert "003.png" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_yaml_file_sets_options_and_the_command_line_wins(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "eval.yaml"
    config.write_text(f"data: {data}\nengine: random\nlimit: 1\nscoring: official\nlabel: 7\n")
    assert evaluate("--config", config, "--limit", "3", "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    assert (summary["scoring"], summary["label"], summary["tasks"]["yaw"]["units"]) == ("official", "7", 3)
    assert evaluate("--config", tmp_path / "run" / "config.yaml", "--resume") == 0
    assert summary_of(tmp_path / "run") == summary


@pytest.mark.parametrize(
    ("line", "named"),
    [("nonsense: 1", "--nonsense=1"), ("limit: many", "--limit"), ("engine: parrot", "parrot"), ("- x", "got list")],
)
def test_a_bad_yaml_line_fails(
    line: str, named: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "eval.yaml"
    config.write_text(line + "\n")
    with pytest.raises(SystemExit) as stop:
        evaluate("--config", config, "--data", data, "--engine", "random", "--out", tmp_path / "run")
    assert stop.value.code == 2
    assert named in capsys.readouterr().err


def test_a_broken_line_inside_the_predictions_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    lines = lines_of(tmp_path / "run")
    (tmp_path / "run" / "predictions.jsonl").write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n")
    assert evaluate(*options, "--resume") == 2
    assert "predictions.jsonl, line 2" in capsys.readouterr().err
