"""A table as Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def grid(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell would end it."""
    cells = [[item.replace("|", "\\|").replace("\n", " ") for item in row] for row in rows]
    rule = [":---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])
