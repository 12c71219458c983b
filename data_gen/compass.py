"""Headings by name: eight sectors of 45 degrees, clockwise from the camera's optical axis; East is image right."""

from __future__ import annotations

import math

DIRECTIONS = ("North", "Northeast", "East", "Southeast", "South", "Southwest", "West", "Northwest")
# The order in which the published construction draws its options from.
CARDINALS = ("East", "South", "West", "North")
DIAGONALS = ("Northeast", "Southeast", "Northwest", "Southwest")


def direction_of(yaw_rad: float) -> str:
    """Name of a heading; yaw_rad is atan2(v_x, v_z) of the forward vector in the camera frame."""
    return DIRECTIONS[math.floor((math.degrees(yaw_rad) + 22.5) % 360 / 45) % 8]


def opposite(direction: str) -> str:
    """The direction half a turn away."""
    return DIRECTIONS[(DIRECTIONS.index(direction) + 4) % 8]
