"""Compare finished runs on SURDS: a table on the terminal and one self-contained page with pictures.

    python eval/report.py runs/eval-base runs/eval-sft runs/eval-grpo --out report.html

Beside the page come report.md and report.csv with scores, floors and differences. Every run is compared with the first
and with the one before, on the same questions.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.command_line import UsageError
from data_gen.compass import DIRECTIONS
from data_gen.files import write_whole
from data_gen.pages import TASK_TITLES, page_template
from data_gen.records import Question, RecordError
from eval.confusion import Confusion, confusions
from eval.finished_run import FinishedRun, asked_questions, comparable, named_apart, read_run
from eval.gallery import KINDS, Card, make_cards
from eval.metrics import Interval, TaskFigures, paired_differences
from eval.radar import HEIGHT, WIDTH, Radar, Series, radar
from eval.report_files import (
    FLOOR_TITLES,
    NOT_SEPARABLE,
    Comparison,
    columns_of,
    comma_separated,
    floor,
    floor_names,
    in_words,
    markdown,
    separable,
    signed,
    signed_interval,
)
from eval.summary import Summary, notes
from eval.text_table import differs, runs_table
from rewards.grading import TASKS

# Headings for narrow columns: Northeast is NE.
INITIALS = {name: name[0] + (name[5].upper() if len(name) > 5 else "") for name in DIRECTIONS}
TEMPLATE = Path(__file__).with_name("report_template.html")
# Okabe and Ito's colours, told apart by colour-blind readers too.
RUN_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#555555")
# Why an answer is worth nothing whatever the truth; other codes are about its form, or say that it is wrong.
INVALID_REASONS = ("no_answer", "no_option", "several_options", "not_a_number", "out_of_image")


@dataclass(frozen=True)
class Findings:
    """What comes from the single answers. confusions: (place of run, task -> table). remarks: what was not done."""

    comparisons: tuple[Comparison, ...] = ()
    confusions: tuple[tuple[int, dict[str, Confusion]], ...] = ()
    cards: tuple[Card, ...] = ()
    remarks: tuple[str, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison and write the page; 0, or 2 with the remedy when a folder holds no finished run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="Run folders of eval/surds.py, in order.")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="The page (default: %(default)s).")
    options = parser.parse_args(argv)
    try:
        runs = named_apart([read_run(folder) for folder in options.runs], options.runs)
        found = write_page(runs, options.out)
    except (UsageError, RecordError) as error:
        print(f"eval/report.py: {error}", file=sys.stderr)
        return 2
    summaries = [run.summary for run in runs]
    print(runs_table(summaries, shutil.get_terminal_size((200, 24)).columns))
    for line in told_differences(summaries, found.comparisons):
        print(line)
    for remark in found.remarks:
        print(f"! {remark}")
    print(f"\n{options.out}  (also {', '.join(options.out.with_suffix(ending).name for ending in ('.md', '.csv'))})")
    return 0


def write_page(runs: Sequence[FinishedRun], out: Path, questions: Sequence[Question] | None = None) -> Findings:
    """Write the page that compares the runs, and its numbers as Markdown and CSV. Raises UsageError, RecordError.

    questions: those that the first run was asked, where they are at hand; else they are read from their file.
    """
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out names the page, a file that ends in .html, got {out}")
    found = find(runs, questions)
    summaries = [run.summary for run in runs]
    write_whole(out, render(runs, found))
    write_whole(out.with_suffix(".md"), markdown(summaries, found.comparisons, found.remarks))
    write_whole(out.with_suffix(".csv"), comma_separated(summaries, found.comparisons))
    return found


def find(runs: Sequence[FinishedRun], questions: Sequence[Question] | None = None) -> Findings:
    """Differences, confusions and pictures of the runs that can be held against the first."""
    same = comparable(runs)
    others = [run.summary.label for place, run in enumerate(runs) if place not in same]
    remarks = []
    if others:
        remarks.append(
            f"{', '.join(others)}: other questions or another scoring than {runs[0].summary.label}; no differences, "
            "radar polygon, confusions or pictures, as they would mix what cannot be compared"
        )
    try:
        questions = asked_questions(runs[0]) if questions is None else questions
    except (UsageError, RecordError) as error:
        return Findings(remarks=(*remarks, f"no differences, confusions or pictures: {error}"))
    held = {place: runs[place] for place in same}
    sampled = [run.summary.label for run in held.values() if len(run.samples) > 1]
    if sampled:
        remarks.append(f"{', '.join(sampled)}: confusions and full outputs are those of the first sample alone")
    tables = {place: confusions(questions, run.predictions, run.facts.frame) for place, run in held.items()}
    return Findings(
        comparisons=tuple(compare(questions, runs, same)),
        confusions=tuple(tables.items()),
        cards=tuple(make_cards(questions, Path(runs[0].facts.image_root), held)),
        remarks=tuple(remarks),
    )


def compare(questions: Sequence[Question], runs: Sequence[FinishedRun], places: Sequence[int]) -> list[Comparison]:
    """Every run of `places` against the first of them and against the one before it."""
    pairs = [(run, against) for before, run in enumerate(places[1:]) for against in {places[0], places[before]}]
    scores = {place: runs[place].unit_scores(questions) for place in places}
    return [
        Comparison(run, against, paired_differences(questions, scores[against], scores[run]))
        for run, against in sorted(pairs, key=lambda pair: (pair[1] != places[0], pair))
    ]


def told_differences(summaries: Sequence[Summary], comparisons: Sequence[Comparison]) -> list[str]:
    """The differences of the Score for the terminal."""
    lines = [
        f"{summaries[item.run].label} minus {summaries[item.against].label}: {in_words(item.differences['score'])}"
        for item in comparisons
    ]
    return ["", "Differences of the Score, paired by image:", *lines] if lines else []


def render(runs: Sequence[FinishedRun], found: Findings) -> str:
    """The page as text; everything that came from a model is escaped."""
    summaries = [run.summary for run in runs]
    columns = columns_of(summaries)
    return page_template(TEMPLATE).render(
        summaries=summaries,
        colours=[RUN_COLOURS[place % len(RUN_COLOURS)] for place in range(len(runs))],
        notes=[*notes(summaries), *found.remarks],
        tasks=columns[:-1],
        columns=columns,
        missing=[task for task in TASKS if any(task not in summary.tasks for summary in summaries)],
        titles={**TASK_TITLES, "score": "Score"},
        floor_titles=FLOOR_TITLES,
        floors=floor_names(summaries[0]),
        floor=floor,
        best=best_scores([summaries[place] for place in comparable(runs)]),
        top=axis_top(summaries),
        differs=differs,
        chart=chart_of(runs),
        chart_size=(WIDTH, HEIGHT),
        found=found,
        initials=INITIALS,
        separable=separable,
        signed=signed,
        signed_interval=signed_interval,
        not_separable=NOT_SEPARABLE,
        reasons=reason_rows(summaries),
        invalid_reasons=INVALID_REASONS,
        kinds=[kind for kind in KINDS if any(card.kind == kind for card in found.cards)],
        kind_titles=kind_titles(len(found.confusions)),
        pictures={card.picture.key: card.picture for card in found.cards}.values(),
        status=status,
    )


def chart_of(runs: Sequence[FinishedRun]) -> Radar | None:
    """The radar of the runs that answered the first one's questions; the dashed polygon holds the honest floors."""
    tasks = runs[0].summary.tasks
    series, shown = [], [runs[place].summary for place in comparable(runs)]
    for place in comparable(runs):
        values = tuple(runs[place].summary.tasks[task].score for task in tasks)
        series.append(Series(runs[place].summary.label, RUN_COLOURS[place % len(RUN_COLOURS)], values))
    floors = [figures.floors["honest"] for figures in tasks.values()]
    return radar([TASK_TITLES[task] for task in tasks], series, floors, axis_top(shown, intervals=False))


