"""Tables for the terminal: columns aligned, fractions as percent."""

from __future__ import annotations

from collections.abc import Sequence

NONE = "–"


def percent(value: float | None) -> str:
    """A fraction in percent with one decimal, or a dash."""
    return NONE if value is None else f"{100 * value:.1f}"


def decimal(value: float | None, digits: int = 0) -> str:
    """A number with so many digits after the point, or a dash."""
    return NONE if value is None else f"{value:.{digits}f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, the first column to the left, the others to the right, a rule under the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([first, *(cell.rstrip().rjust(len(cell)) for cell in others)]))
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
