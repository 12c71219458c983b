"""CyclingVQA's figures: accuracy by task, the plain mean, what guessing scores, how letters are spread. Fractions.

A published peculiarity that the figures lay open: 13 of 29 models score exactly 57 of 111 on TO, which is what one and
the same answer to every item scores. So every task has its floors for a constant answer and a histogram of the letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from data_gen.cycling.records import LETTERS, TASKS, CyclingItem
from eval.engines import mean_tokens
from eval.intervals import Interval, bootstrap_intervals

SCORING_VERSION = 1
NO_CHOICE = "none"
RULE, JUDGE = "rule", "judge"
FLOORS = ("chance", "constant_letter", "constant_text")


@dataclass(frozen=True)
class Outcome:
    """One item with what a model made of it. choice: a letter or None; how it was read: rule, judge, or none."""

    item: CyclingItem
    output: str
    tokens: int
    choice: str | None
    how: str

    @property
    def score(self) -> float:
        """1 for the right choice, else 0."""
        return float(self.choice == self.item.answer)


@dataclass(frozen=True)
class TaskFigures:
    """The figures of one task. given, right: how often each letter was given (or `none`) and is right.

    floors: a uniform guess among each item's own choices; the best single letter; the best single text.
    """

    score: float
    items: int
    valid_rate: float
    valid_accuracy: float | None
    ci95: Interval
    floors: dict[str, float]
    given: dict[str, int]
    right: dict[str, int]
    mean_tokens: float | None


@dataclass(frozen=True)
class Figures:
    """All figures of a run; tasks without an item are left out, and so out of the mean. micro: mean over all items."""

    score: float
    ci95: Interval
    micro: float
    micro_ci95: Interval
    tasks: dict[str, TaskFigures]
    floors: dict[str, float]
    valid_rate: float
    items: int
    mean_tokens: float | None
    read_by: dict[str, int]


def summarise(outcomes: Sequence[Outcome], seed: int = 0) -> Figures:
    """The figures of a run; `seed` draws the bootstrap samples, clustered by photograph."""
    tasks = [task for task in TASKS if any(outcome.item.task == task for outcome in outcomes)]
    sums_NT, counts_NT = per_photograph(outcomes, tasks)
    intervals, overall = bootstrap_intervals(sums_NT, counts_NT, seed)
    (micro_ci95,), _ = bootstrap_intervals(sums_NT.sum(1, keepdims=True), counts_NT.sum(1, keepdims=True), seed)
    figures = {
        task: task_figures([outcome for outcome in outcomes if outcome.item.task == task], interval)
        for task, interval in zip(tasks, intervals, strict=True)
    }
    return Figures(
        score=fmean(item.score for item in figures.values()),
        ci95=overall,
        micro=fmean(outcome.score for outcome in outcomes),
        micro_ci95=micro_ci95,
        tasks=figures,
        floors={name: fmean(item.floors[name] for item in figures.values()) for name in FLOORS},
        valid_rate=fmean(outcome.choice is not None for outcome in outcomes),
        items=len(outcomes),
        mean_tokens=mean_tokens(outcome.tokens for outcome in outcomes),
        read_by={how: sum(outcome.how == how for outcome in outcomes) for how in (RULE, JUDGE, NO_CHOICE)},
    )


def per_photograph(outcomes: Sequence[Outcome], tasks: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(N, T) sums of scores and numbers of items of N photographs in T tasks."""
    place = {name: row for row, name in enumerate(dict.fromkeys(outcome.item.cluster for outcome in outcomes))}
    sums_NT, counts_NT = np.zeros((len(place), len(tasks))), np.zeros((len(place), len(tasks)))
    for outcome in outcomes:
        cell = place[outcome.item.cluster], tasks.index(outcome.item.task)
        sums_NT[cell] += outcome.score
        counts_NT[cell] += 1
    return sums_NT, counts_NT


def task_figures(outcomes: Sequence[Outcome], ci95: Interval) -> TaskFigures:
    """The figures of one task's outcomes."""
    items = [outcome.item for outcome in outcomes]
    valid = [outcome.score for outcome in outcomes if outcome.choice]
    return TaskFigures(
        score=fmean(outcome.score for outcome in outcomes),
        items=len(items),
        valid_rate=len(valid) / len(items),
        valid_accuracy=fmean(valid) if valid else None,
        ci95=ci95,
        floors=floors_of(items),
        given=_histogram([outcome.choice or NO_CHOICE for outcome in outcomes]),
        right=_histogram([item.answer for item in items]),
        mean_tokens=mean_tokens(outcome.tokens for outcome in outcomes),
    )


def floors_of(items: Sequence[CyclingItem]) -> dict[str, float]:
    """What a uniform guess, the best constant letter and the best constant text score on these items."""
    letters = Counter(item.answer for item in items)
    texts = Counter(item.answer_text for item in items)
    return {
        "chance": fmean(1 / len(item.choices) for item in items),
        "constant_letter": max(letters.values()) / len(items),
        "constant_text": max(texts.values()) / len(items),
    }


def _histogram(letters: Sequence[str]) -> dict[str, int]:
    counts = Counter(letters)
    return {letter: counts[letter] for letter in (*LETTERS, NO_CHOICE) if counts[letter]}
