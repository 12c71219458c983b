"""The radar chart of a comparison: an axis per task, a polygon per run and one of the floors, as numbers for SVG.

Runs differ in colour, in dashes and in the shape of their markers, and carry their names, so that the chart can be
printed in black and white.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rewards.boxes import Box, area, intersection

Point = tuple[float, float]
WIDTH, HEIGHT, RADIUS = 560.0, 470.0, 186.0
CENTRE: Point = (WIDTH / 2, HEIGHT / 2)
LEAST_AXES = 3
RINGS = 4
DASHES = ("", "9 3", "2 3", "9 3 2 3", "14 4", "5 2 1 2")
MARKERS = ("circle", "square", "triangle", "diamond")
LONGEST_LABEL = 22
_FONT, _LETTER, _GAP, _STEPS = 12.0, 6.6, 13.0, 12


@dataclass(frozen=True)
class Series:
    """A polygon: one value in 0..1 per axis."""

    label: str
    colour: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Text:
    """A text centred on a point."""

    words: str
    middle: Point

    @property
    def box(self) -> Box:
        """About the room it takes."""
        half = max(len(self.words), 3) * _LETTER / 2
        x, y = self.middle
        return x - half, y - _FONT * 0.62, x + half, y + _FONT * 0.62


@dataclass(frozen=True)
class Polygon:
    """A run as drawn; `marker` and `dash` tell it from the others without colour."""

    colour: str
    corners: tuple[Point, ...]
    dash: str
    marker: str
    label: Text


@dataclass(frozen=True)
class Radar:
    """Everything to draw, in units of a WIDTH x HEIGHT picture. ticks: what each ring stands for, in percent."""

    axes: tuple[Point, ...]
    titles: tuple[Text, ...]
    rings: tuple[tuple[Point, ...], ...]
    ticks: tuple[Text, ...]
    floor: tuple[Point, ...]
    polygons: tuple[Polygon, ...]


def radar(titles: Sequence[str], series: Sequence[Series], floors: Sequence[float], top: float) -> Radar | None:
    """The chart, or None with fewer than three axes.

    titles, floors: one per axis. top: the value at the outer ring. A value above it is drawn there.
    """
    if len(titles) < LEAST_AXES:
        return None
    around = len(titles)
    names = tuple(_title(title, place, around) for place, title in enumerate(titles))
    shapes = [_outline(item.values, top) for item in series]
    rings = tuple(_outline([ring] * around, RINGS) for ring in range(1, RINGS + 1))
    ticks = tuple(_tick(top * place / RINGS, ring[0]) for place, ring in enumerate(rings, 1))
    labels = _labels([_short(item.label) for item in series], shapes, [text.box for text in (*names, *ticks)])
    return Radar(
        axes=_outline([top] * around, top),
        titles=names,
        rings=rings,
        ticks=ticks,
        floor=_outline(floors, top),
        polygons=tuple(
            Polygon(item.colour, shape, DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)], labels[place])
            for place, (item, shape) in enumerate(zip(series, shapes, strict=True))
        ),
    )


def _outline(values: Sequence[float], top: float) -> tuple[Point, ...]:
    """Corners of a polygon, the first axis upwards, clockwise."""
    return tuple(_at(place, len(values), RADIUS * min(value / top, 1.0)) for place, value in enumerate(values))


def _at(place: float, around: int, radius: float) -> Point:
    angle = 2 * math.pi * place / around
    return CENTRE[0] + radius * math.sin(angle), CENTRE[1] - radius * math.cos(angle)


def _title(words: str, place: int, around: int) -> Text:
    """The name of an axis, outside the outer ring, further out where it would run into it sideways."""
    side = abs(math.sin(2 * math.pi * place / around))
    return Text(words, _at(place, around, RADIUS + 22 + side * len(words) * _LETTER / 2))


def _tick(value: float, corner: Point) -> Text:
    return Text(f"{100 * value:.0f}", (corner[0] + 11, corner[1] + 9))


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def _labels(words: Sequence[str], shapes: Sequence[Sequence[Point]], taken: list[Box]) -> list[Text]:
    """A place for the name of every polygon: beside one of its corners or sides, where it covers the least."""
    lines = [point for shape in shapes for point in _along(shape)]
    labels: list[Text] = []
    for text, shape in zip(words, shapes, strict=True):
        places = [(far, Text(text, place)) for far, place in _beside(shape)]
        _, best = min(places, key=lambda place: place[0] + _covered(place[1].box, lines, taken))
        labels.append(best)
        taken = [*taken, best.box]
    return labels


def _along(shape: Sequence[Point]) -> list[Point]:
    """Points on the outline of a polygon, its corners among them."""
    sides = zip(shape, [*shape[1:], shape[0]], strict=True)
    return [
        (a[0] + (b[0] - a[0]) * step / _STEPS, a[1] + (b[1] - a[1]) * step / _STEPS)
        for a, b in sides
        for step in range(_STEPS)
    ]


def _beside(shape: Sequence[Point]) -> list[tuple[float, Point]]:
    """Where a name may stand, and how little one likes it: just outside corners and sides, inside, or farther out."""
    anchors = _along(shape)[:: _STEPS // 2]
    return [(far, _pushed(anchor, way)) for far, way in ((0.0, 1.0), (1.0, -1.0), (3.0, 1.9)) for anchor in anchors]


def _pushed(point: Point, way: float) -> Point:
    """A point moved away from the centre (way > 0) by about a line, more sideways than up as texts are wide."""
    x, y = point[0] - CENTRE[0], point[1] - CENTRE[1]
    length = math.hypot(x, y) or 1.0
    return point[0] + way * 2.6 * _GAP * x / length, point[1] + way * _GAP * y / length


def _covered(box: Box, lines: Sequence[Point], taken: Sequence[Box]) -> float:
    """How much a name there would hide: points of outlines, and the area of other names."""
    hidden = sum(box[0] <= x <= box[2] and box[1] <= y <= box[3] for x, y in lines)
    outside = area(box) - intersection(box, (0.0, 0.0, WIDTH, HEIGHT))
    return hidden + sum(intersection(box, other) for other in taken) + outside
