"""DriveMLLM's table for the terminal: eight tasks under both scorings, what guessing scores, and the published rows."""

from __future__ import annotations

from data_gen.columns import NONE, aligned, percent
from data_gen.drivemllm.records import TASKS
from eval.drivemllm_scores import SCORINGS
from eval.drivemllm_summary import DriveMLLMSummary, figures_of, notes, published_rows
from eval.text_table import with_interval

EXPLANATION = (
    "Percent. acc: over valid answers; eff: valid answers / questions; score = acc * eff, [95 % interval over images]. "
    "The last line holds AccS, EffS and Score, the plain means of the tasks. PPos falls with pixels of the image; "
    "those of nuScenes are 1600x900."
)


def run_table(summary: DriveMLLMSummary) -> str:
    """The whole text for one run."""
    title = f"DRIVEMLLM  {summary.label}  ({summary.scoring} scoring, {summary.prompt_style})"
    remarks = [EXPLANATION, *(f"! {note}" for note in notes(summary))]
    return "\n".join([title, *aligned(score_rows(summary)), "", *aligned(published_cells(summary)), *remarks])


def score_rows(summary: DriveMLLMSummary) -> list[list[str]]:
    """Head, a row per task, and the means. Floors are those of the main scoring."""
    order = [summary.scoring, *(name for name in SCORINGS if name != summary.scoring)]
    main, other = (figures_of(summary, name) for name in order)
    kinds = "valid of asked"
    head = ["task", "acc", "eff", "score", kinds, f"acc ({order[1]})", f"score ({order[1]})", "random", "constant"]
    rows = [head]
    for task, figures in main.tasks.items():
        short = other.tasks[task]
        rows.append([
            TASKS[task], percent(figures.accuracy), percent(figures.efficiency),
            with_interval(figures.score, figures.ci95), f"{figures.valid}/{figures.asked}",
            percent(short.accuracy), percent(short.score),
            percent(figures.floors["random"]), percent(figures.floors["constant"]),
        ])  # fmt: skip
    rows.append([
        "mean", percent(main.acc_s), percent(main.eff_s), with_interval(main.score, main.ci95),
        f"{summary.questions} q.", percent(other.acc_s), percent(other.score),
        percent(main.floors["random"]), percent(main.floors["constant"]),
    ])  # fmt: skip
    return rows


def published_cells(summary: DriveMLLMSummary) -> list[list[str]]:
    """Scores of the tasks by the official scoring: this run's, and the published models'."""
    own = figures_of(summary, "official")
    scores = {task: figures.score for task, figures in own.tasks.items()}
    rows = [["official score", *TASKS.values(), "AccS", "EffS", "Score"]]
    rows.append([summary.label, *_cells(scores), *map(percent, (own.acc_s, own.eff_s, own.score))])
    for row in published_rows(summary.prompt_style):
        totals = map(percent, (row.acc_s, row.eff_s, row.score))
        rows.append([f"{row.model} (published)", *_cells(row.scores), *totals])
    return rows


def _cells(scores: dict[str, float]) -> list[str]:
    return [percent(scores[task]) if task in scores else NONE for task in TASKS]
