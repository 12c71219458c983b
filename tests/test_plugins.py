"""Exports for other harnesses: what they hold, and that answers score there as they do here."""

from __future__ import annotations

import base64
import csv
import io
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from small_questions import SIZE, perfect_output, write_small_set

from data_gen.records import Question, question_from_row, read_questions, write_rows
from eval.export import main as export
from eval.plugins import lmms_eval_task
from eval.plugins.lmms_eval_task import doc_to_text, doc_to_visual, process_results
from eval.plugins.vlmevalkit import in_our_form, score_predictions
from eval.plugins.vlmevalkit import main as score_table
from eval.surds import main as evaluate
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS

ORIGINAL = CoordinateFrame()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def pack(data: Path, *options: str) -> tuple[Path, list[dict[str, Any]]]:
    """An lmms-eval pack and its lines."""
    out = data.parent.parent / "pack"
    assert export(["--format", "lmms-eval", "--data", str(data), "--out", str(out), "--overwrite", *options]) == 0
    return out, [json.loads(line) for line in (out / "questions.jsonl").read_text().splitlines()]


def table(data: Path) -> list[dict[str, str]]:
    """The rows of a VLMEvalKit table."""
    out = data.parent.parent / "table"
    assert export(["--format", "vlmevalkit", "--data", str(data), "--out", str(out)]) == 0
    csv.field_size_limit(sys.maxsize)
    with (out / "SURDS.tsv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


class _Loader(yaml.SafeLoader):
    """YAML with lmms-eval's `!function file.name`, kept as text."""


_Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


def aggregated(folder: Path, docs: list[dict[str, Any]], output_of: dict[str, str]) -> dict[str, float]:
    """Metric -> score, the way lmms-eval goes about it: results by metric, then the aggregation that the YAML names."""
    task = yaml.load((folder / "drive_surds.yaml").read_text(), Loader=_Loader)
    found: dict[str, list[dict[str, Any]]] = {}
    for doc in docs:
        for metric, item in process_results(doc, [output_of[doc["id"]]]).items():
            found.setdefault(metric, []).append(item)
    names = {item["metric"]: item["aggregation"].removeprefix("utils.") for item in task["metric_list"]}
    assert found.keys() <= names.keys()
    return {metric: getattr(lmms_eval_task, names[metric])(items) for metric, items in found.items()}


def outputs(questions: list[Question]) -> dict[str, str]:
    """Right answers, of which every third is spoilt."""
    silent = {question.id for question in questions[::3]}
    return {question.id: "" if question.id in silent else perfect_output(question) for question in questions}


def our_scores(data: Path, output_of: dict[str, str]) -> dict[str, float]:
    """What eval/surds.py makes of the same outputs."""
    stored, out = data.parent.parent / "stored.jsonl", data.parent.parent / "run"
    write_rows(stored, ({"id": name, "output": text, "tokens": 1} for name, text in output_of.items()))
    options = ["--data", str(data), "--replay", str(stored), "--out", str(out), "--prompt-style", "reasoning"]
    assert evaluate(options) == 0
    summary = json.loads((out / "summary.json").read_text())
    return {**{task: figures["score"] for task, figures in summary["tasks"].items()}, "score": summary["score"]}


def test_the_pack_names_functions_that_are_there_and_a_file_that_is_there(data: Path) -> None:
    folder, docs = pack(data)
    task = yaml.load((folder / "drive_surds.yaml").read_text(), Loader=_Loader)
    named = {task[key] for key in ("doc_to_visual", "doc_to_text", "process_results")}
    named |= {item["aggregation"] for item in task["metric_list"]}
    scope: dict[str, Any] = {}
    exec((folder / "utils.py").read_text(), scope)
    assert all(callable(scope[name.removeprefix("utils.")]) for name in named)
    assert (folder / task["dataset_kwargs"]["data_files"]["test"]).is_file()
    assert task["doc_to_target"] in docs[0]
    assert {item["metric"] for item in task["metric_list"]} == {"surds_score", *TASKS}


def test_lines_are_alike_and_hold_the_question_the_image_and_the_prompt(data: Path) -> None:
    _, docs = pack(data, "--prompt-style", "direct", "--frame", "thousand")
    questions = read_questions(data)
    assert [question_from_row(json.loads(doc["record"])) for doc in docs] == questions
    assert all(isinstance(value, str) for doc in docs for value in doc.values())
    assert doc_to_visual(docs[0])[0].size == SIZE
    pixel = next(doc for doc in docs if doc["task"] == "pixel")
    assert "0 to 1000" in doc_to_text(pixel) and "Reply with the answer only" in doc_to_text(pixel)


def test_datasets_reads_the_lines(data: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    folder, docs = pack(data)
    loaded = datasets.load_dataset(
        "json", data_files={"test": str(folder / "questions.jsonl")}, cache_dir=str(tmp_path / "cache")
    )
    assert list(loaded["test"]) == docs


def test_answers_score_in_lmms_eval_as_they_do_here(data: Path) -> None:
    folder, docs = pack(data)
    output_of = outputs(read_questions(data))
    there, here = aggregated(folder, docs, output_of), our_scores(data, output_of)
    assert there == pytest.approx({"surds_score": here.pop("score"), **here})
    assert 0 < there["surds_score"] < 1


def test_a_pair_counts_only_when_both_its_questions_are_right(data: Path) -> None:
    folder, docs = pack(data)
    questions = read_questions(data)
    first_only = {q.id: perfect_output(q) if q.variant == 0 else "<answer>no idea</answer>" for q in questions}
    scores = aggregated(folder, docs, first_only)
    assert scores["depth"] == scores["pixel"] == 1.0
    assert all(scores[task] == 0.0 for task in ("yaw", "distance", "left_right", "front_behind"))
    half = [doc for doc in docs if doc["task"] == "yaw"][:1]
    assert aggregated(folder, half, {half[0]["id"]: first_only[half[0]["id"]]})["yaw"] == 0.0


def test_points_are_read_in_the_frame_of_the_export(data: Path) -> None:
    centre = {q.id: [(a + b) / 2 for a, b in zip(q.objects[0].bbox[:2], q.objects[0].bbox[2:], strict=True)]
              for q in read_questions(data) if q.task == "pixel"}  # fmt: skip
    for frame in ("original", "thousand"):
        folder, docs = pack(data, "--frame", frame)
        chosen = [doc for doc in docs if doc["task"] == "pixel"]
        said = {name: f"<answer>{list(CoordinateFrame('thousand').to_model(point, SIZE))}</answer>"
                for name, point in centre.items()}  # fmt: skip
        score = aggregated(folder, chosen, said)["pixel"]
        assert score == pytest.approx(1.0 if frame == "thousand" else 0.0, abs=1e-3)


def test_the_table_holds_each_image_once_and_the_letter_of_the_answer(data: Path) -> None:
    rows, questions = table(data), read_questions(data)
    assert [row["id"] for row in rows] == [question.id for question in questions]
    by_index = {row["index"]: row for row in rows}
    held = Counter(row["image_name"] for row in rows if len(row["image"]) > 64)
    assert set(held.values()) == {1} and held.keys() == {question.image for question in questions}
    for row, question in zip(rows, questions, strict=True):
        shown = row if len(row["image"]) > 64 else by_index[row["image"]]
        assert shown["image_name"] == question.image
        assert row["category"] == question.task
        if question.task == "pixel":
            assert row["A"] == "" and row["answer"] == question.answer_text and "[x, y]" in row["question"]
        else:
            assert row[row["answer"]] == question.answer and "<answer>" not in row["question"]
            assert not any(f"\n{option}" in row["question"] for option in question.options)
    picture = Image.open(io.BytesIO(base64.b64decode(rows[0]["image"])))
    assert picture.format == "JPEG" and picture.size == SIZE


def test_pandas_reads_the_table_as_vlmevalkit_does(data: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = table(data)
    frame = pandas.read_csv(data.parent.parent / "table" / "SURDS.tsv", sep="\t")
    assert len(frame) == len(rows) and list(frame["index"]) == list(range(len(rows)))
    assert frame["A"].isna().sum() == sum(row["category"] == "pixel" for row in rows)


@pytest.mark.parametrize(
    ("prediction", "right"),
    [
        ("{letter}", True),
        ("{letter}. {text}", True),
        ("The answer is {letter}.", True),
        ("{text}", True),
        ("<think>It could be {other}.</think> {letter}", True),
        ("<answer>{text}</answer>", True),
        ("{other}", False),
        ("<think>{letter}</think> {other}", False),
        ("", False),
        ("I cannot tell.", False),
    ],
)
def test_letters_texts_and_tags_count(data: Path, prediction: str, right: bool) -> None:
    questions = [question for question in read_questions(data) if question.task == "depth"]
    said = {}
    for question in questions:
        place = question.options.index(question.answer_text)
        letter, other = "ABC"[place], "ABC"[(place + 1) % 3]
        said[question.id] = prediction.format(letter=letter, other=other, text=question.answer)
    assert score_predictions(said, questions, ORIGINAL)["depth"] == float(right)


def test_a_bare_point_counts(data: Path) -> None:
    question = next(item for item in read_questions(data) if item.task == "pixel")
    x1, y1, x2, y2 = question.objects[0].bbox
    for text in ("[{}, {}]", "<think>hm</think>\n[{}, {}]", "<answer>({}, {})</answer>"):
        said = {question.id: text.format((x1 + x2) / 2, (y1 + y2) / 2)}
        assert score_predictions(said, [question], ORIGINAL)["pixel"] == pytest.approx(1.0)
    assert in_our_form("at the left", question) == "<answer>at the left</answer>"


def test_a_table_of_predictions_is_scored(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    rows = table(data)
    predicted = tmp_path / "MODEL_SURDS.tsv"
    with predicted.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["index", "id", "prediction"])
        writer.writerows([row["index"], row["id"], row["answer"]] for row in rows if row["category"] != "yaw")
    capsys.readouterr()
    assert score_table([str(predicted), "--data", str(data)]) == 0
    told = capsys.readouterr().out
    assert "depth         100.0" in told and "yaw             0.0" in told
    assert score_table([str(predicted), "--data", str(tmp_path / "none.jsonl")]) == 2
    assert "no file at" in capsys.readouterr().err


def test_bad_input_ends_with_2_and_the_remedy(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--format", "lmms-eval", "--data", str(data), "--out"]
    assert export([*given, str(data.parent)]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert export(["--format", "lmms-eval", "--out", str(tmp_path / "new")]) == 2
    assert "build_surds.py" in capsys.readouterr().err
    assert export([*given, str(tmp_path / "pack")]) == 0
    assert export([*given, str(tmp_path / "pack")]) == 2
    assert "--overwrite" in capsys.readouterr().err
    next(data.parent.glob("*.png")).unlink()
    assert export([*given, str(tmp_path / "new")]) == 2
    assert "is missing" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
