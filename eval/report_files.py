"""A comparison of runs as Markdown, for an issue or a paper's draft, and as CSV, for a plot of one's own."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_gen.columns import NONE, percent
from data_gen.pages import TASK_TITLES
from eval.markdown_table import grid
from eval.metrics import Difference, Interval
from eval.summary import Summary, notes
from eval.text_table import with_interval
from rewards.grading import TASKS

NOT_SEPARABLE = "not separable"
CSV_HEAD = ("kind", "run", "against", "column", "value", "low", "high", "units")
FLOOR_TITLES = {
    "independent": "random guess (expected)",
    "random_run": "random guess (one seeded run)",
    "self_consistent": "self-consistent guess",
    "constant_position": "best constant position",
    "constant_text": "best constant text",
    "widest_option": "widest option",
    "best_rank": "best constant rank",
    "constant_point": "best constant point",
    "honest": "honest floor",
}


@dataclass(frozen=True)
class Comparison:
    """Scores of one run minus those of another, by task and under `score`; both are places of runs."""

    run: int
    against: int
    differences: dict[str, Difference]


def separable(difference: Difference) -> bool:
    """Whether the interval leaves zero out; without an interval nothing can be told."""
    interval = difference.ci95
    return interval is not None and not interval[0] <= 0 <= interval[1]


def signed(value: float) -> str:
    """A difference of fractions in points of percent, with its sign."""
    return f"{100 * value:+.1f}"


def signed_interval(interval: Interval) -> str:
    """`[-1.0, +2.5]`, or a dash."""
    return f"[{signed(interval[0])}, {signed(interval[1])}]" if interval else NONE


def in_words(difference: Difference) -> str:
    """`+3.2 [+0.4, +6.0]`, and the words when zero is inside."""
    told = f"{signed(difference.difference)} {signed_interval(difference.ci95)}"
    return told if separable(difference) else f"{told} {NOT_SEPARABLE}"


def markdown(summaries: Sequence[Summary], comparisons: Sequence[Comparison], remarks: Sequence[str]) -> str:
    """Scores, floors, differences and what qualifies them."""
    columns = columns_of(summaries)
    head = ["", *(TASK_TITLES.get(column, "Score") for column in columns)]
    scores = [[summary.label, *(_cell(summary, column) for column in columns)] for summary in summaries]
    floors = [
        [FLOOR_TITLES[name], *(percent(floor(summaries[0], name, column)) for column in columns)]
        for name in floor_names(summaries[0])
    ]
    parts = [
        f"# {summaries[0].benchmark.upper()}: {', '.join(summary.label for summary in summaries)}",
        f"{summaries[0].questions} questions ({summaries[0].source}), {summaries[0].scoring} scoring. Percent, with "
        "95 % intervals by bootstrap over images. Score: the plain mean of the tasks.",
        "\n".join(f"- {line}" for line in [*notes(list(summaries)), *remarks]),
        "## Scores\n\n" + grid([head, *scores]),
        f"## Floors on the questions of {summaries[0].label}\n\n" + grid([head, *floors]),
    ]
    if comparisons:
        rows = [
            [f"{summaries[item.run].label} minus {summaries[item.against].label}"]
            + [in_words(item.differences[c]) if c in item.differences else NONE for c in columns]
            for item in comparisons
        ]
        parts.append("## Differences, paired on the same questions\n\n" + grid([head, *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def comma_separated(summaries: Sequence[Summary], comparisons: Sequence[Comparison]) -> str:
    """One value a line, fractions. kind: `score`, `difference` (run minus `against`) or `floor NAME`."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    writer.writerows(_lines(summaries, comparisons))
    return buffer.getvalue()


def columns_of(summaries: Sequence[Summary]) -> list[str]:
    """The tasks that some run has, then `score`."""
    return [*(task for task in TASKS if any(task in summary.tasks for summary in summaries)), "score"]


def floor_names(summary: Summary) -> list[str]:
    """The floors that some task of a run has, in the order they are told."""
    return [name for name in FLOOR_TITLES if any(name in figures.floors for figures in summary.tasks.values())]


def floor(summary: Summary, name: str, column: str) -> float | None:
    """A floor of a task or of the `score`, None where there is no such floor."""
    if column == "score":
        return summary.floors.get(name)
    return summary.tasks[column].floors.get(name) if column in summary.tasks else None


def _lines(summaries: Sequence[Summary], comparisons: Sequence[Comparison]) -> Iterator[list[object]]:
    for summary in summaries:
        for task, figures in summary.tasks.items():
            yield ["score", summary.label, "", task, figures.score, *_ends(figures.ci95), figures.units]
        yield ["score", summary.label, "", "score", summary.score, *_ends(summary.ci95), ""]
        for name in floor_names(summary):
            for column in columns_of([summary]):
                if (value := floor(summary, name, column)) is not None:
                    yield [f"floor {name}", summary.label, "", column, value, "", "", ""]
    for item in comparisons:
        names = summaries[item.run].label, summaries[item.against].label
        for column, found in item.differences.items():
            yield ["difference", *names, column, found.difference, *_ends(found.ci95), found.units]


def _ends(interval: Interval) -> tuple[object, object]:
    return interval or ("", "")


def _cell(summary: Summary, column: str) -> str:
    if column == "score":
        return with_interval(summary.score, summary.ci95)
    figures = summary.tasks.get(column)
    return with_interval(figures.score, figures.ci95) if figures else NONE
