"""The page of an ablation and its charts: tables, differences, curves over steps, and answers to the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from data_gen.pages import TASK_TITLES, page_template
from eval.ablation.charts import Lines, differences_chart, legend, panels, scores_chart
from eval.ablation.drawing import Drawing, stacked, to_svg
from eval.ablation.figures import SCORE, RowDifference, Table
from eval.ablation.records import MODES, RowResult, TestQuestions
from eval.ablation.shown import results_shown, shown_questions
from eval.ablation.table_files import cost_rows
from eval.ablation.words import (
    FLOOR_LINES,
    PUBLISHED,
    columns_shown,
    floor_cells,
    head,
    notes,
    published_cell,
    title_of,
    titled,
)
from eval.report import RUN_COLOURS, status
from eval.report_files import separable, signed, signed_interval
from rewards import REWARDS
from rewards.grading import TASKS

TEMPLATE = Path(__file__).parents[1] / "ablation_template.html"
# Titles of groups of curves, and the figures of the training log in each.
GROUPS = {
    "rewards": "Rewards of sampled answers, by training step",
    "held-out": "Accuracy on held-out questions, by training step",
    "accuracy": "Accuracy of sampled training answers, by training step",
    "rewards-by-task": "Rewards by task, by training step",
    "training": "What else training logged",
}
CURVE_TITLES = {
    **{f"rewards/{name}/mean": name for name in REWARDS},
    **{f"rewards/{name}/{task}": f"{name}: {TASK_TITLES[task]}" for name in REWARDS for task in TASKS},
    "held_out/score": "Score",
    **{f"held_out/{task}": TASK_TITLES[task] for task in TASKS},
    **{f"accuracy/{task}": TASK_TITLES[task] for task in TASKS},
    "completions/mean_length": "tokens of an answer",
    "frac_reward_zero_std": "groups without spread",
}
Results = Mapping[str, Mapping[int, RowResult]]


@dataclass(frozen=True)
class Chart:
    """A chart of the page. name: what its PNG is called, too."""

    name: str
    title: str
    drawing: Drawing


def colours_of(table: Table) -> dict[str, str]:
    """Row -> its colour."""
    return {row.name: RUN_COLOURS[place % len(RUN_COLOURS)] for place, row in enumerate(table.rows)}


def charts_of(table: Table, results: Results) -> list[Chart]:
    """All charts that there is something to show in."""
    colours, charts = colours_of(table), []
    if any(row.modes for row in table.rows):
        charts.append(Chart("scores", "Score by row", scores_chart(table, colours)))
    for mode in MODES if table.differences else ():
        title = f"Differences in the score, {mode}"
        charts.append(Chart(f"differences-{mode}", title, differences_chart(table, colours, mode)))
    for group, title in GROUPS.items():
        curves = {
            name: lines for name in figures_of(group, table, results) if (lines := lines_of(name, table, results))
        }
        if curves:
            drawn = [row for row in table.rows if any(name in _kept(row.name, results) for name in curves)]
            told = legend({row.name: row.spec.title for row in drawn}, colours)
            charts.append(Chart(group, title, stacked([told, panels(curves, CURVE_TITLES)])))
    return charts


def figures_of(group: str, table: Table, results: Results) -> list[str]:
    """The figures of the training log that a group of panels shows."""
    names = {name for row in table.rows for name in _kept(row.name, results)}
    if group == "rewards":
        return [name for reward in REWARDS if (name := f"rewards/{reward}/mean") in names]
    if group == "rewards-by-task":
        return [name for task in TASKS for reward in REWARDS if (name := f"rewards/{reward}/{task}") in names]
    if group == "training":
        return sorted(name for name in names if name.split("/")[0] not in ("rewards", "accuracy", "held_out"))
    prefix = group.replace("-", "_")
    return [name for name in (f"{prefix}/{task}" for task in ("score", *TASKS)) if name in names]


def lines_of(name: str, table: Table, results: Results) -> list[Lines]:
    """The curves of one figure, of every row that logged it."""
    colours, lines = colours_of(table), []
    for row in table.rows:
        curves = [result.curves[name] for result in results.get(row.name, {}).values() if result.curves.get(name)]
        lines += [Lines(colours[row.name], tuple(curves))] if curves else []
    return lines


def render(
    table: Table, charts: Sequence[Chart], questions: TestQuestions, results: Results, images: Path | None
) -> str:
    """The page as text. images: folder of the images, or None where they are not at hand."""
    chosen = results_shown([row.name for row in table.rows], results)
    shown = shown_questions(questions, chosen, images)
    return page_template(TEMPLATE).render(
        table=table,
        notes=notes(table),
        columns=columns_shown(table),
        score=SCORE,
        head=head,
        titled=titled,
        title_of=title_of,
        published=PUBLISHED,
        published_cell=published_cell,
        floor_lines=FLOOR_LINES,
        floor_cells=floor_cells,
        cost_rows=cost_rows(table),
        pairs=pairs_of(table),
        separable=separable,
        signed=signed,
        signed_interval=signed_interval,
        charts=[(chart, Markup(to_svg(chart.drawing, chart.title))) for chart in charts],
        colours=colours_of(table),
        shown=shown,
        titles=TASK_TITLES,
        row_titles={row.name: row.spec.title for row in table.rows},
        seeds_shown=sorted({result.seed for result in chosen.values()}),
        pictures=any(item.picture.uri for item in shown),
        status=status,
    )


def pairs_of(table: Table) -> list[tuple[tuple[str, str], list[RowDifference]]]:
    """(row, row it is compared with) and the differences of the two, in order."""
    pairs: dict[tuple[str, str], list[RowDifference]] = {}
    for item in table.differences:
        pairs.setdefault((item.row, item.against), []).append(item)
    return list(pairs.items())


def _kept(row: str, results: Results) -> set[str]:
    """The figures that some seed of a row logged."""
    return {name for result in results.get(row, {}).values() for name in result.curves}
