"""What was true against what was answered: each answer is told by its part in the question."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from small_questions import make_questions, perfect_output

from eval.confusion import ANSWERS, INVALID, answered, confusions, truth
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS


def test_right_answers_lie_on_the_diagonal_and_others_where_they_belong() -> None:
    questions = make_questions()
    told = {q.id: {"answer": re.search("<answer>(.*)</answer>", perfect_output(q))[1]} for q in questions}  # type: ignore[index]
    tables = confusions(questions, told, CoordinateFrame())
    assert set(tables) == set(TASKS)
    for task, table in tables.items():
        cells = [(r, c, n) for r, row in enumerate(table.counts) for c, n in enumerate(row) if n]
        assert all(table.is_right(row, column) for row, column, _ in cells)
        assert sum(count for *_, count in cells) == sum(question.task == task for question in questions)
    silent = confusions(questions, {q.id: {"answer": None} for q in questions}, CoordinateFrame())
    assert all(sum(row[:-1]) == 0 for table in silent.values() for row in table.counts)


@pytest.mark.parametrize(
    ("task", "answer", "role"),
    [
        ("distance", 0, "first object"),
        ("left_right", 1, "second object"),
        ("distance", 2, "tie"),
        ("front_behind", 0, "Yes"),
        ("front_behind", 1, "No"),
        ("front_behind", 2, "tie"),
        ("distance", "the", INVALID),
        ("yaw", "north-east or so", INVALID),
        ("pixel", "[1e9, 3]", INVALID),
        ("pixel", "[170, 3]", INVALID),
        ("pixel", "somewhere", INVALID),
        ("pixel", "[1, 1]", "left third"),
        ("pixel", "[80, 1]", "middle third"),
        ("pixel", "[159, 1]", "right third"),
    ],
)
def test_answers_are_told_by_their_part(task: str, answer: int | str, role: str) -> None:
    question = next(item for item in make_questions() if item.task == task)
    text = question.options[answer] if isinstance(answer, int) else answer
    assert answered(question, text, CoordinateFrame()) == role
    assert answered(question, f"  **{text}**.", CoordinateFrame()) == (INVALID if task == "pixel" else role)


def test_depth_ranges_are_told_by_rank_and_headings_by_name() -> None:
    questions = make_questions()
    depth = next(item for item in questions if item.task == "depth")
    nearest = min(depth.options, key=lambda option: float(option.split()[1]))
    assert answered(depth, nearest, CoordinateFrame()) == "nearest"
    yaw = next(item for item in questions if item.task == "yaw")
    assert answered(yaw, yaw.options[1].upper(), CoordinateFrame()) == yaw.options[1]
    assert truth(yaw) == yaw.answer and yaw.answer in ANSWERS["yaw"]


def test_parts_beyond_the_usual_ones_get_columns_of_their_own() -> None:
    question = next(item for item in make_questions() if item.task == "depth")
    wide = replace(question, options=(*question.options, "Between 90 meters and 99 meters"))
    table = confusions([wide], {wide.id: {"answer": wide.options[3]}}, CoordinateFrame())["depth"]
    assert "option 4" in table.columns and sum(map(sum, table.counts)) == 1
