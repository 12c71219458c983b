"""The charts of an ablation: scores by row, differences as a forest plot, curves over training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.ablation.curves import Curve
from eval.ablation.drawing import INK, LINE, SOFT, Dot, Drawing, Label, Path, Rectangle, Shape, moved
from eval.ablation.figures import SCORE, Table
from eval.ablation.words import seeds_told, title_of
from eval.metrics import Difference

WIDTH = 1120.0
NAMES_WIDTH = 230.0
_ROW_HEIGHT, _BAR, _HEAD, _FOOT = 50.0, 13.0, 12.0, 34.0
PANEL_WIDTH, PANEL_HEIGHT, PANEL_SPACE, PANELS_ACROSS = 265.0, 190.0, 20.0, 4
_INNER = (40.0, 30.0, 252.0, 164.0)
STEPS_OF_AXIS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(frozen=True)
class Axis:
    """A straight scale: values low..high at places start..end of the picture."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies; outside the scale at its nearer end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """At most so many round values within the scale."""
        step = round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        return [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Lines:
    """The curves of one row: its colour and one curve a seed."""

    colour: str
    seeds: tuple[Curve, ...]


def round_step(least: float) -> float:
    """The smallest round step that is no smaller."""
    return next((step for step in STEPS_OF_AXIS if step >= least * (1 - 1e-9)), 10.0 ** math.ceil(math.log10(least)))


def scores_chart(table: Table, colours: Mapping[str, str]) -> Drawing:
    """A bar a row and way of decoding with its interval, a dot a seed, a ring for the published score."""
    values = [item.values[SCORE] for row in table.rows for item in row.modes.values()]
    tops = [max(v.difference, v.ci95[1] if v.ci95 else 0.0) for v in values]
    tops += [row.spec.published_scores.get("score", 0.0) for row in table.rows]
    top = math.ceil(100 * max([*tops, 0.1]) / 10) / 10
    axis = Axis(0.0, top, NAMES_WIDTH, WIDTH - 60)
    bottom = _HEAD + _ROW_HEIGHT * len(table.rows)
    shapes = _grid(axis, bottom, [f"{100 * tick:.0f}" for tick in axis.ticks(10)], axis.ticks(10))
    honest = table.floor(SCORE, "honest")
    if honest is not None:
        x = axis.at(honest)
        shapes.append(Path(((x, _HEAD), (x, bottom)), SOFT, 1.4, dashed=True))
    for place, row in enumerate(table.rows):
        y = _HEAD + _ROW_HEIGHT * place + 8
        shapes.append(Label(row.spec.title, (NAMES_WIDTH - 12, y + 19), "end", 13, INK, bold=True))
        shapes.append(Label(seeds_told(table, row), (NAMES_WIDTH - 12, y + 34), "end", 11, SOFT))
        for number, (mode, item) in enumerate(row.modes.items()):
            tops_at = y + number * (_BAR + 4)
            shapes += _bar(axis, item.values[SCORE], list(item.seed_scores.values()), tops_at, colours[row.name], mode)
        if "score" in row.spec.published_scores:
            x = axis.at(row.spec.published_scores["score"])
            shapes.append(Dot((x, y + _BAR + 2), 5, SOFT, hollow=True))
    return Drawing(WIDTH, bottom + _FOOT, tuple(shapes))


def differences_chart(table: Table, colours: Mapping[str, str], mode: str) -> Drawing:
    """A forest plot: the overall difference of each pair of rows with its interval, a dot a seed."""
    items = [item for item in table.differences if item.mode == mode]
    reach = [abs(end) for item in items for end in _ends(item.values[SCORE])]
    reach += [abs(gap) for item in items for gap in item.seed_gaps.values()]
    far = math.ceil(100 * max([*reach, 0.02]) / 2) * 2 / 100
    names_width = 360.0
    axis = Axis(-far, far, names_width, WIDTH - 260)
    bottom = _HEAD + 30.0 * len(items)
    shapes = _grid(axis, bottom, [f"{100 * tick:+.0f}" if tick else "0" for tick in axis.ticks(8)], axis.ticks(8))
    shapes.append(Path(((axis.at(0), _HEAD), (axis.at(0), bottom)), INK, 1.4))
    for place, item in enumerate(items):
        y, value = _HEAD + 30.0 * place + 16, item.values[SCORE]
        name = f"{title_of(table, item.row)} minus {title_of(table, item.against)}"
        colour = colours.get(item.row, SOFT)
        low, high = _ends(value)
        shapes += [
            Label(name, (names_width - 12, y + 4), "end", 13),
            Path(((axis.at(low), y), (axis.at(high), y)), colour, 3, 0.6),
            *(Dot((axis.at(gap), y), 3, colour, hollow=True) for gap in item.seed_gaps.values()),
            Dot((axis.at(value.difference), y), 6, colour),
            Label(f"{100 * value.difference:+.1f}  {item.agreement}", (WIDTH - 235, y + 4), "start", 12, SOFT),
        ]
    return Drawing(WIDTH, bottom + _FOOT, tuple(shapes))


def legend(names: Mapping[str, str], colours: Mapping[str, str]) -> Drawing:
    """The rows' titles beside their colours, in lines. names: row -> title."""
    shapes: list[Shape] = []
    x, y = 0.0, 14.0
    for row, title in names.items():
        wide = 44 + 7.0 * len(title)
        if x + wide > WIDTH:
            x, y = 0.0, y + 20
        line = Path(((x, y - 4), (x + 16, y - 4)), colours[row], 3)
        shapes += [line, Label(title, (x + 22, y), "start", 12, SOFT)]
        x += wide
    return Drawing(WIDTH, y + 6, tuple(shapes))