def best_scores(summaries: Sequence[Summary]) -> dict[str, float]:
    """The highest score of each column among several runs; empty for one run."""
    if len(summaries) < 2:
        return {}
    best = {task: max(s.tasks[task].score for s in summaries if task in s.tasks) for task in summaries[0].tasks}
    return {**best, "score": max(summary.score for summary in summaries)}


def axis_top(summaries: Sequence[Summary], intervals: bool = True) -> float:
    """Upper end of an axis, a multiple of 0.2 that covers every score, honest floor and, on request, interval."""
    values = [0.2]
    for summary in summaries:
        items: list[Summary | TaskFigures] = [summary, *summary.tasks.values()]
        for item in items:
            values += [item.score, item.floors["honest"], _upper(item.ci95) if intervals else 0.0]
    return min(1.0, math.ceil(max(values) * 5 - 1e-9) / 5)


def reason_rows(summaries: Sequence[Summary]) -> list[tuple[str, list[float]]]:
    """(code, answers with it in every run) over all tasks, invalidating codes first, then the most frequent."""
    counts: dict[str, list[float]] = {}
    for place, summary in enumerate(summaries):
        for figures in summary.tasks.values():
            for code, count in figures.reasons.items():
                counts.setdefault(code, [0] * len(summaries))[place] += count
    return sorted(counts.items(), key=lambda item: (item[0] not in INVALID_REASONS, -sum(item[1])))


def kind_titles(runs: int) -> dict[str, str]:
    """Why a unit is in the gallery."""
    return {"failed": "all runs fail" if runs > 1 else "failed", "differ": "runs differ most", "random": "at random"}


def status(question: Question, score: float) -> str:
    """`right`, `near` (a point in the box but off its centre) or `wrong`."""
    if question.task == "pixel" and 0 < score < 1:
        return "near"
    return "right" if score > 0 else "wrong"


def _upper(ci95: Interval) -> float:
    return ci95[1] if ci95 else 0.0


if __name__ == "__main__":
    sys.exit(main())
