"""Records: what is written is read again, unknown fields included, and a broken row names its line and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_questions import make_questions, make_scenes, write_small_set

from data_gen.images import check_images, open_rgb
from data_gen.records import (
    RecordError,
    Trace,
    question_from_row,
    question_to_row,
    read_questions,
    read_traces,
    trace_to_row,
    write_rows,
)
from data_gen.scene_records import read_scenes, scene_to_row

QUESTIONS = make_questions(4)


def row_of(task: str) -> dict[str, Any]:
    return json.loads(json.dumps(question_to_row(next(item for item in QUESTIONS if item.task == task))))


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_rows(tmp_path / "q.jsonl", map(question_to_row, QUESTIONS))
    assert read_questions(tmp_path / "q.jsonl") == QUESTIONS
    scenes = make_scenes(4)
    write_rows(tmp_path / "s.jsonl", map(scene_to_row, scenes))
    assert read_scenes(tmp_path / "s.jsonl") == scenes
    traces = [Trace(item, "It is so.", "test", "sha", 2) for item in QUESTIONS]
    write_rows(tmp_path / "t.jsonl", map(trace_to_row, traces))
    assert read_traces(tmp_path / "t.jsonl") == traces


@pytest.mark.parametrize("own", [{"weather": "rain"}, {}], ids=["question and object", "object alone"])
def test_unknown_fields_are_kept_at_every_level_and_the_row_stays_as_it_is(own: dict[str, str]) -> None:
    row = row_of("depth") | own
    row["objects"][0]["instance"] = "abc"
    before = json.loads(json.dumps(row))
    again = json.loads(json.dumps(question_to_row(question_from_row(row))))
    assert again == row == before


def test_byte_order_mark_blank_lines_and_other_line_ends_are_fine(tmp_path: Path) -> None:
    lines = [json.dumps(question_to_row(item)) for item in QUESTIONS]
    (tmp_path / "q.jsonl").write_bytes(("\ufeff\r\n" + "\r\n\r\n".join(lines) + "\r\n").encode())
    assert read_questions(tmp_path / "q.jsonl") == QUESTIONS


@pytest.mark.parametrize(
    ("task", "change", "reason"),
    [
        ("depth", {"task": "speed"}, "unknown task 'speed'"),
        ("depth", {"width": "wide"}, "Expected `int`"),
        ("depth", {"width": 0}, "an image of 0x"),
        ("depth", {"width": 96 * 201}, "an image of"),
        ("depth", {"objects": []}, "one object, got 0"),
        ("distance", {"objects": row_of("depth")["objects"]}, "two objects, got 1"),
        ("depth", {"pair_id": "x"}, "has no pair_id"),
        ("yaw", {"pair_id": None}, "needs a pair_id"),
        ("yaw", {"variant": 2}, "variant 2"),
        ("pixel", {"answer": "left"}, r"a pixel answer is \[x, y\]"),
        ("pixel", {"answer": [-50, 10]}, "outside the image"),
        ("yaw", {"answer": "Up"}, "none of the options"),
        ("yaw", {"options": ["North", "north.", "East", "South"], "answer": "North"}, "say the same"),
        ("depth", {"options": ["near", "mid", "far"], "answer": "mid"}, "range of two numbers"),
        ("depth", {"question": " "}, "question is empty"),
        ("depth", {"question": "What is <|image_pad|>?"}, "tags or special tokens"),
    ],
)
def test_a_broken_question_names_line_and_reason(
    tmp_path: Path, task: str, change: dict[str, Any], reason: str
) -> None:
    path = write_lines(tmp_path / "q.jsonl", [row_of("pixel") | {"id": "pixel-0"}, row_of(task) | change])
    with pytest.raises(RecordError, match=rf"q\.jsonl, line 2: .*{reason}"):
        read_questions(path)


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ([5, 5, 5, 9], "x1 < x2"),
        ([9, 9, 5, 5], "x1 < x2"),
        ([float("nan"), 0, 5, 5], "x1 < x2"),
        ([900, 9, 950, 20], "outside"),
    ],
)
def test_a_broken_box_is_named(tmp_path: Path, box: list[float], reason: str) -> None:
    row = row_of("depth")
    row["objects"][0]["bbox"] = box
    with pytest.raises(RecordError, match=reason):
        read_questions(write_lines(tmp_path / "q.jsonl", [row]))


@pytest.mark.parametrize("line", ["{", "[1]", '{"id": "x"}', "null"])
def test_a_line_that_is_no_question_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(RecordError, match=r"q\.jsonl, line 2: "):
        read_questions(write_lines(tmp_path / "q.jsonl", [row_of("pixel"), line]))


def test_bytes_that_are_no_text_repeated_ids_and_lone_halves_are_named(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(json.dumps(row_of("pixel")).encode() + b'\n{"id": "\xe9"}\n')
    with pytest.raises(RecordError, match="line 2: no JSON in UTF-8"):
        read_questions(path)
    with pytest.raises(RecordError, match=r"line 2: repeats the id .* of line 1"):
        read_questions(write_lines(path, [row_of("pixel"), row_of("pixel")]))
    with pytest.raises(RecordError, match="lacks the other half"):
        read_questions(write_lines(path, [row_of("yaw")]))
    with pytest.raises(RecordError, match="no file at"):
        read_questions(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"reasoning": "  "}, "is empty"),
        ({"reasoning": "so</think><answer>x</answer>"}, "tags"),
        ({"verdict": ["too_long"]}, "was rejected: too_long"),
    ],
)
def test_a_trace_that_must_not_be_learned_is_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    row = trace_to_row(Trace(QUESTIONS[0], "It is so.", "test")) | change
    with pytest.raises(RecordError, match=f"line 1: .*{reason}"):
        read_traces(write_lines(tmp_path / "t.jsonl", [row]))


def test_images_that_a_run_would_meet_hours_later_are_found_at_once(tmp_path: Path) -> None:
    questions = read_questions(write_small_set(tmp_path, images=2))
    check_images(questions, tmp_path)
    path = tmp_path / questions[0].image
    whole = path.read_bytes()
    Image.effect_noise((160, 96), 60).convert("RGB").save(tmp_path / "noise.jpg")
    for content, reason in (
        ((tmp_path / "noise.jpg").read_bytes()[:-400], "cannot be read"),
        (b"no image", "cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=f"{path.name} {reason}"):
            check_images(questions, tmp_path)
    Image.new("I;16", (160, 96)).save(path, format="PNG")
    for look in (lambda: check_images(questions, tmp_path), lambda: open_rgb(path, (160, 96))):
        with pytest.raises(RecordError, match="8 bits"):
            look()
    path.write_bytes(whole)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 2 images"):
        check_images(questions, tmp_path)
