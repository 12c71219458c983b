"""The comparison of runs: table, page, pictures, and what qualifies the numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from small_questions import perfect_output, write_small_set

from data_gen.columns import aligned
from data_gen.records import Question, read_questions, write_rows
from eval.report import main as report
from eval.surds import main as evaluate

HOSTILE = '<script>alert("x")</script> & "quoted"'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def replayed(data: Path, label: str, outputs: dict[str, str], *options: str) -> Path:
    """The run folder of stored outputs."""
    stored = data.parent / f"{label}.jsonl"
    write_rows(stored, ({"id": name, "output": text, "tokens": 5} for name, text in outputs.items()))
    out = data.parent.parent / label
    assert evaluate(["--data", str(data), "--replay", str(stored), "--label", label, "--out", str(out), *options]) == 0
    return out


def outputs_of(questions: list[Question], text: str = "") -> dict[str, str]:
    return {question.id: text or perfect_output(question) for question in questions}


def test_runs_stand_side_by_side_with_the_floors(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = read_questions(data)
    folders = [replayed(data, "best", outputs_of(questions)), replayed(data, "hostile", outputs_of(questions, HOSTILE))]
    capsys.readouterr()
    assert report([*map(str, folders), "--out", str(tmp_path / "report.html")]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^best +100\.0 \[60\.7, 100\.0\]", table, re.MULTILINE), "right on all of six images"
    assert re.search(r"^hostile +0\.0 \[0\.0, 39\.3\]", table, re.MULTILINE)
    assert re.search(r"^random \(expected\) +6\.2", table, re.MULTILINE)
    assert re.search(r"^honest floor +25\.0", table, re.MULTILINE)
    assert "! synthetic world" in table and "tiny model" not in table


def test_the_page_is_one_file_with_pictures_and_escapes_model_text(data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    folder = replayed(data, "hostile", outputs_of(questions, HOSTILE))
    page = (folder / "report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert page.count('class="card"') == 24
    assert "data:image/jpeg;base64," in page
    assert not re.search(r"(src|href)=\"(?!data:image|#)", page)
    assert 'class="true"' in page and 'class="said"' not in page


def test_predicted_boxes_and_points_are_drawn_in_original_pixels(data: Path) -> None:
    output = "<location>car: [500, 250, 1000, 500]</location><think>t</think><answer>[500, 500]</answer>"
    folder = replayed(data, "boxes", outputs_of(read_questions(data), output), "--frame", "thousand")
    page = (folder / "report.html").read_text()
    assert '<rect class="said" x="80" y="24" width="80" height="24">' in page
    assert re.search(r'class="saidpoint" d="M77.1 48H82.9', page)


def test_a_picture_that_is_gone_is_named(data: Path) -> None:
    for image in data.parent.glob("*.png"):
        image.unlink()
    folder = replayed(data, "blind", outputs_of(read_questions(data)))
    assert "image not found: 0" in (folder / "report.html").read_text()


def test_a_tiny_model_and_other_questions_are_pointed_out(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = outputs_of(read_questions(data))
    small, all_of_them = replayed(data, "small", outputs, "--limit", "2"), replayed(data, "all", outputs)
    summary = json.loads((all_of_them / "summary.json").read_text())
    (all_of_them / "summary.json").write_text(json.dumps({**summary, "tiny": True}))
    capsys.readouterr()
    assert report([str(small), str(all_of_them), "--out", str(tmp_path / "report.html")]) == 0
    table = capsys.readouterr().out
    assert "! tiny model" in table and "(all)" in table
    assert "did not answer the same questions" in table
    assert "did not answer the same questions" in (tmp_path / "report.html").read_text()


def test_a_task_without_questions_is_a_dash(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in data.read_text().splitlines() if '"task": "yaw"' not in line]
    data.write_text("\n".join(lines) + "\n")
    folder = replayed(data, "noyaw", outputs_of(read_questions(data)))
    capsys.readouterr()
    assert report([str(folder), "--out", str(tmp_path / "report.html")]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^noyaw +– +100\.0", table, re.MULTILINE)
    assert "No questions for yaw: the Score is the mean of the other tasks only." in table


def test_unfinished_and_foreign_folders_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = replayed(data, "run", outputs_of(read_questions(data)))
    assert report([str(data.parent)]) == 2
    assert "is no run folder" in capsys.readouterr().err
    (folder / "summary.json").write_text("{}")
    assert report([str(folder)]) == 2
    assert "evaluate again with --resume" in capsys.readouterr().err
    (folder / "summary.json").unlink()
    assert report([str(folder)]) == 2
    assert "is not finished" in capsys.readouterr().err


def test_columns_line_up() -> None:
    lines = aligned([["run", "a"], ["long name", "100.0"], ["x", "–"]])
    assert [line[-1] for line in lines if "-" * 5 not in line] == ["a", "0", "–"]
    assert len({len(line) for line in lines}) == 1


def test_a_narrow_terminal_gets_a_line_per_task(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = replayed(data, "best", outputs_of(read_questions(data)))
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "90")
    assert report([str(folder), "--out", str(tmp_path / "report.html")]) == 0
    assert re.search(r"^front_behind +100\.0", capsys.readouterr().out, re.MULTILINE)
