"""Tables for the terminal: percentages with their intervals, columns aligned."""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.columns import NONE, aligned, percent
from eval.metrics import Interval, TaskFigures
from eval.summary import Summary, notes
from rewards.grading import TASKS

PUBLISHED_SCORING = "official"
_FLOOR_HEADS = {"independent": "random", "random_run": "random run", "honest": "honest floor"}
_OTHER_FLOORS = {
    "self_consistent": "self-consistent guess",
    "constant_position": "constant position",
    "constant_text": "constant text",
    "widest_option": "widest range",
    "best_rank": "best of nearest, middle, farthest",
    "constant_point": "constant point",
}


def with_interval(value: float | None, ci95: Interval) -> str:
    """`12.3 [8.1, 16.9]`, or a dash."""
    if value is None or ci95 is None:
        return percent(value)
    return f"{percent(value)} [{percent(ci95[0])}, {percent(ci95[1])}]"


def run_table(summary: Summary) -> str:
    """One run: a line per task with its rates and floors; below them the published rows, marked as such."""
    head = ["task", "score", "units", "valid", "acc. if valid", "single", *_FLOOR_HEADS.values(), "formed", "loc"]
    rows = [[task, *_task_cells(figures)] for task, figures in summary.tasks.items()]
    floors = [percent(summary.floors.get(name)) for name in _FLOOR_HEADS]
    last = [percent(summary.well_formed), percent(summary.loc)]
    score = with_interval(summary.score, summary.ci95)
    rows.append(["Score", score, str(summary.questions) + " q.", "", "", "", *floors, *last])
    drawn = f", {summary.decoding}" if summary.decoding and summary.decoding.temperature else ""
    about = f"({summary.scoring} scoring, {summary.prompt_style} prompt{drawn})"
    title = f"{summary.benchmark.upper()}  {summary.label}  {about}"
    table = [title, *aligned([head, *rows]), *other_floors(summary), *footnotes([summary])]
    return "\n".join([*table, *published_table(summary)])


def published_table(summary: Summary) -> list[str]:
    """The run among the rows of the paper, each marked as published, and as not comparable where it is not."""
    if summary.published is None:
        return []
    caveats = summary.published.caveats
    mark = f"published; {caveats[0]}, not comparable" if caveats else "published"
    title = summary.published.source + (f" (not comparable with this run: {'; '.join(caveats)})" if caveats else "")
    rows = [["", *TASKS, "Score", "table", ""]]
    own = {task: figures.score for task, figures in summary.tasks.items()} | {"score": summary.score}
    own = own if summary.scoring == PUBLISHED_SCORING else summary.other_scorings.get(PUBLISHED_SCORING, {})
    rows.append([summary.label, *_two_decimals(own), "", f"this run, {PUBLISHED_SCORING} scoring"])
    for row in summary.published.rows:
        rows.append([row.model, *_two_decimals(row.scores), ", ".join(map(str, row.tables)), mark])
    return ["", title, *aligned(rows)]


def other_floors(summary: Summary) -> list[str]:
    """What the table has no column for, a line a task: constant answers, the widest range, one rank, the best point."""
    lines = ["Other floors on these questions:"]
    for task, figures in summary.tasks.items():
        named = [f"{title} {percent(figures.floors[name])}" for name, title in _OTHER_FLOORS.items()
                 if name in figures.floors]  # fmt: skip
        lines.append(f"  {task}: {', '.join(named)}")
    return lines


def runs_table(summaries: Sequence[Summary], width: int = 200) -> str:
    """Several runs: a line per run, a column per task; below them what guessing scores on the same questions.

    Turned, a line per task, where it would be wider than `width` characters.
    """
    head = ["run", *TASKS, "Score", "formed", "loc"]
    rows = [head, *map(_run_cells, summaries)]
    first = summaries[0]
    for name, title in (("independent", "random (expected)"), ("honest", "honest floor")):
        cells = [percent(first.tasks[task].floors[name]) if task in first.tasks else NONE for task in TASKS]
        rows.append([title, *cells, percent(first.floors[name]), "", ""])
    lines = aligned(rows)
    if len(lines[0]) > width:
        lines = aligned(list(zip(*rows, strict=True)))
    return "\n".join([*lines, *footnotes(summaries)])


def footnotes(summaries: Sequence[Summary]) -> list[str]:
    """Lines that qualify the numbers, and the scores under the other scoring where they differ."""
    lines = [
        "Percent; [95 % interval: bootstrap over images; where all of them score alike, what so many can miss]. "
        "Score: the plain mean of the tasks."
    ]
    missing = [task for task in TASKS if any(task not in summary.tasks for summary in summaries)]
    if missing:
        lines.append(f"No questions for {', '.join(missing)}: the Score is the mean of the other tasks only.")
    for summary in summaries:
        for scoring, scores in summary.other_scorings.items():
            if differs(summary, scores):
                listed = ", ".join(f"{name} {percent(value)}" for name, value in scores.items())
                lines.append(f"{summary.label}, {scoring} scoring: {listed}")
    return [*lines, *(f"! {note}" for note in notes(list(summaries)))]


def differs(summary: Summary, scores: dict[str, float]) -> bool:
    """Whether another scoring gives a task of this run another score."""
    return any(abs(scores[task] - figures.score) > 1e-9 for task, figures in summary.tasks.items())


def _two_decimals(scores: dict[str, float]) -> list[str]:
    """Scores of the tasks and the overall one as they are published."""
    return [f"{100 * scores[name]:.2f}" if name in scores else NONE for name in (*TASKS, "score")]


def _task_cells(figures: TaskFigures) -> list[str]:
    return [
        with_interval(figures.score, figures.ci95),
        str(figures.units),
        percent(figures.valid_rate),
        percent(figures.valid_accuracy),
        percent(figures.single_question),
        *(percent(figures.floors.get(name)) for name in _FLOOR_HEADS),
        percent(figures.well_formed),
        percent(figures.loc),
    ]


def _run_cells(summary: Summary) -> list[str]:
    tasks = [summary.tasks.get(task) for task in TASKS]
    cells = [with_interval(item.score, item.ci95) if item else NONE for item in tasks]
    last = [percent(summary.well_formed), percent(summary.loc)]
    return [summary.label, *cells, with_interval(summary.score, summary.ci95), *last]
