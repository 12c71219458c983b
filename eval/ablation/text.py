"""The table of an ablation for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from data_gen.columns import aligned, percent
from eval.ablation.figures import SCORE, RowFigures, Table
from eval.ablation.records import MODES
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
    seed_gaps,
    seed_scores,
    title_of,
    titled,
)

EXTRAS = ("formed", "boxes", "tokens")
_INDENT = "  "
Row = Sequence[str]


def terminal(table: Table, width: int) -> str:
    """Scores, differences and notes in at most `width` characters where that can be (90 are enough)."""
    parts = [f"Table {table.number}: {table.title}  ({table.study})", *score_lines(table, width)]
    if table.differences:
        parts += ["", "Differences, points of percent", *difference_lines(table, width)]
    return "\n".join([*parts, "", *(fill(note, width, subsequent_indent=_INDENT) for note in notes(table))])


def score_lines(table: Table, width: int) -> list[str]:
    """A block a row: greedy, sampled, published; the floors below. Wide terminals see how answers were formed too."""
    heads = [head(table, column) for column in columns_shown(table)]
    blocks = [_block(table, row) for row in table.rows]
    floors = [_floor_line(table, name) for name in FLOOR_LINES]
    rows = [["", heads[0], "seeds", *heads[1:], *EXTRAS], *(row for block in blocks for row in block), *floors]
    lines = aligned(rows)
    if len(lines[0]) > width:
        lines = aligned([row[: -len(EXTRAS)] for row in rows])
    names = [*(titled(table, row) for row in table.rows), "Floors"]
    return _with_titles(lines, names, [*(len(block) for block in blocks), len(floors)])


def difference_lines(table: Table, width: int) -> list[str]:
    """Two lines a pair of rows; per task in a table of its own where the terminal is narrow."""
    tasks = columns_shown(table)[1:]
    whole, by_task = [["", "Score", "seeds", ""]], [[head(table, column) for column in tasks]]
    for item in table.differences:
        whole.append([_INDENT + item.mode, gap(item.values[SCORE], True), seed_gaps(item), item.agreement])
        by_task.append([gap(item.values[column]) for column in tasks])
    pairs = list(dict.fromkeys((item.row, item.against) for item in table.differences))
    names = [f"{title_of(table, row)} minus {title_of(table, against)}" for row, against in pairs]
    counts = [len(MODES)] * len(pairs)
    both = aligned([[*one, *two] for one, two in zip(whole, by_task, strict=True)])
    if len(both[0]) <= width:
        return _with_titles(both, names, counts)
    second = aligned([[one[0], *two] for one, two in zip(whole, by_task, strict=True)])
    return [*_with_titles(aligned(whole), names, counts), "", *_with_titles(second, names, counts)]


def _block(table: Table, row: RowFigures) -> list[list[str]]:
    lines = []
    for mode, figures in row.modes.items():
        score, *cells = (cell(table, column, figures.values[column].difference) for column in columns_shown(table))
        extras = [percent(figures.well_formed), percent(figures.loc), f"{figures.mean_tokens:.0f}"]
        lines.append([_INDENT + mode, score, seed_scores(figures), *cells, *extras])
    if row.spec.published:
        score, *cells = (published_cell(row, table, column) for column in columns_shown(table))
        lines.append([_INDENT + PUBLISHED, score, "", *cells, *("" for _ in EXTRAS)])
    return lines


def _floor_line(table: Table, name: str) -> list[str]:
    score, *cells = floor_cells(table, FLOOR_LINES[name])
    return [_INDENT + name, score, "", *cells, *("" for _ in EXTRAS)]


def _with_titles(lines: Sequence[str], titles: Sequence[str], counts: Sequence[int]) -> list[str]:
    """The lines of a table, of which the first two are the head, with a title before each group of so many lines."""
    told, at = list(lines[:2]), 2
    for title, count in zip(titles, counts, strict=True):
        told += [title, *lines[at : at + count]]
        at += count
    return [line.rstrip() for line in told]
