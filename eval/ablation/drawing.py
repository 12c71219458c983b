"""Charts as lists of shapes, and the two ways to show them: as SVG inside a page and as a PNG file.

Lengths are in units of the picture: a pixel of the page, SCALE of them in the PNG.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

Point = tuple[float, float]
SCALE, MARGIN = 2, 20.0
INK, SOFT, LINE, WHITE = "#1d1c1a", "#6b6760", "#dedbd4", "#ffffff"
_SMOOTHING = 2
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
# What the font that comes with Pillow lacks.
_IN_ASCII = str.maketrans({"−": "-", "–": "-", "→": ">"})


@dataclass(frozen=True)
class Path:
    """A line through points. faint: how much of its colour is left."""

    points: tuple[Point, ...]
    colour: str = INK
    width: float = 1.0
    faint: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Rectangle:
    """A filled rectangle: left, top, right, bottom."""

    box: tuple[float, float, float, float]
    colour: str
    faint: float = 1.0


@dataclass(frozen=True)
class Dot:
    """A filled circle with a rim of white, or one that is only a rim of its colour."""

    middle: Point
    radius: float
    colour: str
    hollow: bool = False


@dataclass(frozen=True)
class Label:
    """A text whose baseline starts, has its middle or ends (`anchor`) at a point; white around it hides lines."""

    words: str
    at: Point
    anchor: str = "start"
    size: float = 12.0
    colour: str = INK
    bold: bool = False


Shape = Path | Rectangle | Dot | Label


@dataclass(frozen=True)
class Drawing:
    """A picture of so many units, shapes from back to front."""

    width: float
    height: float
    shapes: tuple[Shape, ...] = field(default=())


def blended(colour: str, left: float) -> str:
    """A colour of which a share is left on white: the same in both forms, whatever lies below."""
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * left):02x}" for part in parts)


def to_svg(drawing: Drawing, title: str) -> str:
    """The drawing as an SVG element; texts are escaped."""
    inside = "".join(map(_svg, drawing.shapes))
    size = f"0 0 {drawing.width:g} {drawing.height:g}"
    return f'<svg class="chart" viewBox="{size}" role="img" aria-label="{escape(title)}">{inside}</svg>'


def to_png(drawing: Drawing) -> bytes:
    """The drawing as a PNG file of SCALE pixels a unit, with a margin."""
    from PIL import Image, ImageDraw

    factor = SCALE * _SMOOTHING
    width, height = drawing.width + 2 * MARGIN, drawing.height + 2 * MARGIN
    image = Image.new("RGB", (round(width * factor), round(height * factor)), WHITE)
    draw = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        _paint(draw, moved(shape, MARGIN, MARGIN), factor)
    buffer = io.BytesIO()
    size = (round(width * SCALE), round(height * SCALE))
    image.resize(size, Image.Resampling.LANCZOS).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _svg(shape: Shape) -> str:
    if isinstance(shape, Path):
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dashes = ' stroke-dasharray="4 3"' if shape.dashed else ""
        colour = blended(shape.colour, shape.faint)
        return f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="{shape.width:g}"{dashes}/>'
    if isinstance(shape, Rectangle):
        x1, y1, x2, y2 = shape.box
        size = f'width="{x2 - x1:.1f}" height="{y2 - y1:.1f}"'
        return f'<rect x="{x1:.1f}" y="{y1:.1f}" {size} fill="{blended(shape.colour, shape.faint)}"/>'
    if isinstance(shape, Dot):
        x, y = shape.middle
        fill, rim = (WHITE, shape.colour) if shape.hollow else (shape.colour, WHITE)
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{shape.radius:g}" fill="{fill}" stroke="{rim}"/>'
    x, y = shape.at
    weight = ' font-weight="700"' if shape.bold else ""
    looks = f'font-size="{shape.size:g}" fill="{shape.colour}" text-anchor="{shape.anchor}"{weight}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {looks}>{escape(shape.words)}</text>'


def _paint(draw: ImageDraw, shape: Shape, factor: int) -> None:
    if isinstance(shape, Path):
        _paint_line(draw, shape, factor)
    elif isinstance(shape, Rectangle):
        x1, y1, x2, y2 = (value * factor for value in shape.box)
        draw.rectangle((x1, y1, max(x1, x2), max(y1, y2)), fill=blended(shape.colour, shape.faint))
    elif isinstance(shape, Dot):
        fill, rim = (WHITE, shape.colour) if shape.hollow else (shape.colour, WHITE)
        x, y = shape.middle
        draw.circle((x * factor, y * factor), shape.radius * factor, fill=fill, outline=rim, width=factor)
    else:
        _paint_words(draw, shape, factor)


def _paint_line(draw: ImageDraw, line: Path, factor: int) -> None:
    points = [(x * factor, y * factor) for x, y in line.points]
    width, colour = max(1, round(line.width * factor)), blended(line.colour, line.faint)
    if not line.dashed:
        draw.line(points, fill=colour, width=width, joint="curve")
        return
    for start, end in pairwise(points):
        for dash in _dashes(start, end, 4.0 * factor, 3.0 * factor):
            draw.line(dash, fill=colour, width=width)


def _dashes(start: Point, end: Point, dash: float, space: float) -> list[tuple[Point, Point]]:
    """The pieces of a straight line that are drawn."""
    (x1, y1), (x2, y2) = start, end
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0

    def at(way: float) -> Point:
        share = min(way, length) / length
        return x1 + (x2 - x1) * share, y1 + (y2 - y1) * share

    count = int(length // (dash + space)) + 1
    return [(at(place * (dash + space)), at(place * (dash + space) + dash)) for place in range(count)]


def _paint_words(draw: ImageDraw, label: Label, factor: int) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(size=label.size * factor)
    at, words = (label.at[0] * factor, label.at[1] * factor), label.words.translate(_IN_ASCII)
    thick = factor / 5 if label.bold else 0
    anchor = _ANCHORS[label.anchor]
    draw.text(at, words, fill=WHITE, font=font, anchor=anchor, stroke_width=1.5 * factor)
    draw.text(at, words, fill=label.colour, font=font, anchor=anchor, stroke_width=thick)


def stacked(drawings: Sequence[Drawing], space: float = 16.0) -> Drawing:
    """Drawings one below the other, as one."""
    shapes: list[Shape] = []
    top = 0.0
    for item in drawings:
        shapes += [moved(shape, 0.0, top) for shape in item.shapes]
        top += item.height + space
    return Drawing(max(item.width for item in drawings), top - space, tuple(shapes))


def moved(shape: Shape, x: float, y: float) -> Shape:
    """The shape elsewhere."""
    if isinstance(shape, Path):
        return replace(shape, points=tuple((a + x, b + y) for a, b in shape.points))
    if isinstance(shape, Rectangle):
        x1, y1, x2, y2 = shape.box
        return replace(shape, box=(x1 + x, y1 + y, x2 + x, y2 + y))
    if isinstance(shape, Dot):
        return replace(shape, middle=(shape.middle[0] + x, shape.middle[1] + y))
    return replace(shape, at=(shape.at[0] + x, shape.at[1] + y))
