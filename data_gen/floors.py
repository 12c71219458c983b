"""What answers without looking score on the same questions: the bars a model has to clear.

All in fractions, by the metric of the task (SURDS: a mirrored pair counts only when both of its questions are right).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from data_gen.records import Question, RecordError
from rewards.boxes import Box, Size
from rewards.grading import MIRRORED_TASKS
from rewards.normal_form import normalise
from rewards.response import numbers_in

Unit = Sequence[Question]
GRID_XY = (320, 180)


def units_of(questions: Sequence[Question]) -> dict[str, list[Question]]:
    """Questions by unit, variants in order. Raises RecordError when a mirrored pair is not two questions."""
    units: dict[str, list[Question]] = {}
    for question in questions:
        units.setdefault(question.unit, []).append(question)
    for name, members in units.items():
        members.sort(key=lambda question: question.variant)
        due = [0, 1] if members[0].task in MIRRORED_TASKS else [0]
        if [question.variant for question in members] != due:
            ids = ", ".join(question.id for question in members)
            raise RecordError(f"unit {name} needs the question variants {due}, the file has {ids}")
    return units


def task_floors(task: str, units: Sequence[Unit]) -> dict[str, float]:
    """The floors of one task over its units; `honest` is the one to beat.

    independent: a uniform guess for every question, in expectation. self_consistent: one uniform guess per pair,
    never a tie, turned round for the second question. constant_position, constant_text: the best fixed answer to each
    form of the question. widest_option: the widest depth range. best_rank: always the nearest, the middle or the
    farthest depth range, whichever is right most often. constant_point: the best fixed point.
    """
    if task == "pixel":
        boxes = [(question.objects[0].bbox, question.image_size) for unit in units for question in unit]
        floors = {"independent": _mean(map(_random_point, boxes)), "constant_point": best_point(boxes)[1]}
        return {**floors, "honest": floors["constant_point"]}
    floors = {
        "independent": _mean(math.prod(1 / len(question.options) for question in unit) for unit in units),
        "constant_position": _share_of_commonest(positions(unit) for unit in units),
        "constant_text": _share_of_commonest(texts(unit) for unit in units),
    }
    if task in MIRRORED_TASKS:
        floors["self_consistent"] = _mean(map(self_consistent, units))
        return {**floors, "honest": floors["self_consistent"]}
    floors["widest_option"] = _mean(right_among(question, widest_ranges(question)) for (question,) in units)
    floors["best_rank"] = _share_of_commonest(true_place(question) for (question,) in units)
    return {**floors, "honest": floors["independent"]}


def self_consistent(unit: Unit) -> float:
    """Chance that one guess, turned round for the second question, is right on both."""
    first, second = unit
    if first.task == "yaw":
        return 1 / len(first.options)
    return 0.0 if first.answer == second.answer else 0.5


def positions(unit: Unit) -> tuple[int, ...]:
    """Places of the true options, from 0, question by question."""
    return tuple(question.options.index(question.answer_text) for question in unit)


def texts(unit: Unit) -> tuple[str, ...]:
    """Normal forms of the true answers, question by question."""
    return tuple(normalise(question.answer_text) for question in unit)


def range_m(option: str) -> tuple[float, float]:
    """The two numbers of a depth option."""
    low_m, high_m = numbers_in(option)[:2]
    return low_m, high_m


def true_place(question: Question) -> int:
    """Place of the true range of a depth question among its options from near to far, from 0."""
    return sorted(question.options, key=range_m).index(question.answer_text)


def widest_ranges(question: Question) -> list[str]:
    """The options of a depth question that share the greatest width."""
    widths_m = {option: range_m(option)[1] - range_m(option)[0] for option in question.options}
    return [option for option, width_m in widths_m.items() if width_m == max(widths_m.values())]


def right_among(question: Question, chosen: Sequence[str]) -> float:
    """Chance of the truth when one of the chosen options is taken at random."""
    return (question.answer in chosen) / len(chosen)


def expected_centerness(box: Box, image_size: Size) -> float:
    """Mean centerness, over the image of (width, height), of a uniformly drawn point.

    Centerness is a product of sqrt(t / (1 - t)) of both axes, t <= 1/2 the share of the side to the nearer edge;
    its integral is asin(sqrt(t)) - sqrt(t (1 - t)), which makes (pi / 2 - 1) per whole side.
    """
    sides = zip(box[:2], box[2:], image_size, strict=True)
    return math.prod(_axis_integral(low, high, length) / length for low, high, length in sides)


def best_point(boxes: Sequence[tuple[Box, Size]]) -> tuple[tuple[float, float], float]:
    """The point (x, y), as shares of the image's sides, whose mean centerness is highest, and that mean; on a grid."""
    corners = np.array([box for box, _ in boxes]).reshape(-1, 2, 2)
    shares = corners / np.array([size for _, size in boxes], dtype=float)[:, None, :]
    axes = [(np.arange(count) + 0.5) / count for count in GRID_XY]
    along_x, along_y = (_axis_centerness(axes[a], shares[:, 0, a], shares[:, 1, a]) for a in (0, 1))
    mean_XY = along_x.T @ along_y / len(boxes)
    x, y = np.unravel_index(int(mean_XY.argmax()), mean_XY.shape)
    return (float(axes[0][x]), float(axes[1][y])), float(mean_XY[x, y])


def _axis_integral(low: float, high: float, length: float) -> float:
    """Integral of one axis' factor of centerness over the part of low..high inside 0..length."""
    side = high - low
    if side <= 0:
        return 0.0
    first, last = (min(max((edge - low) / side, 0.0), 1.0) for edge in (0.0, length))
    return side * (_half_integral(last) - _half_integral(first))


def _half_integral(share: float) -> float:
    """Integral from 0 to `share` (of a side of length 1); the function is symmetric about 1/2."""
    near = min(share, 1 - share)
    value = math.asin(math.sqrt(near)) - math.sqrt(near * (1 - near))
    return value if share <= 0.5 else math.pi / 2 - 1 - value


def _axis_centerness(positions_P: np.ndarray, low_N: np.ndarray, high_N: np.ndarray) -> np.ndarray:
    """One axis' factor of centerness for all boxes and positions, (N, P)."""
    to_low = positions_P[None, :] - low_N[:, None]
    to_high = high_N[:, None] - positions_P[None, :]
    nearer, farther = np.minimum(to_low, to_high), np.maximum(to_low, to_high)
    return np.sqrt(np.clip(nearer, 0, None) / np.maximum(farther, 1e-12))


def _random_point(item: tuple[Box, Size]) -> float:
    return expected_centerness(*item)


def _share_of_commonest(items: Iterable[Hashable]) -> float:
    """How often the most common item occurs: what always giving it scores."""
    counts = Counter(items)
    return max(counts.values()) / counts.total()


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
