"""The three depth ranges of a depth question, in three constructions, by what gives the true one away.

`official`, the published one: the truth is nearly always the widest, so that choosing the widest is right 99.7 % of the
time. `fair`: all three are equally wide, and the truth has any rank that leaves all at or beyond 1 m; but two ranges of
6 m do not fit before a near object, so that choosing the nearest is right about 60 % of the time, more often where most
objects are near. `matched`: the other two are the ranges of depths that objects of the same class have elsewhere. As
ranges must be apart, the truth is still more likely where its class is densest: blind choices are right 37 % of the
time where depths spread over 5 to 60 m, 45 % and more for a class half of which is within 10 m (`data_gen/audit.py`
measures it on any file).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

DEPTH_RANGES = ("official", "fair", "matched")
NEAR_M, FAR_M = 7.0, 15.0
# A matched range grows with its depth, as what can be told from an image gets coarser.
MATCHED_SHARE, MATCHED_WIDTHS_M = 0.2, (2, 7)
MATCHED_TRIES = 500


@dataclass(frozen=True)
class DepthRange:
    """A range of whole metres along the viewing axis."""

    low_m: int
    high_m: int

    def __str__(self) -> str:
        return f"Between {_metres(self.low_m)} and {_metres(self.high_m)}"


def _metres(value: int) -> str:
    return f"{value} {'meter' if value <= 1 else 'meters'}"


def official_ranges(depth_m: float, rng: random.Random) -> tuple[DepthRange, DepthRange, DepthRange]:
    """(truth, first distractor, second distractor) as published: the truth 6-7 m wide, the others 3-4 m.

    Below 7 m both distractors lie beyond the truth, above 15 m both nearer, else one on each side.
    """
    width_m = rng.uniform(6, 7)
    gaps_and_widths = [(rng.randint(1, 2), rng.randint(3, 4)) for _ in range(2)]
    truth = _clipped(round(depth_m - width_m / 2), round(depth_m + width_m / 2))
    (gap1, width1), (gap2, width2) = gaps_and_widths
    if depth_m < NEAR_M:
        first = _beyond(truth, gap1, width1)
        return truth, first, _beyond(first, gap2, width2)
    first = _nearer(truth, gap1, width1)
    return truth, first, _nearer(first, gap2, width2) if depth_m > FAR_M else _beyond(truth, gap2, width2)


def fair_ranges(depth_m: float, rng: random.Random) -> tuple[DepthRange, DepthRange, DepthRange]:
    """(truth, two distractors), all 6-7 m wide with gaps of 1-2 m, nearest first among the distractors.

    The truth's rank is uniform among the ranks that keep all three at or beyond 1 m.
    """
    widths_m = [rng.randint(6, 7) for _ in range(3)]
    gaps_m = [rng.randint(1, 2) for _ in range(2)]
    low = max(1, round(depth_m - widths_m[0] / 2))
    truth = DepthRange(low, low + widths_m[0])
    nearer = [_below(truth, gaps_m[0], widths_m[1])]
    nearer.append(_below(nearer[0], gaps_m[1], widths_m[2]))
    rank = rng.choice([0, *(index + 1 for index, item in enumerate(nearer) if item.low_m >= 1)])
    if rank == 0:
        first = _beyond(truth, gaps_m[0], widths_m[1])
        return truth, first, _beyond(first, gaps_m[1], widths_m[2])
    if rank == 1:
        return truth, nearer[0], _beyond(truth, gaps_m[1], widths_m[2])
    return truth, nearer[1], nearer[0]


def matched_ranges(
    depth_m: float, depths_m: Sequence[float], rng: random.Random
) -> tuple[DepthRange, DepthRange, DepthRange] | None:
    """(truth, two distractors), the distractors made as the truth is, of depths drawn from those of other objects.

    Ranges are about a fifth of their depth wide and at least 1 m apart. None where the depths allow no such three.
    """
    truth = range_around(depth_m)
    for _ in range(MATCHED_TRIES):
        first, second = (range_around(rng.choice(depths_m)) for _ in range(2))
        if _apart(truth, first) and _apart(truth, second) and _apart(first, second):
            return truth, first, second
    return None


def range_around(depth_m: float) -> DepthRange:
    """The matched range of a depth, which lies in its middle."""
    least_m, most_m = MATCHED_WIDTHS_M
    width_m = min(max(round(MATCHED_SHARE * depth_m), least_m), most_m)
    low_m = max(1, round(depth_m - width_m / 2))
    return DepthRange(low_m, low_m + width_m)


def _apart(a: DepthRange, b: DepthRange) -> bool:
    return a.low_m > b.high_m or b.low_m > a.high_m


def _clipped(low_m: int, high_m: int) -> DepthRange:
    return DepthRange(max(1, low_m), high_m)


def _below(other: DepthRange, gap_m: int, width_m: int) -> DepthRange:
    return DepthRange(other.low_m - gap_m - width_m, other.low_m - gap_m)


def _nearer(other: DepthRange, gap_m: int, width_m: int) -> DepthRange:
    below = _below(other, gap_m, width_m)
    return _clipped(below.low_m, below.high_m)


def _beyond(other: DepthRange, gap_m: int, width_m: int) -> DepthRange:
    return DepthRange(other.high_m + gap_m, other.high_m + gap_m + width_m)
