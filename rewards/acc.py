"""The `acc` reward: is the answer right, by the evaluator's own strict grade?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rewards.grading import Grade, Truth, grade_text
from rewards.normal_form import normalise
from rewards.response import last_answer, numbers_in, strip_special_tokens
from rewards.settings import RewardSettings, completion_text

DEPTH_SCALE_M = 5.0


def acc_reward(
    completions: Sequence[object],
    *,
    settings: RewardSettings,
    task: Sequence[str],
    options: Sequence[Sequence[str]],
    answer: Sequence[str],
    objects: Sequence[Sequence[dict[str, Any]]],
    width: Sequence[int],
    height: Sequence[int],
    **_: object,
) -> list[float | None]:
    """1 for a right answer; a point is right when it lies in the true box with centerness above 0.

    `settings.acc_kind` linear pays centerness for points and exp(-gap / 5 m) between chosen and true depth range.
    """
    rewards: list[float | None] = []
    for item, *row in zip(completions, task, options, answer, objects, width, height, strict=True):
        truth = _truth(*row)
        text = completion_text(item)
        rewards.append(settings.pay(_score(text, truth, grade_text(text, truth, settings.frame), settings.acc_kind)))
    return rewards


def _truth(
    task: str, options: Sequence[str], answer: str, objects: Sequence[dict[str, Any]], width: int, height: int
) -> Truth:
    x1, y1, x2, y2 = objects[0]["bbox"]
    return Truth(task, answer, tuple(options), (x1, y1, x2, y2), (width, height))


def _score(text: str, truth: Truth, grade: Grade, kind: str) -> float:
    if kind == "linear" and truth.task == "pixel":
        return grade.score
    if kind == "linear" and truth.task == "depth" and grade.valid:
        return math.exp(-_gap_m(last_answer(strip_special_tokens(text)) or "", truth) / DEPTH_SCALE_M)
    return float(grade.score > 0)


def _gap_m(answer: str, truth: Truth) -> float:
    """Metres between the chosen range and the true one; 0 when they are the same."""
    if normalise(answer) == normalise(truth.answer):
        return 0.0
    (low, high), (true_low, true_high) = _range_m(answer), _range_m(truth.answer)
    return max(true_low - high, low - true_high, 0.0)


def _range_m(option: str) -> tuple[float, float]:
    low, high = numbers_in(normalise(option))[:2]
    return low, high
