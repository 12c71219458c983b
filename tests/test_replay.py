"""Stored outputs of other harnesses: every format is told from its content, joined to the questions, scored alike."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_questions import perfect_output, write_small_set

from data_gen.command_line import UsageError
from data_gen.floors import units_of
from data_gen.records import Question, read_questions, write_rows
from eval.replay import limit_of_run, open_replayed
from eval.replay_formats import EVALSCOPE, LMMS_EVAL, OURS, PUBLISHED, VLMEVALKIT, format_of, task_named
from eval.surds import main

PUBLISHED_FILES = {
    "yaw": "00_yaw_vqas.json",
    "pixel": "01_xy2d_vqas.json",
    "depth": "02_depth_vqas.json",
    "distance": "03_dis_vqas.json",
    "left_right": "04_lr_vqas.json",
    "front_behind": "05_fb_vqas.json",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def outputs_of(questions: list[Question]) -> dict[str, str]:
    """Right and wrong outputs by turns, some with line breaks, quotes and tabs."""
    return {
        q.id: perfect_output(q) if place % 3 else f'<think>"a"\t\n</think><answer>{place}</answer>'
        for place, q in enumerate(questions)
    }


def by_task(questions: list[Question]) -> dict[str, list[Question]]:
    """Questions of each task unit by unit, the first of a unit before the second."""
    found: dict[str, list[Question]] = {}
    for unit in units_of(questions).values():
        found.setdefault(unit[0].task, []).extend(unit)
    return found


def write_ours(questions: list[Question], folder: Path) -> Path:
    outputs = outputs_of(questions)
    write_rows(folder / "predictions.jsonl", ({"id": q.id, "output": outputs[q.id], "tokens": 7} for q in questions))
    return folder


def write_published(questions: list[Question], folder: Path) -> Path:
    outputs = outputs_of(questions)
    for task, asked in by_task(questions).items():
        rows = [{"vqa_idx": place, "prompt": "", "output": outputs[q.id]} for place, q in enumerate(asked)]
        (folder / PUBLISHED_FILES[task]).write_text(json.dumps(rows[::-1]))
    return folder


def evalscope_row(index: int, question: Question, output: str) -> dict[str, Any]:
    """A line as evalscope 1.14 writes it into its prediction cache, less what is null there."""
    task = "xy2d" if question.task == "pixel" else question.task
    message = {"id": "95d03728", "content": output, "source": "generate", "role": "assistant", "model": "mock"}
    return {
        "index": index,
        "model": "mock",
        "model_output": {
            "id": None,
            "model": "mock",
            "choices": [{"message": message, "stop_reason": "stop", "logprobs": None}],
            "usage": {"input_tokens": 900, "output_tokens": 11, "total_tokens": 911} if index % 2 else None,
        },
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Where?"}]}, message],
        "agent_trace": None,
        "metadata": {
            "task": task,
            "pair_id": question.unit.replace("pixel-", "xy2d-"),
            "variant_index": question.variant,
            "paired": question.pair_id is not None,
            "bbox": None,
            "options": list(question.options),
        },
    }


def write_evalscope(questions: list[Question], folder: Path) -> Path:
    outputs = outputs_of(questions)
    for task, asked in by_task(questions).items():
        rows = (evalscope_row(place, q, outputs[q.id]) for place, q in enumerate(asked))
        write_rows(folder / "predictions" / "mock" / f"surds_{task}.jsonl", rows)
    (folder / "reports").mkdir()
    return folder


def write_lmms_by_place(questions: list[Question], folder: Path) -> Path:
    """As lmms-eval logs samples of one task a file, without the documents, as its newer versions do."""
    outputs = outputs_of(questions)
    (folder / "20261130_120000_results.json").write_text(json.dumps({"results": {}}, indent=2))
    for task, asked in by_task(questions).items():
        rows = (
            {"doc_id": place, "target": q.answer_text, "filtered_resps": [outputs[q.id]], "doc_hash": "0", "input": "?"}
            for place, q in enumerate(asked)
        )
        write_rows(folder / f"20261130_120000_samples_surds_{task}.jsonl", rows)
    return folder


def write_lmms_with_docs(questions: list[Question], folder: Path) -> Path:
    outputs = outputs_of(questions)
    rows = (
        {
            "doc_id": place,
            "doc": {"id": q.id, "question": q.question},
            "target": q.answer_text,
            "resps": [[outputs[q.id]]],
            "filtered_resps": [outputs[q.id].strip("<>")],
        }
        for place, q in enumerate(reversed(questions))
    )
    write_rows(folder / "samples_drive_surds.jsonl", rows)
    return folder


def write_table(questions: list[Question], folder: Path) -> Path:
    """As VLMEvalKit saves a table of predictions: the questions' columns without the image."""
    outputs = outputs_of(questions)
    path = folder / "Model_SURDS.tsv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["index", "question", "category", "prediction"], delimiter="\t")
        writer.writeheader()
        for place, q in enumerate(q for unit in units_of(questions).values() for q in unit):
            writer.writerow({"index": place, "question": q.question, "category": q.task, "prediction": outputs[q.id]})
    return path


