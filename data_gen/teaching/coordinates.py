"""Between files, which hold original pixels, and teachers, who see and write coordinates from 0 to 1000.

Two pixels may be one step of a teacher's: what a teacher repeats of a box or point that it was shown is stored as the
true value, so that the last point of a trace is the very one of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from data_gen.records import Question
from rewards.boxes import CoordinateFrame, Size
from rewards.response import map_coordinates, read_point

TEACHER_FRAME = CoordinateFrame("thousand")
_FARTHEST = 1e6  # outside of every picture


def as_shown(reasoning: str, image_size: Size) -> str:
    """A stored trace as teachers see it."""
    return map_coordinates(reasoning, partial(TEACHER_FRAME.to_model, image_size=image_size))


def as_stored(reasoning: str, question: Question) -> str:
    """A teacher's trace as it is stored."""
    return map_coordinates(reasoning, partial(_to_pixels, _shown_to_true(question), question.image_size))


def box_as_shown(box_xyxy_px: Sequence[float], image_size: Size) -> str:
    """A true box as teachers see it."""
    return f"[{_point(TEACHER_FRAME.to_model(box_xyxy_px, image_size))}]"


def answer_as_shown(answer: str, image_size: Size) -> str:
    """A stored answer as teachers see it; an option stays as it is."""
    point = read_point(answer)
    return _point(TEACHER_FRAME.to_model(point, image_size)) if point else answer


def answer_as_stored(answer: str, question: Question) -> str:
    """A teacher's answer as it is stored. A point may have the double brackets of running text."""
    point = read_point(answer[1:-1] if answer.startswith("[[") and answer.endswith("]]") else answer)
    return _point(_to_pixels(_shown_to_true(question), question.image_size, point)) if point else answer


def _shown_to_true(question: Question) -> dict[tuple[int, ...], Sequence[float]]:
    """Points and boxes of the truth in pixels, by what they are for a teacher."""
    true: list[Sequence[float]] = [values for item in question.objects for values in (item.pixel, item.bbox)]
    if not isinstance(question.answer, str):
        true.append(question.answer)
    return {_rounded(TEACHER_FRAME.to_model(values, question.image_size)): values for values in true}


def _to_pixels(
    known: Mapping[tuple[int, ...], Sequence[float]], image_size: Size, values: Sequence[float]
) -> Sequence[float]:
    readable = [min(max(value, -_FARTHEST), _FARTHEST) for value in values]  # long numbers are infinite
    return known.get(_rounded(readable)) or TEACHER_FRAME.to_original(readable, image_size)


def _rounded(values: Sequence[float]) -> tuple[int, ...]:
    return tuple(map(round, values))


def _point(values: Sequence[float]) -> str:
    return f"[{', '.join(str(round(value)) for value in values)}]"
