"""The rows of the paper's tables as `configs/ablation/rows.yaml` has them, as far as tables show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from data_gen.command_line import UsageError, read_options
from rewards.grading import TASKS


@dataclass(frozen=True)
class RowSpec:
    """A row. published: the paper's percentages, score first, then the tasks. A row without a start is not trained."""

    title: str
    start: str | None = None
    against: tuple[str, ...] = ()
    published: tuple[float, ...] = ()

    @property
    def published_scores(self) -> dict[str, float]:
        """`score` or task -> fraction; empty where the paper has no such row."""
        values = [value / 100 for value in self.published]
        return dict(zip(("score", *TASKS), values, strict=True)) if values else {}


@dataclass(frozen=True)
class TableSpec:
    """A table: its title and its rows in order."""

    title: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """All rows by name and all tables by number."""

    rows: dict[str, RowSpec]
    tables: dict[int, TableSpec] = field(default_factory=dict)


def read_row_specs(path: Path) -> Rows:
    """The file's rows and tables. Raises UsageError when it holds none, or a row that does not exist is named."""
    try:
        specs = msgspec.convert(read_options(path), Rows)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} does not hold the rows of an ablation: {error}") from error
    named = [name for table in specs.tables.values() for name in table.rows]
    named += [name for row in specs.rows.values() for name in row.against]
    unknown = sorted(set(named) - specs.rows.keys())
    if unknown:
        raise UsageError(f"{path} names rows that it does not have: {', '.join(unknown)}")
    return specs


def table_of(specs: Rows, number: int) -> TableSpec:
    """One table. Raises UsageError when there is none of this number."""
    if number not in specs.tables:
        raise UsageError(f"no table {number}; known: {', '.join(map(str, specs.tables))}")
    return specs.tables[number]