WRITERS: dict[str, tuple[Callable[[list[Question], Path], Path], str]] = {
    "ours": (write_ours, OURS),
    "published": (write_published, PUBLISHED),
    "evalscope": (write_evalscope, EVALSCOPE),
    "lmms-eval by place": (write_lmms_by_place, LMMS_EVAL),
    "lmms-eval with documents": (write_lmms_with_docs, LMMS_EVAL),
    "VLMEvalKit": (write_table, VLMEVALKIT),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_every_output_to_its_question(name: str, data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    write, kind = WRITERS[name]
    (tmp_path / "stored").mkdir()
    replayed = open_replayed(write(questions, tmp_path / "stored"))
    found = replayed.engine.matched(questions).stored
    assert replayed.format == kind
    assert {key: reply.output for key, reply in found.items()} == outputs_of(questions)
    assert replayed.style == (None if kind == OURS else "reasoning")


def test_all_formats_score_alike_and_say_whose_they_are(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = read_questions(data)
    scores = {}
    for name, (write, kind) in WRITERS.items():
        folder = tmp_path / name / "stored"
        folder.mkdir(parents=True)
        stored = write(questions, folder)
        style = ["--prompt-style", "reasoning"] if kind == OURS else []
        out = tmp_path / name / "run"
        assert main(["--data", str(data), "--replay", str(stored), "--out", str(out), *style]) == 0
        assert f"replaying 60 outputs of {stored.name} ({kind} outputs)" in capsys.readouterr().err
        summary = json.loads((out / "summary.json").read_text())
        scores[name] = (summary["score"], {task: item["score"] for task, item in summary["tasks"].items()})
        assert summary["prompt_style"] == "reasoning"
        facts = json.loads((out / "run.json").read_text())
        assert facts["frame"]["kind"] == "original"
    assert len({str(score) for score in scores.values()}) == 1 and 0 < scores["ours"][0] < 1


def test_outputs_that_are_not_there_count_as_unanswered(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "stored"
    folder.mkdir()
    write_published(read_questions(data), folder)
    path = folder / "02_depth_vqas.json"
    path.write_text(json.dumps([row for row in json.loads(path.read_text()) if row["vqa_idx"] != 1]))
    assert main(["--data", str(data), "--replay", str(folder), "--out", str(tmp_path / "run")]) == 0
    assert "1 of 60 questions have no stored output and count as wrong" in capsys.readouterr().err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["tasks"]["depth"]["units"] == 6 and "no_answer" in summary["tasks"]["depth"]["reasons"]


def test_a_limit_does_not_move_places(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stored"
    folder.mkdir()
    write_published(read_questions(data), folder)
    assert main(["--data", str(data), "--replay", str(folder), "--limit", "2", "--out", str(tmp_path / "run")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert {row["id"]: row["output"] for row in rows}.items() <= outputs_of(read_questions(data)).items()
    assert len(rows) == 20


def test_a_run_of_ours_hands_on_its_frame_style_limit_and_prompts(data: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--data", str(data), "--engine", "random", "--frame", "thousand", "--prompt-style", "direct"]
    assert main([*options, "--limit", "2", "--out", str(first)]) == 0
    assert limit_of_run(first) == limit_of_run(first / "predictions.jsonl") == 2
    assert main(["--data", str(data), "--replay", str(first), "--out", str(second)]) == 0
    before, after = (json.loads((folder / "run.json").read_text()) for folder in (first, second))
    for name in ("frame", "prompt_style", "prompts"):
        assert before[name] == after[name], name
    assert before["identity"]["questions"] == after["identity"]["questions"]
    assert limit_of_run(second) == 2
    assert main(["--data", str(data), "--replay", str(first), "--limit", "1", "--out", str(tmp_path / "less")]) == 0
    assert limit_of_run(tmp_path / "less") == 1


def published(rows: object, name: str = "02_depth_vqas.json") -> dict[str, str]:
    return {name: json.dumps(rows)}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


ROW = {"vqa_idx": 0, "prompt": "", "output": "x"}
SAMPLE = {"doc_id": 0, "target": "x", "resps": [["x"]], "filtered_resps": ["x"]}
BROKEN: dict[str, tuple[dict[str, str], str]] = {
    "repeated index": (published([ROW, ROW]), "row 2: the question 0 of depth was there before"),
    "index too high": (published([{**ROW, "vqa_idx": 6}]), "row 1: there is no question 6; the file has 6 of the task"),
    "index below 0": (published([{**ROW, "vqa_idx": -1}]), "row 1: there is no question -1"),
    "index as text": (published([{**ROW, "vqa_idx": "0"}]), "row 1: a published row needs the whole number `vqa_idx`"),
    "no output": (published([{"vqa_idx": 0}]), "row 1: a published row needs"),
    "no row": (published([1]), "row 1: a published row needs"),
    "cut short": ({"02_depth_vqas.json": '[{"vqa_idx": 0'}, "02_depth_vqas.json is no JSON"),
    "no task in the name": (published([ROW], "07_other_vqas.json"), "the name of a published file says its task"),
    "repeated id": ({"predictions.jsonl": lines({"id": "a", "output": "x"}, {"id": "a", "output": "y"})},
                    "line 2: the id 'a' was there before"),
    "no output of ours": ({"predictions.jsonl": lines({"id": "a", "text": "x"})}, "line 1: a prediction needs"),
    "a row without output": ({"predictions.jsonl": lines({"id": "a", "output": "x"}, {"id": "b"})},
                             "line 2: a prediction needs the texts"),
    "no known format": ({"a.jsonl": lines({"text": "x"})}, "its first row holds text); known formats:"),
    "a summary": ({"a.jsonl": '{\n "score": 1\n}\n'}, "a.jsonl is of no known format"),
    "empty": ({"a.jsonl": ""}, "a.jsonl is empty"),
    "no file": ({"notes.txt": "x"}, "holds no file of outputs; known formats:"),
    "two formats": ({"samples_a.jsonl": lines(SAMPLE), "samples_b.jsonl": lines({"id": "a", "output": "x"})},
                    "mixes formats: samples_a.jsonl is lmms-eval, samples_b.jsonl is ours"),
    "two models": ({"predictions/a/surds_yaw.jsonl": "x", "predictions/b/surds_yaw.jsonl": "x"},
                   "holds outputs of several models"),
    "two responses": ({"samples_yaw.jsonl": lines({**SAMPLE, "resps": [["x", "y"]]})},
                      "line 1: one response was expected in `resps` or `filtered_resps`, got 2"),
    "no place": ({"samples_yaw.jsonl": lines({**SAMPLE, "doc_id": None})}, "line 1: neither an id nor a whole number"),
    "another evalscope benchmark": (
        {"mmbench.jsonl": lines({"index": 0, "model_output": {"choices": []}, "metadata": {"category": "x"}})},
        "line 1 is no prediction of evalscope's task surds"),
    "no prediction column": ({"a.tsv": "index\tquestion\n0\tx\n"}, "needs the columns index and prediction"),
    "no Excel": ({"a.xlsx": "PK no workbook"}, "a.xlsx"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_outputs_are_named(case: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, message = BROKEN[case]
    for name, text in files.items():
        (tmp_path / "stored" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "stored" / name).write_text(text)
    assert main(["--data", str(data), "--replay", str(tmp_path / "stored"), "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_question_answered_by_id_and_by_place_is_answered_twice(data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    named = {**SAMPLE, "doc_id": 5, "doc": {"id": questions[0].id}}
    (tmp_path / "samples_yaw.jsonl").write_text(lines(SAMPLE, named))
    engine = open_replayed(tmp_path / "samples_yaw.jsonl").engine
    with pytest.raises(UsageError, match=f"line 1: the question '{questions[0].id}' was answered before"):
        engine.matched(questions)


def test_outputs_of_no_question_are_counted(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = read_questions(data)
    (tmp_path / "a.jsonl").write_text(lines({"id": questions[0].id, "output": "x"}, {"id": "zz-0", "output": "x"}))
    assert main(["--data", str(data), "--replay", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "run")]) == 0
    assert "1 outputs are of no question in" in capsys.readouterr().err


def test_excel_tables_are_read_and_without_openpyxl_the_remedy_is_told(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "Model_SURDS.xlsx"
    path.write_bytes(b"PK\x03\x04")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "openpyxl", None)
        with pytest.raises(UsageError, match="pip install openpyxl"):
            open_replayed(path)
    pytest.importorskip("openpyxl")
    import pandas

    questions = read_questions(data)
    table = pandas.read_csv(write_table(questions, tmp_path), sep="\t", keep_default_na=False)
    table.to_excel(path, index=False)
    assert format_of(path) == VLMEVALKIT
    stored = open_replayed(path).engine.matched(questions).stored
    assert {name: reply.output for name, reply in stored.items()} == outputs_of(questions)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("00_yaw_vqas.json", "yaw"),
        ("01_xy2d_vqas.json", "pixel"),
        ("04_lr_vqas.json", "left_right"),
        ("20261130_samples_surds_front_behind.jsonl", "front_behind"),
        ("surds_distance.jsonl", "distance"),
        ("samples_surds.jsonl", None),
        ("yaw_and_depth.json", None),
        ("display.json", None),
    ],
)
def test_the_task_is_a_word_of_a_file_name(name: str, task: str | None) -> None:
    assert task_named(name) == task


def test_a_run_on_other_questions_with_the_same_ids_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = write_small_set(tmp_path / "a", seed=0), write_small_set(tmp_path / "b", seed=1)
    run = tmp_path / "run"
    assert main(["--engine", "random", "--data", str(first), "--out", str(run)]) == 0
    assert main(["--replay", str(run), "--data", str(other), "--out", str(tmp_path / "no")]) == 2
    assert "other questions under the same ids; give the question file of that run" in capsys.readouterr().err
    assert main(["--replay", str(run), "--data", str(first), "--limit", "1", "--out", str(tmp_path / "part")]) == 0
    assert "where it is not a part of the same file, the scores mean nothing" in capsys.readouterr().err


def test_questions_without_an_output_are_counted_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = write_small_set(tmp_path / "data"), tmp_path / "run"
    assert main(["--engine", "random", "--data", str(data), "--out", str(run)]) == 0
    lines = (run / "predictions.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_text("".join(lines[:-7]))
    assert main(["--replay", str(tmp_path / "part.jsonl"), "--data", str(data), "--out", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["unanswered"] == 7
    assert f"7 of {len(lines)} questions have no output" in capsys.readouterr().out


def test_letters_of_a_vlmevalkit_table_are_options(tmp_path: Path) -> None:
    data = write_small_set(tmp_path / "data")
    letters = [
        {"index": place, "question": q.question, "answer": "", "id": q.id,
         "prediction": "ABCD"[q.options.index(q.answer_text)] if q.options else perfect_output(q)}
        for place, q in enumerate(read_questions(data))
    ]  # fmt: skip
    with (tmp_path / "table.tsv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(letters[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(letters)
    assert main(["--replay", str(tmp_path / "table.tsv"), "--data", str(data), "--out", str(tmp_path / "out")]) == 0
    tasks = json.loads((tmp_path / "out" / "summary.json").read_text())["tasks"]
    assert {task: figures["valid_rate"] for task, figures in tasks.items()} == dict.fromkeys(tasks, 1.0)
    assert all(figures["score"] > 0.99 for figures in tasks.values())
