"""Is this answer right, and what does it score? Used by the `acc` reward and by the evaluator alike.

Two ways of reading an answer: `strict` (the project's own) and `official` (the published evaluation, letter by
letter, with its searches inside sentences). The score of a question is 0..1; a mirrored pair is scored by
`unit_score`.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from rewards.boxes import Box, CoordinateFrame, Size, centerness
from rewards.normal_form import normalise
from rewards.response import (
    contains_phrase,
    first_answer,
    first_number_list,
    last_answer,
    read_point,
    strip_special_tokens,
    without_articles,
)

TASKS = ("yaw", "pixel", "depth", "distance", "left_right", "front_behind")
PAIR_TASKS = ("distance", "left_right", "front_behind")
MIRRORED_TASKS = frozenset({"yaw", "distance", "left_right", "front_behind"})
GRADING_REASONS = ("no_answer", "no_option", "several_options", "out_of_image", "not_a_number", "wrong")
SCORINGS = ("strict", "official")

_PUBLISHED_SIZE: Size = (1600, 900)


@dataclass(frozen=True)
class Truth:
    """What grading needs to know of a question. `box_xyxy_px` and `image_size` are in original pixels."""

    task: str
    answer: str
    options: tuple[str, ...] = ()
    box_xyxy_px: Box | None = None
    image_size: Size = _PUBLISHED_SIZE


@dataclass(frozen=True)
class Grade:
    """The verdict on one answer: was it usable at all, what does it score (0..1), and why not full marks."""

    valid: bool
    score: float
    reasons: tuple[str, ...] = ()


def grade_text(text: str, truth: Truth, frame: CoordinateFrame, scoring: str = "strict") -> Grade:
    """Grade a model's whole output under `strict` or `official` scoring. Never raises on the text."""
    if scoring == "strict":
        return grade_answer(last_answer(strip_special_tokens(text)), truth, frame)
    if scoring == "official":
        return _grade_official(first_answer(text), truth)
    raise ValueError(f"unknown scoring {scoring!r}; known: {', '.join(SCORINGS)}")


def grade_answer(answer: str | None, truth: Truth, frame: CoordinateFrame) -> Grade:
    """Grade an extracted answer strictly; a point is read in the frame of the run."""
    if not answer:
        return Grade(False, 0.0, ("no_answer",))
    if truth.task == "pixel":
        return _grade_point(answer, truth, frame)
    return _grade_option(answer, truth)


def unit_score(task: str, question_scores: Sequence[float]) -> float:
    """Score of a unit: both questions of a mirrored pair must be right; a single question scores itself."""
    if task in MIRRORED_TASKS:
        return float(len(question_scores) == 2 and all(score == 1.0 for score in question_scores))
    return question_scores[0] if len(question_scores) == 1 else 0.0


def same_answer(answer: str, target: str, frame_size: Size | None = None, tolerance: float = 0.01) -> bool:
    """Whether two answers say the same: equal normal forms, or points within `tolerance` of the frame's sides."""
    point, target_point = read_point(answer), read_point(target)
    if point and target_point and frame_size:
        return all(abs(a - b) <= tolerance * side for a, b, side in zip(point, target_point, frame_size, strict=True))
    return normalise(answer) == normalise(target) != ""


def _grade_option(answer: str, truth: Truth) -> Grade:
    given = normalise(answer)
    forms = [normalise(option) for option in truth.options] or [normalise(truth.answer)]
    if given and given in forms:
        right = given == normalise(truth.answer)
        return Grade(True, float(right), () if right else ("wrong",))
    if given and given == normalise(truth.answer):
        return Grade(True, 1.0)
    named = sum(contains_phrase(given, form) for form in set(forms))
    return Grade(False, 0.0, ("several_options" if named >= 2 else "no_option",))


def _grade_point(answer: str, truth: Truth, frame: CoordinateFrame) -> Grade:
    point = read_point(answer)
    if point is None:
        return Grade(False, 0.0, ("not_a_number",))
    width, height = truth.image_size
    x, y = frame.to_original(point, truth.image_size)
    if not (0 <= x < width and 0 <= y < height):
        return Grade(False, 0.0, ("out_of_image",))
    return _centerness_grade((x, y), truth)


def _centerness_grade(point_xy: tuple[float, float], truth: Truth) -> Grade:
    if truth.box_xyxy_px is None:
        raise ValueError(f"a {truth.task} question without the box of its object cannot be graded")
    score = centerness(point_xy, truth.box_xyxy_px)
    return Grade(True, score, () if score > 0 else ("wrong",))


_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _official_form(text: str) -> str:
    return " ".join(without_articles(text.lower().translate(_PUNCTUATION)).split())


def _grade_official(answer: str, truth: Truth) -> Grade:
    """The published rule: validity by a search with word boundaries, then equality of normalised texts."""
    if truth.task == "pixel":
        return _official_point(answer, truth)
    if not answer:
        return Grade(False, 0.0, ("no_answer",))
    lowered = answer.lower()
    if not any(contains_phrase(lowered, option.lower()) for option in truth.options):
        return Grade(False, 0.0, ("no_option",))
    right = _official_form(answer) == _official_form(truth.answer)
    return Grade(True, float(right), () if right else ("wrong",))


def _official_point(answer: str, truth: Truth) -> Grade:
    """The published reading of a point: centre of four by `//`, then values below 1 count as shares of 1600x900."""
    numbers = first_number_list(answer)
    if numbers is None:
        return Grade(False, 0.0, ("not_a_number" if answer else "no_answer",))
    if len(numbers) == 4:
        numbers = [(numbers[0] + numbers[2]) // 2, (numbers[1] + numbers[3]) // 2]
    x, y = (value * side if value < 1 else value for value, side in zip(numbers, _PUBLISHED_SIZE, strict=True))
    if not (0 <= x < _PUBLISHED_SIZE[0] and 0 <= y < _PUBLISHED_SIZE[1]):  # also when a number is no finite one
        return Grade(False, 0.0, ("out_of_image",))
    return _centerness_grade((x, y), truth)
