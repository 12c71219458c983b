"""Graded answers -> figures: paired scores, rates, intervals, floors. Fractions throughout.

The metric is that of SURDS: every unit counts, answered or not; a mirrored unit only when both its questions are
right; the score of a run is the plain mean of the tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from data_gen.floors import Unit, task_floors, units_of
from data_gen.records import Question
from eval.engines import RandomEngine, Request, mean_tokens
from eval.intervals import Interval, bootstrap_intervals
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS, Grade, grade_answer, grade_text, unit_score
from rewards.loc import located_score
from rewards.response import LOCATED_TAGS, Response, last_answer, parse
from rewards.settings import RewardSettings

SCORING_VERSION = 1
OVERALL_FLOORS = ("independent", "random_run", "honest")
TAGS_OF_STYLE = {"located": LOCATED_TAGS, "reasoning": ("think", "answer"), "direct": ("answer",)}


@dataclass(frozen=True)
class Outcome:
    """One question with what a model made of it. loc: share of its objects with IoU > 0.5, None where no box is due.

    sample: which of several answers to the question this is.
    """

    question: Question
    output: str
    tokens: int
    response: Response
    grades: dict[str, Grade]
    loc: float | None
    sample: int = 0


@dataclass(frozen=True)
class TaskFigures:
    """The figures of one task under one scoring, means over the samples.

    reasons: why answers got less than full marks, and how many of a sample's do.
    """

    score: float
    units: int
    valid_rate: float
    valid_accuracy: float | None
    single_question: float
    ci95: Interval
    floors: dict[str, float]
    well_formed: float
    loc: float | None
    reasons: dict[str, float]


@dataclass(frozen=True)
class Figures:
    """All figures of a run under one scoring; tasks without a question are left out, and so out of the mean."""

    score: float
    ci95: Interval
    tasks: dict[str, TaskFigures]
    floors: dict[str, float]
    well_formed: float
    loc: float | None
    questions: int
    mean_tokens: float | None
    unanswered: int = 0


@dataclass(frozen=True)
class ImageSums:
    """Unit scores added up, and units counted: `sums` and `counts`, (images, tasks)."""

    tasks: tuple[str, ...]
    sums: np.ndarray
    counts: np.ndarray

    @property
    def means(self) -> dict[str, float]:
        """Task -> score."""
        scores_T = self.sums.sum(axis=0) / self.counts.sum(axis=0)
        return dict(zip(self.tasks, scores_T.tolist(), strict=True))


@dataclass(frozen=True)
class Difference:
    """Score of the second run minus that of the first, its 95 % interval (None on one image), and how many units."""

    difference: float
    ci95: Interval
    units: int


def assess(
    question: Question, output: str, tokens: int, frame: CoordinateFrame, style: str, sample: int = 0
) -> Outcome:
    """Parse and grade one output under every scoring. `frame`: the coordinates that it is written in."""
    truth = question.truth
    response = parse(output, frame.size(question.image_size), TAGS_OF_STYLE[style])
    return Outcome(
        question=question,
        output=output,
        tokens=tokens,
        response=response,
        grades={
            "strict": grade_answer(response.answer, truth, frame),
            "official": grade_text(output, truth, frame, "official"),
        },
        loc=_loc(question, response, frame) if style == "located" else None,
        sample=sample,
    )


def _loc(question: Question, response: Response, frame: CoordinateFrame) -> float:
    objects = [{"name": item.name, "bbox": item.bbox} for item in question.objects]
    return located_score(response.boxes, objects, question.image_size, RewardSettings(frame=frame))


Floors = Mapping[str, dict[str, float]]


def floors_of(questions: Sequence[Question], seed: int = 0) -> Floors:
    """Task -> its floors on these questions, `random_run` being what `--engine random` scores with this seed."""
    units = units_of(questions)
    by_task: dict[str, list[Unit]] = {}
    for unit in units.values():
        by_task.setdefault(unit[0].task, []).append(unit)
    guessed = sum_by_image(units, mean_unit_scores(units, [random_scores(questions, seed)])).means
    return {task: {**task_floors(task, units), "random_run": guessed[task]} for task, units in by_task.items()}


def summarise(outcomes: Sequence[Outcome], scoring: str, floors: Floors, seed: int = 0) -> Figures:
    """The figures of a run; `floors` are those of its questions, `seed` draws the bootstrap samples.

    outcomes: of every question as many as there are samples. Intervals are over images, on the means of the samples.
    """
    samples: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        samples.setdefault(outcome.sample, []).append(outcome)
    scores_K = [{item.question.id: item.grades[scoring].score for item in sample} for sample in samples.values()]
    units = units_of([outcome.question for outcome in samples[0]])
    sums = sum_by_image(units, mean_unit_scores(units, scores_K))
    per_task, overall = bootstrap_intervals(sums.sums, sums.counts, seed)
    rows: dict[str, list[Outcome]] = {task: [] for task in sums.tasks}
    for outcome in outcomes:
        rows[outcome.question.task].append(outcome)
    counts = sums.counts.sum(axis=0).astype(int).tolist()
    figures = {
        task: _task_figures(rows[task], scoring, sums.means[task], count, interval, floors[task])
        for task, count, interval in zip(sums.tasks, counts, per_task, strict=True)
    }
    return Figures(
        score=fmean(sums.means.values()),
        ci95=overall,
        tasks=figures,
        floors={name: fmean(f.floors[name] for f in figures.values()) for name in OVERALL_FLOORS},
        well_formed=fmean(outcome.response.well_formed for outcome in outcomes),
        loc=_mean_loc(outcomes),
        questions=len(samples[0]),
        mean_tokens=mean_tokens(outcome.tokens for outcome in outcomes),
        unanswered=len(samples[0]) - len({outcome.question.id for outcome in outcomes if outcome.output}),
    )


def paired_differences(
    questions: Sequence[Question], first: Mapping[str, float], second: Mapping[str, float], seed: int = 0
) -> dict[str, Difference]:
    """How much better the second of two runs is on the same questions: by task, and under `score` the mean of tasks.

    questions: those that both runs were asked, pairs whole. first, second: unit -> score, 0..1, as of
    `FinishedRun.unit_scores`. Both runs are scored on the same drawn images, so what makes an image hard or easy
    cancels out. Raises RecordError when a mirrored pair is not two questions, KeyError for a unit without a score.
    """
    units = units_of(questions)
    one, two = sum_by_image(units, first), sum_by_image(units, second)
    per_task, overall = bootstrap_intervals(two.sums - one.sums, one.counts, seed, lowest=-1.0)
    counts = one.counts.sum(axis=0).astype(int).tolist()
    differences = {
        task: Difference(two.means[task] - one.means[task], interval, count)
        for task, interval, count in zip(one.tasks, per_task, counts, strict=True)
    }
    whole = fmean(item.difference for item in differences.values())
    return {**differences, "score": Difference(whole, overall, sum(counts))}


def mean_unit_scores(units: Mapping[str, Unit], scores_K: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Unit -> its score, 0..1, the mean over K samples; of a mirrored pair, those in which both questions are right.

    scores_K: for each sample question id -> score. Raises KeyError for a question without a score.
    """

    def score(unit: Unit) -> float:
        return fmean(unit_score(unit[0].task, [scores[question.id] for question in unit]) for scores in scores_K)

    return {name: score(unit) for name, unit in units.items()}


