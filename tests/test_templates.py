"""Prompts from outside template files: slots in the published order, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_questions import make_questions

from data_gen.command_line import UsageError
from data_gen.prompts import prompt_of
from data_gen.records import question_from_row, question_to_row
from data_gen.templates import read_templates
from rewards.boxes import CoordinateFrame

# Called as where they were published; the wording is the tests' own.
FILES = {
    "00_yaw_vqa.txt": "camera {}: {} faces? {}|{}|{}|{}",
    "01_xy2d_vqa.txt": "where is {}?",
    "02_depth_vqa.txt": "depth of {}? {}|{}|{}",
    "03_dis_vqa.txt": "{} or {}, which is {}? {}|{}",
    "04_lf_vqa.txt": "further {}: {} or {}? {}|{}",
    "05_fb_vqa.txt": "is {} {} {}?",
}


def write_templates(folder: Path, end: str = "") -> Path:
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text + end)
    return folder


def test_every_slot_gets_what_the_published_order_says(tmp_path: Path) -> None:
    templates = read_templates(write_templates(tmp_path / "t"))
    prompts = {question.id: templates.prompt(question) for question in make_questions()}
    assert prompts["yaw-0-0"].startswith("camera North: the ") and prompts["yaw-0-1"].startswith("camera South: the ")
    by_task = {question.task: question for question in make_questions() if question.variant == 0}
    first, second = (item.name for item in by_task["distance"].objects)
    option1, option2 = by_task["distance"].options[:2]
    assert templates.prompt(by_task["distance"]) == f"the {first} or the {second}, which is closer? {option1}|{option2}"
    assert templates.prompt(by_task["left_right"]) == f"further left: the {first} or the {second}? {option1}|{option2}"
    assert templates.prompt(by_task["front_behind"]) == f"is the {first} in front of the {second}?"
    name = by_task["depth"].objects[0].name
    assert templates.prompt(by_task["depth"]) == f"depth of the {name}? {'|'.join(by_task['depth'].options)}"
    assert templates.prompt(by_task["pixel"]) == f"where is the {name}?"


def test_two_more_slots_are_the_marks_round_the_answer(tmp_path: Path) -> None:
    templates = read_templates(write_templates(tmp_path / "t", " {}answer{}"))
    assert all(templates.prompt(item).endswith(" <answer>answer</answer>") for item in make_questions())


def test_braces_that_are_no_slots_stay(tmp_path: Path) -> None:
    folder = write_templates(tmp_path / "t")
    (folder / "01_xy2d_vqa.txt").write_text('{"task": 1} {x} where is {}?')
    pixel = next(question for question in make_questions() if question.task == "pixel")
    assert read_templates(folder).prompt(pixel) == f'{{"task": 1}} {{x}} where is the {pixel.objects[0].name}?'


def test_a_filled_question_keeps_its_prompt_in_the_file_and_is_asked_with_it(tmp_path: Path) -> None:
    templates = read_templates(write_templates(tmp_path / "t"))
    question = make_questions()[0]
    filled = templates.fill(question)
    assert question_from_row(question_to_row(filled)) == filled
    assert prompt_of(filled, CoordinateFrame()) == templates.prompt(question) != prompt_of(question, CoordinateFrame())
    assert "prompt" not in question_to_row(question)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "02_depth_vqa.txt").unlink(), r"one template for the task depth.* found: none"),
        (lambda folder: (folder / "depth.txt").write_text("{}"), r"found: 02_depth_vqa\.txt, depth\.txt"),
        (lambda folder: (folder / "00_yaw_vqa.txt").write_text("{} {}"), r"has 2 slots \{\}; a yaw template has 6"),
        (lambda folder: (folder / "05_fb_vqa.txt").write_text("{}{}{}{}"), r"has 4 slots \{\}; a front_behind .* 3"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, change: object, message: str) -> None:
    folder = write_templates(tmp_path / "t")
    change(folder)  # type: ignore[operator]
    with pytest.raises(UsageError, match=message):
        read_templates(folder)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder of templates"):
        read_templates(tmp_path / "nowhere")
