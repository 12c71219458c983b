"""DriveMLLM: an output -> what it says and how far that is from the truth.

As in the published evaluation, the answer is what stands between the first pair of markers. It is read, or invalid:
an exact description of the image (with or without the article), exactly Yes or No, a bare number of metres, [x, y] or
[x1, y1, x2, y2] inside the image. Stricter than there, a number is finite and not negative, and a list has exactly two
or four numbers: one nan would make every mean a nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from data_gen.drivemllm.prompts import ANSWER_END, ANSWER_START
from data_gen.drivemllm.records import DriveMLLMQuestion
from rewards.boxes import Box, CoordinateFrame, Size, iou
from rewards.response import between, whole_list, whole_number

# Per task, how fast accuracy falls with the error: per metre, per pixel for positions.
ALPHAS = {
    "horizontal_distance": 0.05,
    "object_distance": 0.05,
    "depth": 0.05,
    "camera_distance": 0.05,
    "position": 0.005,
}


@dataclass(frozen=True)
class Mark:
    """What an answer is worth, 0..1, and in measured tasks its error in metres or pixels; `reason`: why nothing.

    valid: it could be read. values: a point or box that was read, in original pixels.
    """

    accuracy: float = 0.0
    error: float | None = None
    reason: str | None = None
    valid: bool = True
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """One question with what a model made of it; answer: the text between the markers, None without them."""

    question: DriveMLLMQuestion
    output: str
    tokens: int
    answer: str | None
    mark: Mark


def assess(question: DriveMLLMQuestion, output: str, tokens: int, frame: CoordinateFrame) -> Outcome:
    """Read and grade one output. `frame`: the coordinates that it is written in."""
    answer = between(output, ANSWER_START, ANSWER_END)
    mark = _GRADERS[question.task](question, answer, frame) if answer else _invalid("no_answer")
    return Outcome(question, output, tokens, answer, mark)


def accuracy_of(task: str, error: float) -> float:
    """1 / (1 + alpha * error), the accuracy of one answer to a question of a measured task."""
    return 1 / (1 + ALPHAS[task] * error)


def _name(question: DriveMLLMQuestion, answer: str, frame: CoordinateFrame) -> Mark:
    said = answer if answer in question.options else answer.removeprefix("the ")
    return _told(said == question.answer) if said in question.options else _invalid("no_option")


def _yes_no(question: DriveMLLMQuestion, answer: str, frame: CoordinateFrame) -> Mark:
    return _told(answer == question.answer) if answer in question.options else _invalid("no_option")


def _metres(question: DriveMLLMQuestion, answer: str, frame: CoordinateFrame) -> Mark:
    said_m, truth_m = whole_number(answer), question.answer
    if said_m is None or said_m < 0 or not isinstance(truth_m, int | float):
        return _invalid("not_a_number")
    return _measured(question, abs(said_m - truth_m))


def _point(question: DriveMLLMQuestion, answer: str, frame: CoordinateFrame) -> Mark:
    said = whole_list(answer)
    if said is None or len(said) != 2:
        return _invalid("not_a_number")
    point_px = _to_pixels(said, frame, question.image_size)
    if point_px is None:
        return _invalid("out_of_image")
    return _measured(question, math.dist(point_px, _numbers(question)), point_px)


def _box(question: DriveMLLMQuestion, answer: str, frame: CoordinateFrame) -> Mark:
    said = whole_list(answer)
    if said is None or len(said) != 4:
        return _invalid("not_a_number")
    box_px = _to_pixels(said, frame, question.image_size)
    if box_px is None:
        return _invalid("out_of_image")
    x1, y1, x2, y2 = box_px
    # Reversed corners enclose nothing: the form asks for the left, upper, right and lower edge in this order.
    shared = iou((x1, y1, x2, y2), _box_of(_numbers(question))) if x1 < x2 and y1 < y2 else 0.0
    return Mark(shared, None, None if shared > 0 else "wrong", values=box_px)


_GRADERS: dict[str, Callable[[DriveMLLMQuestion, str, CoordinateFrame], Mark]] = {
    "left_right": _name,
    "front_behind": _yes_no,
    "horizontal_distance": _metres,
    "object_distance": _metres,
    "position": _point,
    "box": _box,
    "depth": _metres,
    "camera_distance": _metres,
}


def _to_pixels(values: list[float], frame: CoordinateFrame, size: Size) -> tuple[float, ...] | None:
    """x, y, ... of the frame in original pixels, None outside the image.

    The last pixel is the largest coordinate. In other frames the far edge itself counts as it: 1000 of 0..1000 is no
    pixel, and a prompt allows it.
    """
    pixels = frame.to_original(values, size)
    slack = 0 if frame.kind == "original" else 1
    last = [side - 1 for side in size]
    if not all(0 <= value <= most + slack for value, most in zip(pixels, cycle(last), strict=False)):
        return None
    return tuple(min(value, most) for value, most in zip(pixels, cycle(last), strict=False))


def _numbers(question: DriveMLLMQuestion) -> tuple[float, ...]:
    if not isinstance(question.answer, tuple):
        raise TypeError(f"the answer of {question.id} is no list: {question.answer!r}")
    return question.answer


def _box_of(values: tuple[float, ...]) -> Box:
    x1, y1, x2, y2 = values
    return x1, y1, x2, y2


def _told(right: bool) -> Mark:
    return Mark(float(right), None, None if right else "wrong")


def _measured(question: DriveMLLMQuestion, error: float, values: tuple[float, ...] = ()) -> Mark:
    return Mark(accuracy_of(question.task, error), error, values=values)


def _invalid(reason: str) -> Mark:
    return Mark(reason=reason, valid=False)
