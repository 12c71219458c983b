"""CyclingVQA's tables for the terminal: one run beside the published models, and a ranking of several runs."""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.columns import NONE, aligned, decimal, percent
from data_gen.cycling.records import LETTERS, TASKS
from eval.cycling_scores import FLOORS, NO_CHOICE, TaskFigures
from eval.cycling_summary import CyclingSummary, PublishedRow, notes, published
from eval.text_table import with_interval

SHOWN_PUBLISHED = 3
EXPLANATION = (
    "Percent; [95 % interval over photographs]. mean: over tasks; micro: over items. chance: a uniform guess among "
    "each item's own choices; constant: the best single letter, the best single text. tokens: their mean."
)


def run_table(summary: CyclingSummary) -> str:
    """The whole text for one run."""
    title = f"CYCLINGVQA  {summary.label}  ({summary.prompt_style} prompt)"
    shown = [row for row in published().rows if row.rank <= SHOWN_PUBLISHED or row.model == "Random"]
    parts = [aligned(score_rows(summary)), aligned(histogram_rows(summary)), aligned(published_rows(summary, shown))]
    blocks = ["\n".join(lines) for lines in parts]
    remarks = [EXPLANATION, reading(summary), *(f"! {note}" for note in notes(summary))]
    return "\n".join([title, "\n\n".join(blocks), *remarks])


def score_rows(summary: CyclingSummary) -> list[list[str]]:
    """Head, a row per task, and the means."""
    rows = [
        ["task", "accuracy", "items", "valid", "acc. if valid", *(name.replace("_", " ") for name in FLOORS), "tokens"]
    ]
    for task, figures in summary.tasks.items():
        rows.append([
            task, with_interval(figures.score, figures.ci95), str(figures.items), percent(figures.valid_rate),
            percent(figures.valid_accuracy), *(percent(figures.floors[name]) for name in FLOORS),
            decimal(figures.mean_tokens),
        ])  # fmt: skip
    floors = [percent(summary.floors[name]) for name in FLOORS]
    last = [percent(summary.valid_rate), "", *floors, decimal(summary.mean_tokens)]
    rows.append(["mean", with_interval(summary.score, summary.ci95), str(summary.items), *last])
    rows.append(["micro", with_interval(summary.micro, summary.micro_ci95), "", "", "", "", "", "", ""])
    return rows


def histogram_rows(summary: CyclingSummary) -> list[list[str]]:
    """A head and a row per task: how often each letter was given, and in brackets how often it is right."""
    tasks = summary.tasks.values()
    letters = [letter for letter in LETTERS if any(letter in {**task.given, **task.right} for task in tasks)]
    rows = [["answers given (right)", *letters, NO_CHOICE]]
    for task, figures in summary.tasks.items():
        cells = [_cell(figures, letter) for letter in letters]
        rows.append([task, *cells, str(figures.given.get(NO_CHOICE, 0))])
    return rows


def _cell(figures: TaskFigures, letter: str) -> str:
    if letter not in figures.given and letter not in figures.right:
        return ""
    return f"{figures.given.get(letter, 0)} ({figures.right.get(letter, 0)})"


def published_rows(summary: CyclingSummary, shown: Sequence[PublishedRow]) -> list[list[str]]:
    """This run and published ones, accuracy by task."""
    rows = [["accuracy", *TASKS, "mean"], _run_row(summary)]
    return [*rows, *([f"{row.model} (published)", *(f"{row.scores[task]:.1f}" for task in TASKS), f"{row.mean:.1f}"]
                     for row in shown)]  # fmt: skip


def ranking(summaries: Sequence[CyclingSummary]) -> str:
    """Runs by their mean over tasks, best first; runs with the same mean share a rank."""
    ordered = sorted(summaries, key=lambda summary: -summary.score)
    rows = [["run", *TASKS, "mean", "micro", "valid", "tokens", "rank"]]
    for summary in ordered:
        rank = 1 + sum(other.score > summary.score + 1e-12 for other in summaries)
        last = [percent(summary.micro), percent(summary.valid_rate), decimal(summary.mean_tokens), str(rank)]
        rows.append([*_run_row(summary), *last])
    lines = aligned(rows)
    if len({summary.asked for summary in summaries}) > 1:
        lines.append("! these runs did not answer the same items: the ranks mean nothing")
    if len({summary.prompt_style for summary in summaries}) > 1:
        lines.append(
            "! these runs were prompted differently: " + ", ".join(f"{s.label} {s.prompt_style}" for s in ordered)
        )
    return "\n".join(lines)


def reading(summary: CyclingSummary) -> str:
    """How the choices were read."""
    counts = ", ".join(f"{count} by {how}" if how != NO_CHOICE else f"{count} not at all" for how, count in
                       summary.read_by.items())  # fmt: skip
    used = summary.judge
    asked = f"; judge {used.model}: asked {used.asked}, settled {used.settled}" if used else "; no judge"
    return f"choices read: {counts}{asked}"


def _run_row(summary: CyclingSummary) -> list[str]:
    cells = [percent(summary.tasks[task].score) if task in summary.tasks else NONE for task in TASKS]
    return [summary.label, *cells, percent(summary.score)]