def panels(curves: Mapping[str, Sequence[Lines]], titles: Mapping[str, str]) -> Drawing:
    """A panel a figure of the training log. curves: figure -> the curves of each row that has them."""
    shapes: list[Shape] = []
    for place, (name, lines) in enumerate(curves.items()):
        down, across = divmod(place, PANELS_ACROSS)
        x, y = across * (PANEL_WIDTH + PANEL_SPACE), down * (PANEL_HEIGHT + PANEL_SPACE)
        shapes += [moved(shape, x, y) for shape in panel(titles.get(name, name), lines)]
    count = -(-len(curves) // PANELS_ACROSS)
    return Drawing(WIDTH, count * PANEL_HEIGHT + (count - 1) * PANEL_SPACE, tuple(shapes))


def panel(title: str, lines: Sequence[Lines]) -> list[Shape]:
    """One panel: thin lines for seeds, a bold one for their mean."""
    points = [point for row in lines for curve in row.seeds for point in curve]
    left, top, right, bottom = _INNER
    low, high = _reach([value for _, value in points])
    across = Axis(0, max([step for step, _ in points] or [1]), left, right)
    up = Axis(low, high, bottom, top)
    shapes: list[Shape] = [Label(title, (0, 14), "start", 13, INK, bold=True)]
    for tick in up.ticks(4):
        y = up.at(tick)
        shapes += [Path(((left, y), (right, y)), LINE), Label(f"{tick:g}", (left - 6, y + 4), "end", 11, SOFT)]
    for tick in across.ticks(4):
        shapes.append(Label(f"{tick:.0f}", (across.at(tick), bottom + 16), "middle", 11, SOFT))
    for row in lines:
        thin = [(curve, 1.0, 0.4) for curve in row.seeds] if len(row.seeds) > 1 else []
        for curve, width, faint in [*thin, (mean_curve(row.seeds), 2.2, 1.0)]:
            where = tuple((across.at(step), up.at(value)) for step, value in curve)
            shapes.append(Path(where, row.colour, width, faint) if len(where) > 1 else Dot(where[0], 3, row.colour))
    return shapes


def mean_curve(seeds: Sequence[Curve]) -> Curve:
    """The mean of some curves at the steps of the first, as far as all of them reach."""
    first, last = max(curve[0][0] for curve in seeds), min(curve[-1][0] for curve in seeds)
    steps = [step for step, _ in seeds[0] if first <= step <= last] or [first]
    values = [np.interp(steps, [step for step, _ in curve], [value for _, value in curve]) for curve in seeds]
    return tuple(zip(steps, np.mean(values, axis=0).tolist(), strict=True))


def _bar(axis: Axis, value: Difference, seeds: Sequence[float], top: float, colour: str, mode: str) -> list[Shape]:
    middle = top + _BAR / 2
    shapes: list[Shape] = [Rectangle((axis.start, top, axis.at(value.difference), top + _BAR), colour,
                                     0.85 if mode == "greedy" else 0.4)]  # fmt: skip
    low, high = _ends(value)
    shapes.append(Path(((axis.at(low), middle), (axis.at(high), middle)), INK, 1.6))
    shapes += [Dot((axis.at(seed), middle), 3, INK, hollow=True) for seed in seeds]
    told = f"{100 * value.difference:.1f} {mode}"
    return [*shapes, Label(told, (axis.at(max(high, value.difference, *seeds)) + 9, middle + 4), "start", 11, SOFT)]


def _grid(axis: Axis, bottom: float, labels: Sequence[str], ticks: Sequence[float]) -> list[Shape]:
    """Upright lines with what they stand for below."""
    shapes: list[Shape] = []
    for tick, label in zip(ticks, labels, strict=True):
        x = axis.at(tick)
        shapes += [Path(((x, _HEAD), (x, bottom)), LINE), Label(label, (x, bottom + 18), "middle", 12, SOFT)]
    return shapes


def _ends(value: Difference) -> tuple[float, float]:
    return value.ci95 or (value.difference, value.difference)


def _reach(values: Sequence[float]) -> tuple[float, float]:
    """Ends of a scale for the values: from 0 where none is below, and some room above."""
    low, high = min([*values, 0.0]), max(values, default=1.0)
    return low, high + 0.05 * (high - low) if high > low else low + 1.0
