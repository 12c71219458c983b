"""What a report shows beside its tables: the radar, and which units get a picture."""

from __future__ import annotations

import math

import pytest
from small_questions import make_questions

from data_gen.floors import units_of
from eval.gallery import choose
from eval.radar import CENTRE, HEIGHT, RADIUS, WIDTH, Series, radar
from rewards.boxes import intersection
from rewards.grading import TASKS


def test_the_radar_puts_values_on_axes_and_names_inside_the_picture() -> None:
    runs = [
        Series("low", "#000", (0.2,) * 6),
        Series("a name that is far too long for it", "#111", (0.8,) + (0.4,) * 5),
    ]
    chart = radar(list(TASKS), runs, [0.1] * 6, 0.8)
    assert chart
    low, high = chart.polygons
    assert high.corners[0] == pytest.approx((CENTRE[0], CENTRE[1] - RADIUS))
    assert math.dist(low.corners[3], CENTRE) == pytest.approx(RADIUS / 4) and low.corners[3][1] > CENTRE[1]
    assert low.corners[1][0] > CENTRE[0]  # clockwise
    assert low.dash != high.dash and low.marker != high.marker
    assert [tick.words for tick in chart.ticks] == ["20", "40", "60", "80"]
    boxes = [item.label.box for item in chart.polygons] + [title.box for title in chart.titles]
    assert all(box[0] >= 0 and box[2] <= WIDTH and box[1] >= 0 and box[3] <= HEIGHT for box in boxes)
    assert not any(intersection(a, b) for a in boxes for b in boxes if a is not b)
    assert radar(["yaw", "pixel"], [Series("x", "#000", (1, 1))], [0, 0], 1.0) is None


def test_worst_units_differing_units_and_some_at_random() -> None:
    units = units_of(make_questions(40))
    names = list(units)
    failed, differ = set(names[::4]), set(names[1::4])
    scores = {name: [0.0, 0.0] if name in failed else [1.0, 0.0 if name in differ else 1.0] for name in names}
    chosen = choose(units, scores)
    assert chosen == choose(units, scores) and len({name for name, _ in chosen}) == len(chosen)
    assert {name for name, kind in chosen if kind == "failed"} <= failed
    assert {name for name, kind in chosen if kind == "differ"} <= differ
    assert [kind for name, kind in chosen if units[name][0].task == "yaw"] == ["failed"] * 2 + ["differ"] * 2 + [
        "random"
    ] * 2
    assert not [kind for _, kind in choose(units, {name: [1.0] for name in names}) if kind != "random"]
