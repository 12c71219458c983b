"""What a question file gives away: the scores of strategies that never look at an image, and how even it is.

    python data_gen/audit.py questions.jsonl

A mirrored pair counts only when both of its questions are right, as in the metric. LEAK marks a strategy that beats
the bar of its task (what a self-consistent guess scores, for depth one in three, for points the best constant point)
by at least 5 points and by more than chance explains. `--json FILE` writes the same numbers for machines.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from data_gen.balance import Balance, Counts, DepthBand, balance_of, commonest_rank_of_band
from data_gen.blind import (
    BAR,
    FOLDS,
    LEAK_MARGIN,
    LEAK_Z,
    LEARNT,
    RANKS,
    WIDEST,
    BlindScore,
    Draws,
    blind_scores,
    draws_in,
)
from data_gen.columns import aligned, percent
from data_gen.files import write_json
from data_gen.floors import Unit, units_of
from data_gen.records import Question, RecordError, read_questions
from rewards.grading import TASKS

WIDTH = 110
ROWS = 12  # of a table of classes or cameras on the terminal


@dataclass(frozen=True)
class Audit:
    """All findings on a question file."""

    file: str
    questions: int
    draws: Draws
    balance: Balance
    strategies: dict[str, list[BlindScore]]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; 0, or 2 with the reason when the file cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path, help="a questions.jsonl, as data_gen/build_surds.py writes it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the findings as JSON too")
    options = parser.parse_args(argv)
    if options.json and options.json.resolve() == options.questions.resolve():
        parser.error("--json would replace the question file; give another name")
    try:
        audit = audit_of(options.questions)
        if options.json:
            write_json(options.json, to_json(audit))
    except (RecordError, OSError) as error:
        print(f"data_gen/audit.py: error: {error}", file=sys.stderr)
        return 2
    print("\n".join(report(audit)))
    return 0


def audit_of(path: Path) -> Audit:
    """Read and judge a question file. Raises RecordError when it cannot be used."""
    questions = read_questions(path)
    _check_ranges(path, questions)
    units: dict[str, list[Unit]] = {}
    for unit in units_of(questions).values():
        units.setdefault(unit[0].task, []).append(unit)
    ordered = {task: units[task] for task in TASKS if task in units}
    draws = draws_in(questions)
    strategies = {task: blind_scores(task, column, draws) for task, column in ordered.items()}
    return Audit(str(path), len(questions), draws, balance_of(questions, ordered), strategies)


def to_json(audit: Audit) -> dict[str, Any]:
    """The findings as a JSON object, fractions of 1."""
    found = {
        task: [{**asdict(item), "verdict": item.verdict} for item in column]
        for task, column in audit.strategies.items()
    }
    return {**asdict(audit), "strategies": found, "leak_rule": {"margin": LEAK_MARGIN, "z": LEAK_Z}}


def report(audit: Audit) -> list[str]:
    """The findings as lines for the terminal."""
    lines = [*_head(audit), "", "Percent throughout."]
    for task, found in audit.strategies.items():
        lines += ["", *_strategy_table(task, found, audit.balance)]
    return [*lines, "", *_balance_tables(audit.balance), *_explanation(audit), "", *verdicts(audit)]


def verdicts(audit: Audit) -> list[str]:
    """What gives answers away, task by task; where nothing does, what comes nearest. The widest range in any case."""
    lines = ["Verdicts"]
    for task, found in audit.strategies.items():
        own = [item for item in found if not item.strategy.endswith(BAR)]
        told = [item for item in own if item.verdict == "LEAK" and not _follows_from(item, own)]
        told += [item for item in own if item.strategy == WIDEST and item not in told]
        lines += [_verdict(task, item, audit.balance.tasks[task].units) for item in told or own[:1]]
    return lines


def _follows_from(item: BlindScore, found: Sequence[BlindScore]) -> bool:
    """Whether a learnt strategy is no better than one that needs no learning, so that it tells nothing new."""
    return item.strategy.startswith(LEARNT) and any(
        other.score >= item.score for other in found if not other.strategy.startswith(LEARNT)
    )


def _verdict(task: str, item: BlindScore, units: int) -> str:
    found = {"too few": "too few images"}.get(item.verdict, item.verdict)
    scored = f"scores {percent(item.score)} % on" if task == "pixel" else f"is right on {percent(item.score)} % of"
    numbers = f"(bar {percent(item.bar)}, z {item.z:.1f})"
    return f"  {task}: {item.strategy!r} {scored} {units:,} units: {found} {numbers}"


def _check_ranges(path: Path, questions: Sequence[Question]) -> None:
    for question in questions:
        if question.task == "depth" and len(question.options) != len(RANKS):
            raise RecordError(f"{path}: depth question {question.id!r} has {len(question.options)} ranges, not three")


def _head(audit: Audit) -> list[str]:
    balance = audit.balance
    units = sum(task.units for task in balance.tasks.values())
    scenes = f" of {balance.scenes:,} scenes" if balance.scenes else ""
    lines = [
        audit.file,
        f"{audit.questions:,} questions, {units:,} units, {balance.images:,} images{scenes}, "
        f"{units / balance.images:.1f} units per image",
    ]
    return lines + [f"{name}: {_listed(counts)}" for name, counts in balance.origins.items() if counts]


def _listed(counts: Counts) -> str:
    """`real`, or `train 300, val 20`."""
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _strategy_table(task: str, found: Sequence[BlindScore], balance: Balance) -> list[str]:
    numbers = balance.tasks[task]
    title = f"{task}: {numbers.units:,} units on {numbers.images:,} images"
    ties = "" if numbers.ties is None else f", {percent(numbers.ties)} of them `Almost the same`"
    rows = [["strategy without the image", "score", "over the bar", "z", ""]]
    for item in found:
        excess = 100 * (item.score - item.bar)
        verdict = "" if item.verdict == "no leak" else item.verdict
        rows.append([item.strategy, percent(item.score), f"{excess:+.1f}", f"{item.z:.1f}", verdict])
    lines = [title + ties, *aligned(rows)]
    if numbers.positions:
        lines += wrap(f"place of the truth among the options: {_shares(numbers.positions)}", WIDTH)
    return lines


def _shares(counts: Counts) -> str:
    total = sum(counts.values())
    return "; ".join(f"{name} {percent(count / total)}" for name, count in counts.items())


def _balance_tables(balance: Balance) -> list[str]:
    tables = [_task_table(balance)]
    if balance.depth_bands:
        tables.append(_band_table(balance.depth_bands))
    named = {"heading (true one, yaw)": balance.headings, "class (named objects)": balance.classes,
             "camera (images)": balance.cameras}  # fmt: skip
    tables += [_count_table(name, counts) for name, counts in named.items() if counts]
    return [line for table in tables for line in (*table, "")]


def _task_table(balance: Balance) -> list[str]:
    rows = [["task", "units", "questions", "images", "units/image", "largest image", "ties"]]
    for task, item in balance.tasks.items():
        per_image = f"{item.units / item.images:.2f}"
        shares = [percent(item.largest_image_share), percent(item.ties)]
        rows.append([task, f"{item.units:,}", f"{item.questions:,}", f"{item.images:,}", per_image, *shares])
    return aligned(rows)


def _band_table(bands: Sequence[DepthBand]) -> list[str]:
    rows = [["true range of depth, by depth", "units", *RANKS, "widest"]]
    for band in bands:
        ranks = [percent(count / band.units) for count in band.ranks.values()]
        rows.append([band.band, f"{band.units:,}", *ranks, percent(band.widest)])
    known = percent(commonest_rank_of_band(bands))
    return [*aligned(rows), f"Knowing only the band, and taking its commonest rank, scores {known} (not blind)."]


def _count_table(name: str, counts: Counts) -> list[str]:
    total = sum(counts.values())
    rows = [[name, "count", "share"]]
    rows += [[item, f"{count:,}", percent(count / total)] for item, count in list(counts.items())[:ROWS]]
    left = list(counts.values())[ROWS:]
    if left:
        rows.append([f"{len(left)} others", f"{sum(left):,}", percent(sum(left) / total)])
    return aligned(rows)


def _explanation(audit: Audit) -> list[str]:
    draws = audit.draws
    text = (
        f"Strategies called `by ...` are learnt from other {draws.folded}, in {FOLDS} folds: the commonest answer to "
        "questions about the same class, or from the same camera. The text of a question tells the class, a glance at "
        f"the image the camera. LEAK: at least {100 * LEAK_MARGIN:g} points over the bar and z > {LEAK_Z}; z is the "
        f"excess in standard errors over {draws.counted}. A model can learn such a strategy instead of the task."
    )
    return wrap(text, WIDTH)


if __name__ == "__main__":
    sys.exit(main())
