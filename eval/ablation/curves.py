"""The training log of a row, cut down to the curves that its page shows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

MOST_POINTS, MOST_POINTS_BY_TASK = 60, 30
Curve = tuple[tuple[int, float], ...]
KEPT = re.compile(
    r"rewards/\w+/(?!std$|no_spread$)\w+|accuracy/\w+|held_out/\w+|completions/mean_length|completions/clipped_ratio"
    r"|loss|kl|entropy|reward|reward_std|frac_reward_zero_std|mean_token_accuracy"
)


def curves_of(log_history: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Figure -> its curve over the steps, of `log_history` of a trainer_state.json.

    A value that is no finite number leaves a gap. A step that is logged twice, as by a run that was taken up again,
    has the later value.
    """
    found: dict[str, dict[int, float]] = {}
    for line in log_history:
        for name, value in line.items():
            if KEPT.fullmatch(name) and isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, {})[int(line["step"])] = float(value)
    return {name: thinned(sorted(points.items()), most_points(name)) for name, points in sorted(found.items())}


def most_points(name: str) -> int:
    """Rewards by task are many, and get fewer points."""
    by_task = name.startswith("rewards/") and not name.endswith("/mean")
    return MOST_POINTS_BY_TASK if by_task else MOST_POINTS


def thinned(points: Sequence[tuple[int, float]], most: int = MOST_POINTS) -> Curve:
    """At most so many points: means of neighbours, placed at the last of their steps; as they are when few."""
    together = -(-len(points) // most) or 1
    groups = [points[start : start + together] for start in range(0, len(points), together)]
    return tuple((group[-1][0], fmean(value for _, value in group)) for group in groups)
