"""The table of an ablation as Markdown and as CSV. Both tell the same for the same results: no dates, no paths."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from data_gen.columns import NONE, decimal, percent
from eval.ablation.figures import SCORE, Column, RowFigures, Table
from eval.ablation.words import (
    FLOOR_LINES,
    PUBLISHED,
    cell,
    columns_shown,
    floor_cells,
    gap,
    head,
    notes,
    published_cell,
    title_of,
    titled,
)
from eval.markdown_table import grid
from eval.metrics import Difference

CSV_HEAD = ("kind", "row", "against", "mode", "column", "value", "low", "high", "units")


def markdown(table: Table) -> str:
    """Scores, differences, floors, and what training took."""
    parts = [
        f"# Table {table.number}: {table.title} ({table.study})",
        "\n".join(f"- {line}" for line in notes(table)),
        "## Scores\n\n" + grid(score_rows(table)),
    ]
    if table.differences:
        parts.append("## Differences, points of percent\n\n" + grid(difference_rows(table)))
    parts.append("## Floors\n\n" + grid(floor_rows(table)))
    parts.append("## What the rows' own training took, mean over seeds\n\n" + grid(cost_rows(table)))
    return "\n\n".join(parts) + "\n"


def score_rows(table: Table) -> list[list[str]]:
    """A line per row and way of decoding, the published one beneath."""
    shown = columns_shown(table)
    heads = [head(table, column, short=False) for column in shown]
    seeds = [f"seed {seed}" for seed in table.seeds]
    rows = [["", "", heads[0], *seeds, *heads[1:], "Well-formed", "Boxes, IoU > 0.5", "Tokens"]]
    for row in table.rows:
        rows += _row_lines(table, row) or [[titled(table, row), *[NONE] * (len(rows[0]) - 1)]]
        if row.spec.published:
            score, *cells = (published_cell(row, table, column) for column in shown)
            rows.append([row.spec.title, PUBLISHED, score, *("" for _ in seeds), *cells, "", "", ""])
    return rows


def difference_rows(table: Table) -> list[list[str]]:
    """A line per pair of rows and way of decoding, every column with its interval."""
    shown = columns_shown(table)
    heads = [head(table, column, short=False) for column in shown]
    rows = [["", "", heads[0], *(f"seed {seed}" for seed in table.seeds), "Seeds", *heads[1:]]]
    for item in table.differences:
        score, *cells = (gap(item.values[column], interval=True) for column in columns_shown(table))
        seeds = [f"{100 * item.seed_gaps[seed]:+.1f}" if seed in item.seed_gaps else NONE for seed in table.seeds]
        name = f"{title_of(table, item.row)} minus {title_of(table, item.against)}"
        rows.append([name, item.mode, score, *seeds, item.agreement, *cells])
    return rows


def floor_rows(table: Table) -> list[list[str]]:
    """A line per kind of floor."""
    heads = [head(table, column, short=False) for column in columns_shown(table)]
    return [["", *heads], *([name, *floor_cells(table, names)] for name, names in FLOOR_LINES.items())]


def cost_rows(table: Table) -> list[list[str]]:
    """Steps, minutes and machines of every row that is trained."""
    rows = [["", "Steps", "Minutes", "Machine"]]
    for row in table.rows:
        minutes = None if row.seconds is None else row.seconds / 60
        machines = "; ".join(row.machines) or NONE
        rows += [[row.spec.title, decimal(row.steps), decimal(minutes, 1), machines]] if row.spec.start else []
    return rows


def comma_separated(table: Table) -> str:
    """One value a line, fractions.

    kind: `mean`, `seed N`, `difference`, `difference seed N`, `published` or `floor NAME`.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    writer.writerows(_lines(table))
    return buffer.getvalue()


def _row_lines(table: Table, row: RowFigures) -> list[list[str]]:
    lines = []
    for mode, figures in row.modes.items():
        score, *cells = (cell(table, column, figures.values[column].difference) for column in columns_shown(table))
        seeds = [percent(figures.seed_scores.get(seed)) for seed in table.seeds]
        extras = [percent(figures.well_formed), percent(figures.loc), decimal(figures.mean_tokens)]
        lines.append([titled(table, row), mode, score, *seeds, *cells, *extras])
    return lines


def _lines(table: Table) -> Iterator[list[object]]:
    for row in table.rows:
        for mode, figures in row.modes.items():
            for column in columns_shown(table):
                yield ["mean", row.name, "", mode, _name(column), *_known(figures.values[column])]
            for seed, score in figures.seed_scores.items():
                yield [f"seed {seed}", row.name, "", mode, _name(SCORE), score, "", "", ""]
        for name, score in row.spec.published_scores.items():
            yield ["published", row.name, "", "", name, round(score, 4), "", "", ""]
    for item in table.differences:
        for column in columns_shown(table):
            yield ["difference", item.row, item.against, item.mode, _name(column), *_known(item.values[column])]
        for seed, score in item.seed_gaps.items():
            yield [f"difference seed {seed}", item.row, item.against, item.mode, _name(SCORE), score, "", "", ""]
    for part, tasks in table.floors.items():
        for task, floors in tasks.items():
            for name, height in floors.items():
                yield [f"floor {name}", "", "", "", _name((part, task)), height, "", "", ""]


def _known(value: Difference) -> list[object]:
    return [value.difference, *(value.ci95 or ("", "")), value.units]


def _name(column: Column) -> str:
    return " ".join(column).strip()
