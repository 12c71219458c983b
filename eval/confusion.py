"""What was true against what was answered, task by task: who always says "first", who never says "tie", who is silent.

Options are told by their part in the question, so that questions about different objects add up: the first or the
second object named, Yes or No, the tie, the heading, the nearest, middle or farthest range. A point is told by the
third of the image's width it lies in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_gen.compass import DIRECTIONS
from data_gen.floors import range_m
from data_gen.records import Question
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS
from rewards.normal_form import normalise
from rewards.response import read_point

INVALID = "invalid"
IN_BOX = "in the box"
_OBJECTS = ("first object", "second object", "tie")
_RANGES = ("nearest", "middle", "farthest")
_THIRDS = ("left third", "middle third", "right third")
TRUTHS: dict[str, tuple[str, ...]] = {
    "yaw": DIRECTIONS[::2] + DIRECTIONS[1::2],
    "pixel": _THIRDS,
    "depth": _RANGES,
    "distance": _OBJECTS,
    "left_right": _OBJECTS,
    "front_behind": ("Yes", "No", "tie"),
}
ANSWERS = {task: ((IN_BOX, *roles) if task == "pixel" else roles) + (INVALID,) for task, roles in TRUTHS.items()}


@dataclass(frozen=True)
class Confusion:
    """Counts of questions of one task: a row per truth, a column per kind of answer, the last one `invalid`."""

    task: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def share(self, row: int, column: int) -> float:
        """The part of a row's questions that got this answer; 0 in an empty row."""
        return self.counts[row][column] / max(1, sum(self.counts[row]))

    def is_right(self, row: int, column: int) -> bool:
        """Whether this answer is right for this row."""
        return self.columns[column] == (IN_BOX if self.task == "pixel" else self.rows[row])


def confusions(
    questions: Sequence[Question], predictions: Mapping[str, Mapping[str, Any]], frame: CoordinateFrame
) -> dict[str, Confusion]:
    """Task -> confusion of a run. predictions: lines of its `predictions.jsonl` by question id. frame: its own."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    for question in questions:
        told = answered(question, predictions[question.id]["answer"] or "", frame)
        found.setdefault(question.task, Counter())[truth(question), told] += 1
    return {task: _table(task, found[task]) for task in TASKS if task in found}


def truth(question: Question) -> str:
    """What is true, in the words of `TRUTHS`."""
    if isinstance(question.answer, tuple):
        return _third(question.answer[0], question.width)
    return _role(question, question.answer)


def answered(question: Question, answer: str, frame: CoordinateFrame) -> str:
    """What was answered, in the words of `ANSWERS`; read as strict scoring reads it."""
    if question.task == "pixel":
        return _answered_point(question, answer, frame)
    given = normalise(answer)
    chosen = [option for option in question.options if normalise(option) == given]
    return _role(question, chosen[0]) if chosen else INVALID


def _answered_point(question: Question, answer: str, frame: CoordinateFrame) -> str:
    point = read_point(answer)
    if point is None:
        return INVALID
    x, y = frame.to_original(point, question.image_size)
    if not (0 <= x < question.width and 0 <= y < question.height):
        return INVALID
    x1, y1, x2, y2 = question.objects[0].bbox
    return IN_BOX if x1 < x < x2 and y1 < y < y2 else _third(x, question.width)


def _table(task: str, counts: Counter[tuple[str, str]]) -> Confusion:
    """Counts in the usual order; parts that questions of one's own may have beside the usual ones come after them."""
    others = sorted({part for pair in counts for part in pair} - {*ANSWERS[task], *TRUTHS[task]})
    rows = (*TRUTHS[task], *(part for part in others if any(part == true for true, _ in counts)))
    columns = (*ANSWERS[task][:-1], *others, INVALID)
    return Confusion(task, rows, columns, tuple(tuple(counts[row, column] for column in columns) for row in rows))


def _role(question: Question, option: str) -> str:
    """The part of an option; with more options than the published questions have, its number."""
    if question.task == "yaw":
        return option
    in_order = sorted(question.options, key=range_m) if question.task == "depth" else list(question.options)
    place, roles = in_order.index(option), TRUTHS[question.task]
    return roles[place] if len(in_order) == len(roles) else f"option {place + 1}"


def _third(x_px: float, width_px: int) -> str:
    return _THIRDS[min(2, int(3 * x_px / width_px))]
