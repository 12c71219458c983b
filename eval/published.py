"""The published rows of SURDS, and what keeps a run from being held against them. Facts only; fractions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from rewards.grading import TASKS

TABLE = Path(__file__).with_name("published_surds.json")
OWN_PROMPTS = "own"


@dataclass(frozen=True)
class PublishedRow:
    """One row of the paper. tables: where it stands. scores: task or `score` -> score."""

    model: str
    tables: tuple[int, ...]
    scores: dict[str, float]


@dataclass(frozen=True)
class Published:
    """Published rows shown beside a run, and why they cannot be held against it (empty: they can)."""

    source: str
    rows: tuple[PublishedRow, ...]
    caveats: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    table: int
    model: str
    yaw: float
    pixel: float
    depth: float
    distance: float
    left_right: float
    front_behind: float
    score: float


@dataclass(frozen=True)
class _File:
    source: str
    units_per_task: int
    rows: tuple[_Row, ...]


def published_beside(prompts: str, source: str, benchmark: str, units: dict[str, int]) -> Published:
    """The published rows for a run. units: those of each of its tasks; `prompts`, `source` as in its summary."""
    return Published(_file().source, published_rows(), tuple(_caveats(prompts, source, benchmark, units)))


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """The rows of Tables 2 and 4, in their order; one that stands in both comes once."""
    tables: dict[tuple[str, tuple[float, ...]], list[int]] = {}
    for row in _file().rows:
        values = tuple(getattr(row, name) for name in (*TASKS, "score"))
        tables.setdefault((row.model, values), []).append(row.table)
    return tuple(
        PublishedRow(
            model, tuple(places), {name: value / 100 for name, value in zip((*TASKS, "score"), values, strict=True)}
        )
        for (model, values), places in tables.items()
    )


def _caveats(prompts: str, source: str, benchmark: str, units: dict[str, int]) -> list[str]:
    found = []
    if prompts.startswith(OWN_PROMPTS):
        found.append("own prompts")
    elif prompts.startswith("unknown"):
        found.append("unknown prompts")
    if "synthetic" in source:
        found.append("synthetic world")
    if benchmark != "surds":
        found.append("other depth ranges")
    due = _file().units_per_task
    if units != dict.fromkeys(TASKS, due):
        found.append(f"not the {due} units of every task")
    return found


@cache
def _file() -> _File:
    return msgspec.json.decode(TABLE.read_bytes(), type=_File)