def sum_by_image(units: Mapping[str, Unit], score_of: Mapping[str, float]) -> ImageSums:
    """Unit scores added up by image and task. score_of: unit -> score. Raises KeyError for a unit without a score."""
    images = {image: place for place, image in enumerate(dict.fromkeys(unit[0].image for unit in units.values()))}
    there = {unit[0].task for unit in units.values()}
    tasks = tuple(task for task in TASKS if task in there)
    columns = {task: column for column, task in enumerate(tasks)}
    sums_NT, counts_NT = np.zeros((len(images), len(tasks))), np.zeros((len(images), len(tasks)))
    for name, unit in units.items():
        place, task = images[unit[0].image], unit[0].task
        sums_NT[place, columns[task]] += score_of[name]
        counts_NT[place, columns[task]] += 1
    return ImageSums(tasks, sums_NT, counts_NT)


def random_scores(questions: Sequence[Question], seed: int) -> dict[str, float]:
    """Question id -> score of the guesses that `--engine random` makes under this seed, in original pixels."""
    frame = CoordinateFrame()
    requests = [Request(q.id, "", (), (), q.options, q.image_size) for q in questions]
    guesses = RandomEngine(seed).replies(requests)
    return {
        question.id: grade_answer(last_answer(guess.output), question.truth, frame).score
        for question, guess in zip(questions, guesses, strict=True)
    }


def _task_figures(
    rows: Sequence[Outcome], scoring: str, score: float, units: int, ci95: Interval, floors: dict[str, float]
) -> TaskFigures:
    grades = [outcome.grades[scoring] for outcome in rows]
    valid = [grade.score for grade in grades if grade.valid]
    reasons = Counter(reason for outcome in rows for reason in reasons_of(outcome, scoring))
    samples = len({outcome.sample for outcome in rows})
    return TaskFigures(
        score=score,
        units=units,
        valid_rate=len(valid) / len(rows),
        valid_accuracy=fmean(valid) if valid else None,
        single_question=fmean(grade.score for grade in grades),
        ci95=ci95,
        floors=floors,
        well_formed=fmean(outcome.response.well_formed for outcome in rows),
        loc=_mean_loc(rows),
        reasons={reason: _share(count, samples) for reason, count in reasons.most_common()},
    )


def _share(count: int, samples: int) -> float:
    """What comes on one sample, whole numbers as such."""
    return count / samples if count % samples else count // samples


def reasons_of(outcome: Outcome, scoring: str) -> tuple[str, ...]:
    """Why an answer got less than full marks and what is wrong with its format, each code once."""
    return tuple(dict.fromkeys((*outcome.grades[scoring].reasons, *outcome.response.reasons)))


def _mean_loc(rows: Sequence[Outcome]) -> float | None:
    known = [outcome.loc for outcome in rows if outcome.loc is not None]
    return fmean(known) if known else None
