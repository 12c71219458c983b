"""Words and numbers that all forms of an ablation table share: heads of columns, marks, what is missing, notes."""

from __future__ import annotations

from statistics import fmean

from data_gen.columns import NONE, percent
from data_gen.pages import TASK_TITLES
from eval.ablation.figures import SCORE, Column, ModeFigures, RowDifference, RowFigures, Table
from eval.ablation.records import MODES
from eval.metrics import Difference
from eval.report_files import separable, signed, signed_interval
from eval.summary import SYNTHETIC_NOTE

PUBLISHED = "published, 3B"
BELOW = "↓"
SEPARABLE = "*"
SHORT_TITLES = {"distance": "Dist.", "left_right": "L/R", "front_behind": "F/B"}
# What a line of floors tells: the best of the floors of these names that a task has.
FLOOR_LINES = {
    "honest floor": ("honest",),
    "best constant answer": ("constant_position", "constant_text", "constant_point"),
    "best constant rank": ("best_rank",),
    "widest depth range": ("widest_option",),
    "random guess": ("independent",),
}


def columns_shown(table: Table) -> list[Column]:
    """The score, then the tasks of the main part in order, each followed by the same task of the other parts."""
    tasks = [task for part, task in table.columns if part == table.main_part]
    return [SCORE, *(column for task in tasks for column in table.columns if column[1] == task)]


def head(table: Table, column: Column, short: bool = True) -> str:
    """The head of a column; in short tables another part's column is called by the part."""
    if column == SCORE:
        return "Score"
    part, task = column
    title = SHORT_TITLES.get(task, TASK_TITLES[task]) if short else TASK_TITLES[task]
    if part == table.main_part:
        return title
    return part if short else f"{title}, {part}"


def cell(table: Table, column: Column, value: float) -> str:
    """A score in percent, with a mark when it lies below the honest floor of its task."""
    return percent(value) + (BELOW if table.below(column, value) else "")


def gap(difference: Difference, interval: bool = False) -> str:
    """A difference in points of percent; its interval, or a mark where that leaves zero out."""
    if interval:
        return f"{signed(difference.difference)} {signed_interval(difference.ci95)}"
    return signed(difference.difference) + (SEPARABLE if separable(difference) else "")


def published_cell(row: RowFigures, table: Table, column: Column) -> str:
    """The paper's percentage of a row, with its two decimals; a dash in other parts' columns."""
    part, name = column
    return f"{100 * row.spec.published_scores[name]:.2f}" if column == SCORE or part == table.main_part else NONE


def floor_cells(table: Table, names: tuple[str, ...]) -> list[str]:
    """A line of floors: the best of the named ones in every column, a dash without any."""
    known = [[table.floor(column, name) for name in names] for column in columns_shown(table)[1:]]
    best = [max((value for value in values if value is not None), default=None) for values in known]
    main = [value for column, value in zip(columns_shown(table)[1:], best, strict=True) if column[0] == table.main_part]
    there = [value for value in main if value is not None]
    return [percent(fmean(there) if len(there) == len(main) else None), *map(percent, best)]


def seeds_told(table: Table, row: RowFigures) -> str:
    """`2 of 3 seeds: 0, 2` where some are missing, else nothing."""
    due = table.seeds if row.spec.start else row.seeds or table.seeds[:1]
    if not row.seeds:
        return "not run"
    if set(row.seeds) >= set(due):
        return ""
    return f"{len(row.seeds)} of {len(due)} seeds: {', '.join(map(str, row.seeds))}"


def titled(table: Table, row: RowFigures) -> str:
    """The title of a row, with what is missing of it."""
    told = seeds_told(table, row)
    return f"{row.spec.title} ({told})" if told else row.spec.title


def seed_scores(figures: ModeFigures) -> str:
    """The seeds' overall scores, in the order of the seeds."""
    return " ".join(percent(value) for value in figures.seed_scores.values())


def seed_gaps(difference: RowDifference) -> str:
    """The seeds' overall differences, in the order of the seeds."""
    return " ".join(signed(value) for value in difference.seed_gaps.values())


def title_of(table: Table, name: str) -> str:
    """The title of a row that the table may hold or not."""
    return next((row.spec.title for row in table.rows if row.name == name), table.other_titles.get(name, name))


def notes(table: Table) -> list[str]:
    """What one has to know to read the table."""
    units = {count for (part, _), count in table.units.items() if part == table.main_part}
    counted = f"{min(units)}" if len(units) == 1 else f"{min(units)} to {max(units)}"
    others = sorted({part for part, _ in table.columns} - {table.main_part})
    lines = [
        f"Percent, mean over the seeds {', '.join(map(str, table.seeds))}; the score of each seed beside. Score: the "
        f"plain mean of the six tasks, {counted} units each; a mirrored pair counts when both answers are right.",
        *(_decoding(table, mode) for mode in MODES),
        f"{BELOW} below the honest floor of its task.",
        f"Intervals, 95 %: bootstrap over images, the same images for both rows and all seeds, averaged over seeds. "
        f"{SEPARABLE} the interval of a difference leaves zero out. No correction for looking at several columns.",
        f"{PUBLISHED}: what the paper reports for Qwen2.5-VL-3B on nuScenes; compare directions, not numbers.",
        *(f"{part}: units of the question file {part}, not part of the Score." for part in others),
        f"{SYNTHETIC_NOTE}." if "synthetic" in table.source else "",
    ]
    return [*(line for line in lines if line), *missing(table)]


def missing(table: Table) -> list[str]:
    """What is not there: rows, seeds, and differences that would need them."""
    lines = [f"{row.spec.title} ({told})." for row in table.rows if (told := seeds_told(table, row))]
    return [f"Missing: {' '.join(lines)}"] if lines else []


def _decoding(table: Table, mode: str) -> str:
    """How answers were decoded, as long as all rows agree."""
    ways = {(row.modes[mode].temperature, row.modes[mode].samples) for row in table.rows if row.modes}
    told = [f"temperature {t:g}, mean of {k} answers a question" if t else "greedy" for t, k in sorted(ways)]
    return f"{mode}: {'; '.join(told)}." if ways and told != [mode] else ""
