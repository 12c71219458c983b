"""The command that builds reasoning traces: its files, its figures, and what it refuses."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sample_questions import CAR, CENTRE, FACING, questions

from data_gen.build_cot import main
from data_gen.records import (
    question_to_row,
    read_questions,
    read_traces,
    write_rows,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "surds" / "questions.jsonl"
    write_rows(path, map(question_to_row, questions(40)))
    (path.parent / "manifest.json").write_text(json.dumps({"image_root": "images"}))
    return path


def run(data: Path | None, out: Path, *options: str) -> int:
    return main([*(["--data", str(data)] if data else []), "--out", str(out), *options])


def test_the_command_writes_traces_summary_and_manifest(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "cot"
    assert run(data, out) == 0
    asked, traces = read_questions(data), read_traces(out / "cot.jsonl")
    assert [trace.question for trace in traces] == asked
    assert traces[0].teacher == "oracle"
    assert traces[0].verdict == ()
    summary = json.loads((out / "summary.json").read_text())
    for task, figures in summary["tasks"].items():
        own = [q for q in asked if q.task == task]
        assert figures["kept"] == len(own) == sum(figures["words"].values()) == sum(figures["endings"].values())
        assert figures["ends_with_answer"] == pytest.approx(figures["endings"]["literal"] / len(own))
        assert figures["holds_answer"] >= figures["ends_with_answer"]
    root = json.loads((out / "manifest.json").read_text())["image_root"]
    assert (out / root).resolve() == data.parent / "images"


def test_a_limit_keeps_pairs_whole_and_tasks_can_be_chosen(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "a", "--limit", "21", "--tasks", "depth,yaw") == 0
    traces = read_traces(tmp_path / "a" / "cot.jsonl")
    assert 20 <= len(traces) <= 21
    assert {trace.question.task for trace in traces} == {"yaw", "depth"}
    pairs = Counter(trace.question.pair_id for trace in traces if trace.question.pair_id)
    assert set(pairs.values()) == {2}


def test_an_unusable_question_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    outside = replace(CENTRE, id="pixel-1-0", answer=(900, 100), objects=(replace(CAR, pixel=(900, 100)),))
    write_rows(path, map(question_to_row, [CENTRE, outside]))
    assert run(path, tmp_path / "out") == 0
    assert [trace.question.id for trace in read_traces(tmp_path / "out" / "cot.jsonl")] == [CENTRE.id]
    figures = json.loads((tmp_path / "out" / "summary.json").read_text())["tasks"]["pixel"]
    assert (figures["questions"], figures["kept"]) == (2, 1)
    assert figures["dropped"]["wrong_answer"] == 1


def test_resume_leaves_a_finished_run_and_refuses_other_settings(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cot"
    assert run(data, out) == 0
    written = (out / "cot.jsonl").read_bytes()
    assert run(data, out) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(data, out, "--resume") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(data, out, "--resume", "--seed", "1") == 2
    assert "seed 0 -> 1" in capsys.readouterr().err
    assert (out / "cot.jsonl").read_bytes() == written
    assert run(data, out, "--overwrite", "--seed", "1") == 0
    assert (out / "cot.jsonl").read_bytes() != written


def test_resume_completes_an_unfinished_run(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "cot"
    assert run(data, out) == 0
    written = (out / "cot.jsonl").read_bytes()
    (out / "summary.json").unlink()
    (out / "cot.jsonl").rename(out / "cot.jsonl.partial")
    assert run(data, out, "--resume") == 0
    assert (out / "cot.jsonl").read_bytes() == written
    assert {path.name for path in out.iterdir()} >= {"cot.jsonl", "summary.json", "manifest.json"}


@pytest.mark.parametrize(
    ("options", "line", "message"),
    [
        ((), None, "build_surds.py"),
        (("--tasks", "yaw,heading"), "", "known: yaw, pixel"),
        (("--limit", "1"), json.dumps(question_to_row(replace(FACING, id="yaw-0-1", variant=1))), "mirrored pair"),
        ((), '{"id": "broken"}', "line 2"),
        ((), "{", "line 2"),
    ],
)
def test_bad_input_exits_with_2_and_the_remedy(
    options: tuple[str, ...], line: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "questions.jsonl"
    if line is not None:
        path.write_text(json.dumps(question_to_row(FACING)) + "\n" + line)
    assert run(path if line is not None else None, tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
