"""Graded answers -> figures: paired scores, rates, intervals, floors. Fractions throughout.

The metric is that of SURDS: every unit counts, answered or not; a mirrored unit only when both its questions are
right; the score of a run is the plain mean of the tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from data_gen.floors import task_floors, units_of
from data_gen.records import Question
from rewards.boxes import CoordinateFrame
from rewards.grading import SCORINGS, TASKS, Grade, grade_text, unit_score
from rewards.loc import loc_reward
from rewards.response import LOCATED_TAGS, Response, parse
from rewards.settings import RewardSettings

SCORING_VERSION = 1
BOOTSTRAP_DRAWS = 2000
_DRAWS_AT_ONCE = 200
TAGS_OF_STYLE = {"located": LOCATED_TAGS, "reasoning": ("think", "answer"), "direct": ("answer",)}


@dataclass(frozen=True)
class Outcome:
    """One question with what a model made of it. loc: share of its objects with IoU > 0.5, None where no box is due."""

    question: Question
    output: str
    tokens: int
    response: Response
    grades: dict[str, Grade]
    loc: float | None


@dataclass(frozen=True)
class TaskFigures:
    """The figures of one task under one scoring; `reasons` counts why answers got less than full marks."""

    score: float
    units: int
    valid_rate: float
    valid_accuracy: float | None
    single_question: float
    ci95: tuple[float, float] | None
    floors: dict[str, float]
    well_formed: float
    loc: float | None
    reasons: dict[str, int]


@dataclass(frozen=True)
class Figures:
    """All figures of a run under one scoring; tasks without a question are left out, and so out of the mean."""

    score: float
    ci95: tuple[float, float] | None
    tasks: dict[str, TaskFigures]
    floors: dict[str, float]
    well_formed: float
    loc: float | None
    questions: int
    mean_tokens: float


def assess(question: Question, output: str, tokens: int, frame: CoordinateFrame, style: str) -> Outcome:
    """Parse and grade one output under every scoring. `frame`: the coordinates that it is written in."""
    objects = [{"name": item.name, "bbox": item.bbox} for item in question.objects]
    width, height = question.image_size
    (loc,) = loc_reward(
        [output], settings=RewardSettings(frame=frame), objects=[objects], width=[width], height=[height]
    )
    return Outcome(
        question=question,
        output=output,
        tokens=tokens,
        response=parse(output, frame.size(question.image_size), TAGS_OF_STYLE[style]),
        grades={scoring: grade_text(output, question.truth, frame, scoring) for scoring in SCORINGS},
        loc=loc if style == "located" else None,
    )


def summarise(outcomes: Sequence[Outcome], scoring: str, seed: int = 0) -> Figures:
    """The figures of a run; `seed` draws the bootstrap samples."""
    images = {image: place for place, image in enumerate(dict.fromkeys(o.question.image for o in outcomes))}
    tasks = [task for task in TASKS if any(outcome.question.task == task for outcome in outcomes)]
    sums_NT, counts_NT = np.zeros((len(images), len(tasks))), np.zeros((len(images), len(tasks)))
    parts = {}
    for column, task in enumerate(tasks):
        rows = [outcome for outcome in outcomes if outcome.question.task == task]
        units = units_of([outcome.question for outcome in rows])
        grades = {outcome.question.id: outcome.grades[scoring] for outcome in rows}
        for unit in units.values():
            place = images[unit[0].image]
            sums_NT[place, column] += unit_score(task, [grades[question.id].score for question in unit])
            counts_NT[place, column] += 1
        parts[task] = (rows, list(units.values()))
    per_task, overall = bootstrap_intervals(sums_NT, counts_NT, seed)
    scores = sums_NT.sum(axis=0) / counts_NT.sum(axis=0)
    figures = {
        task: _task_figures(task, *parts[task], scoring, float(scores[column]), per_task[column])
        for column, task in enumerate(tasks)
    }
    return Figures(
        score=fmean(scores),
        ci95=overall,
        tasks=figures,
        floors={name: fmean(f.floors[name] for f in figures.values()) for name in ("independent", "honest")},
        well_formed=fmean(outcome.response.well_formed for outcome in outcomes),
        loc=_mean_loc(outcomes),
        questions=len(outcomes),
        mean_tokens=fmean(outcome.tokens for outcome in outcomes),
    )


Interval = tuple[float, float] | None


def bootstrap_intervals(sums_NT: np.ndarray, counts_NT: np.ndarray, seed: int) -> tuple[list[Interval], Interval]:
    """95 % percentile intervals of each task's mean and of the mean over tasks, images drawn with replacement.

    sums_NT, counts_NT: unit scores and units of N images in T tasks. A draw without a unit of a task is left out of
    that task's interval and of the overall one; None where fewer than two images carry the task.
    """
    images = len(sums_NT)
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(BOOTSTRAP_DRAWS // _DRAWS_AT_ONCE):
        times_DN = rng.multinomial(images, np.full(images, 1 / images), size=_DRAWS_AT_ONCE).astype(float)
        with np.errstate(invalid="ignore"):
            means.append((times_DN @ sums_NT) / (times_DN @ counts_NT))
    means_DT = np.concatenate(means)
    carried = (counts_NT > 0).sum(axis=0)
    per_task = [_interval(column) if enough >= 2 else None for column, enough in zip(means_DT.T, carried, strict=True)]
    return per_task, _interval(means_DT.mean(axis=1)) if carried.min() >= 2 else None


def _interval(values_D: np.ndarray) -> Interval:
    known = values_D[~np.isnan(values_D)]
    if not known.size:
        return None
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def _task_figures(
    task: str,
    rows: Sequence[Outcome],
    units: Sequence[list[Question]],
    scoring: str,
    score: float,
    ci95: Interval,
) -> TaskFigures:
    grades = [outcome.grades[scoring] for outcome in rows]
    valid = [grade.score for grade in grades if grade.valid]
    reasons = Counter(reason for outcome in rows for reason in reasons_of(outcome, scoring))
    return TaskFigures(
        score=score,
        units=len(units),
        valid_rate=len(valid) / len(rows),
        valid_accuracy=fmean(valid) if valid else None,
        single_question=fmean(grade.score for grade in grades),
        ci95=ci95,
        floors=task_floors(task, units),
        well_formed=fmean(outcome.response.well_formed for outcome in rows),
        loc=_mean_loc(rows),
        reasons=dict(reasons.most_common()),
    )


def reasons_of(outcome: Outcome, scoring: str) -> tuple[str, ...]:
    """Why an answer got less than full marks and what is wrong with its format, each code once."""
    return tuple(dict.fromkeys((*outcome.grades[scoring].reasons, *outcome.response.reasons)))


def _mean_loc(rows: Sequence[Outcome]) -> float | None:
    known = [outcome.loc for outcome in rows if outcome.loc is not None]
    return fmean(known) if known else None
