"""Compare finished runs: one table on the terminal and one self-contained page with pictures.

python eval/report.py runs/eval-base runs/eval-sft runs/eval-grpo --out report.html
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError
from data_gen.files import write_whole
from data_gen.pages import TASK_TITLES, page_template
from data_gen.records import Question, RecordError, iterate_rows, read_questions
from eval.gallery import Card, make_cards
from eval.metrics import Interval
from eval.runner import PREDICTIONS_FILE, RunFacts, read_facts
from eval.summary import Summary, notes, read_summary
from eval.text_table import differs, runs_table
from rewards.grading import TASKS

TEMPLATE = Path(__file__).with_name("report_template.html")
# Okabe and Ito's colours, told apart by colour-blind readers too.
RUN_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#555555")
FLOOR_TITLES = {
    "independent": "random guess (expected)",
    "self_consistent": "self-consistent guess",
    "constant_position": "best constant position",
    "constant_text": "best constant text",
    "widest_option": "widest option",
    "constant_point": "best constant point",
    "honest": "honest floor",
}


@dataclass(frozen=True)
class Run:
    """A finished run as read from its folder."""

    summary: Summary
    facts: RunFacts
    predictions: dict[str, dict[str, Any]]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison and write the page; 0, or 2 with the remedy when a folder holds no finished run."""
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="Run folders of eval/surds.py, in order.")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="The page (default: %(default)s).")
    options = parser.parse_args(argv)
    try:
        summaries = write_report(options.runs, options.out)
    except (UsageError, RecordError) as error:
        print(f"eval/report.py: {error}", file=sys.stderr)
        return 2
    print(runs_table(summaries, shutil.get_terminal_size((200, 24)).columns))
    print(f"\n{options.out}")
    return 0


def write_report(folders: Sequence[Path], out: Path) -> list[Summary]:
    """Write the page that compares the runs in `folders`; returns their summaries. Raises UsageError, RecordError."""
    runs = [read_run(folder) for folder in folders]
    cards, remark = gallery(runs)
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file such as {out / 'report.html'} with --out")
    write_whole(out, render(runs, cards, remark))
    return [run.summary for run in runs]


def read_run(folder: Path) -> Run:
    """A finished run. Raises UsageError or RecordError when the folder holds none."""
    facts = read_facts(folder)
    predictions = {row["id"]: row for _, row in iterate_rows(folder / PREDICTIONS_FILE)}
    return Run(read_summary(folder), facts, predictions)


def gallery(runs: Sequence[Run]) -> tuple[list[Card], str]:
    """The cards of questions that all runs answered, and a remark where there is something to say about them."""
    facts = runs[0].facts
    data = Path(facts.data)
    if not data.is_file():
        return [], f"No pictures: the question file {data} is no longer there."
    cards = make_cards(
        read_questions(data),
        Path(facts.image_root),
        [run.predictions for run in runs],
        [run.facts.frame for run in runs],
        [run.summary.scoring for run in runs],
    )
    return cards, "" if cards else "No pictures: no question was answered by all runs."


def render(runs: Sequence[Run], cards: Sequence[Card], remark: str) -> str:
    """The page as text; everything that came from a model is escaped."""
    summaries = [run.summary for run in runs]
    return page_template(TEMPLATE).render(
        summaries=summaries,
        runs=runs,
        colours=[RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(runs))],
        notes=notes(summaries),
        tasks=[task for task in TASKS if any(task in summary.tasks for summary in summaries)],
        missing=[task for task in TASKS if any(task not in summary.tasks for summary in summaries)],
        titles=TASK_TITLES,
        floor_titles=FLOOR_TITLES,
        floors=[name for name in FLOOR_TITLES if any(name in f.floors for f in summaries[0].tasks.values())],
        best=best_scores(summaries),
        top=axis_top(summaries),
        differs=differs,
        cards=cards,
        pictures={card.picture.key: card.picture for card in cards}.values(),
        remark=remark,
        status=status,
    )


def best_scores(summaries: Sequence[Summary]) -> dict[str, float]:
    """The highest score of each column among several runs; empty for one run."""
    if len(summaries) < 2:
        return {}
    best = {task: max(s.tasks[task].score for s in summaries if task in s.tasks) for task in summaries[0].tasks}
    return {**best, "score": max(summary.score for summary in summaries)}


def axis_top(summaries: Sequence[Summary]) -> float:
    """Upper end of the plot's axis, a multiple of 0.2 that covers every score, interval and honest floor."""
    values = [0.2]
    for summary in summaries:
        values += [summary.score, summary.floors["honest"], _upper(summary.ci95)]
        for figures in summary.tasks.values():
            values += [figures.score, figures.floors["honest"], _upper(figures.ci95)]
    return min(1.0, math.ceil(max(values) * 5 - 1e-9) / 5)


def status(question: Question, score: float) -> str:
    """`right`, `near` (a point in the box but off its centre) or `wrong`."""
    if question.task == "pixel" and 0 < score < 1:
        return "near"
    return "right" if score > 0 else "wrong"


def _upper(ci95: Interval) -> float:
    return ci95[1] if ci95 else 0.0


if __name__ == "__main__":
    sys.exit(main())
