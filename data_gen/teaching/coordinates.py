"""Between files, which hold original pixels, and teachers, who see and write coordinates from 0 to 1000."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rewards.boxes import CoordinateFrame, Size
from rewards.response import map_coordinates, read_point

TEACHER_FRAME = CoordinateFrame("thousand")


def as_shown(reasoning: str, image_size: Size) -> str:
    """A stored trace as teachers see it."""
    return map_coordinates(reasoning, partial(TEACHER_FRAME.to_model, image_size=image_size))


def as_stored(reasoning: str, image_size: Size) -> str:
    """A teacher's trace as it is stored."""
    return map_coordinates(reasoning, partial(TEACHER_FRAME.to_original, image_size=image_size))


def box_as_shown(box_xyxy_px: Sequence[float], image_size: Size) -> str:
    """A true box as teachers see it."""
    return f"[{_point(TEACHER_FRAME.to_model(box_xyxy_px, image_size))}]"


def answer_as_shown(answer: str, image_size: Size) -> str:
    """A stored answer as teachers see it; an option stays as it is."""
    point = read_point(answer)
    return _point(TEACHER_FRAME.to_model(point, image_size)) if point else answer


def answer_as_stored(answer: str, image_size: Size) -> str:
    """A teacher's answer as it is stored. A point may have the double brackets of running text."""
    point = read_point(answer[1:-1] if answer.startswith("[[") and answer.endswith("]]") else answer)
    return _point(TEACHER_FRAME.to_original(point, image_size)) if point else answer


def _point(values: Sequence[float]) -> str:
    return f"[{', '.join(str(round(value)) for value in values)}]"
