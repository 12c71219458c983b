"""Questions as somebody would see them who misread the picture: what a trace errs about while its answer is right.

A large model that is told the answer and asked for reasons often reasons past it. The oracle errs so too when it writes
about a false question: the same objects in other places, at other depths or turned otherwise, so that another answer
is true of them. Boxes move as the picture of an object that stands on the ground before a level camera would.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from data_gen.compass import DIRECTIONS
from data_gen.oracle import TIE
from data_gen.oracle_cues import level_of
from data_gen.records import Pixels4, Question, QuestionObject
from rewards.response import numbers_in

ERRING = "erring"  # field of a trace whose reasoning errs: the answer that it leads to
FARTHER = 1.7  # ratio of the distances of two objects that are told apart where they are not
TIE_COLUMNS = 0.03  # how far apart two objects in one column are, at most, as a share of the image width
LEFT_COLUMNS, RIGHT_COLUMNS = (0.1, 0.35), (0.65, 0.9)  # shares of the image width


def errs(question: Question, share: float, seed: int) -> bool:
    """Whether the trace of a question is one of the share that err."""
    return random.Random(f"erring-{seed}-{question.id}").random() < share


def misread(question: Question, seed: int = 0) -> Question:
    """The question with another answer, and with objects of which that is true; id, words and options stay."""
    rng = random.Random(f"misread-{seed}-{question.id}")
    return _MISREADERS[question.task](question, rng)


def at_ratio(item: QuestionObject, ratio: float, question: Question) -> QuestionObject:
    """The object at `ratio` times its distance on the same ray from the camera, with the box that it has there."""
    horizon_px, (x_px, y_px) = question.height / 2, item.pixel
    x1, y1, x2, y2 = item.bbox
    columns = [x_px + (x - x_px) / ratio for x in (x1, x2)]
    rows = [horizon_px + (y - horizon_px) / ratio for y in (y1, y2, y_px)]
    box = _inside((columns[0], rows[0], columns[1], rows[1]), question)
    x_m, y_m, z_m = item.xyz_m
    return replace(item, bbox=box, pixel=(x_px, rows[2]), xyz_m=(x_m * ratio, y_m, z_m * ratio))


def moved(item: QuestionObject, right_px: float, down_px: float, question: Question) -> QuestionObject:
    """The object with box and centre elsewhere in the picture, at the same depth."""
    (x_px, y_px), (x1, y1, x2, y2) = item.pixel, item.bbox
    box = _inside((x1 + right_px, y1 + down_px, x2 + right_px, y2 + down_px), question)
    return replace(item, bbox=box, pixel=(x_px + right_px, y_px + down_px))


def _inside(box: Pixels4, question: Question) -> Pixels4:
    """The part of a box that lies in the image, at least a pixel wide and high."""
    x1, y1 = (max(0.0, min(low, side - 1)) for low, side in zip(box[:2], question.image_size, strict=True))
    x2, y2 = (min(high, side) for high, side in zip(box[2:], question.image_size, strict=True))
    return x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)


def _yaw(question: Question, rng: random.Random) -> Question:
    answer = rng.choice(_others(question))
    (item,) = question.objects
    turn_rad = (DIRECTIONS.index(answer) - DIRECTIONS.index(question.answer_text)) * math.pi / 4
    turned = None if item.yaw_rad is None else math.remainder(item.yaw_rad + turn_rad, math.tau)
    return replace(question, answer=answer, objects=(replace(item, yaw_rad=turned),))


def _depth(question: Question, rng: random.Random) -> Question:
    """At the depth of another range, of one that looks otherwise if there is one."""
    (item,) = question.objects
    depth_of = {option: sum(numbers_in(option)[:2]) / 2 for option in _others(question)}
    unlike = [option for option in depth_of if level_of(depth_of[option]) != level_of(item.xyz_m[2])]
    answer = rng.choice(unlike or list(depth_of))
    return replace(question, answer=answer, objects=(at_ratio(item, depth_of[answer] / item.xyz_m[2], question),))


def _pixel(question: Question, rng: random.Random) -> Question:
    """Its box beside the true one, on the side with most room, so that its centre lies outside of the true box."""
    (item,) = question.objects
    (x_px, y_px), (x1, y1, x2, y2) = item.pixel, item.bbox
    width, height = question.image_size
    steps = {  # direction -> (how far the centre has to go to leave the true box, how far it can)
        (1, 0): (x2 - x_px, 0.97 * width - x_px), (-1, 0): (x_px - x1, x_px - 0.03 * width),
        (0, 1): (y2 - y_px, 0.97 * height - y_px), (0, -1): (y_px - y1, y_px - 0.03 * height),
    }  # fmt: skip
    (right, down), (needed_px, room_px) = max(steps.items(), key=lambda step: step[1][1] / max(1.0, step[1][0]))
    step_px = min(room_px, needed_px * rng.uniform(1.2, 2.0) + 1)
    seen = moved(item, right * step_px, down * step_px, question)
    return replace(question, answer=(round(seen.pixel[0]), round(seen.pixel[1])), objects=(seen,))


def _distance(question: Question, rng: random.Random) -> Question:
    def far_m(item: QuestionObject) -> float:
        return math.hypot(*item.xyz_m)

    return _otherwise_far(question, rng, far_m, lambda wanted: wanted if question.variant == 0 else 1 - wanted)


def _front_behind(question: Question, rng: random.Random) -> Question:
    # "Yes" to the first question and "No" to the second: the second object is the nearer one.
    return _otherwise_far(question, rng, lambda item: item.xyz_m[2], lambda wanted: int(wanted == question.variant))


def _otherwise_far(
    question: Question,
    rng: random.Random,
    far_m: Callable[[QuestionObject], float],
    nearer_if: Callable[[int], int],
) -> Question:
    """Two objects at other distances. nearer_if: index of the nearer object when an option, by index, is true."""
    answer = rng.choice(_others(question))
    wanted = question.options.index(answer)
    a, b = question.objects
    if wanted == TIE:
        a_ratio, b_ratio = 1.0, far_m(a) / far_m(b)
    elif question.answer == question.options[TIE]:
        ratios = (1.0, FARTHER) if nearer_if(wanted) == 0 else (FARTHER, 1.0)
        a_ratio, b_ratio = ratios
    else:
        a_ratio, b_ratio = far_m(b) / far_m(a), far_m(a) / far_m(b)
    return replace(question, answer=answer, objects=(at_ratio(a, a_ratio, question), at_ratio(b, b_ratio, question)))


def _left_right(question: Question, rng: random.Random) -> Question:
    """The columns of two objects exchanged, or one, or two where there was one."""
    answer = rng.choice(_others(question))
    wanted, columns = question.options.index(answer), [item.pixel[0] for item in question.objects]
    if wanted == TIE:
        inward = 1 if columns[0] < question.width / 2 else -1
        seen = [columns[0], columns[0] + inward * rng.uniform(0.0, TIE_COLUMNS) * question.width]
    elif question.answer == question.options[TIE]:
        seen = [rng.uniform(*LEFT_COLUMNS) * question.width, rng.uniform(*RIGHT_COLUMNS) * question.width]
        first_is_lefter = (wanted == 0) == (question.variant == 0)
        seen = seen if first_is_lefter else seen[::-1]
    else:
        seen = columns[::-1]
    objects = [
        moved(item, seen_px - column_px, 0.0, question)
        for item, seen_px, column_px in zip(question.objects, seen, columns, strict=True)
    ]
    return replace(question, answer=answer, objects=tuple(objects))


def _others(question: Question) -> list[str]:
    return [option for option in question.options if option != question.answer]


_MISREADERS: dict[str, Callable[[Question, random.Random], Question]] = {
    "yaw": _yaw,
    "pixel": _pixel,
    "depth": _depth,
    "distance": _distance,
    "left_right": _left_right,
    "front_behind": _front_behind,
}
