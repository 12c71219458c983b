"""DriveMLLM: graded answers -> accuracy, efficiency and score of the eight tasks. Fractions throughout.

eff = valid answers / questions, score = acc * eff; AccS, EffS and Score are the plain means over the tasks. acc is over
the valid answers. In measured tasks the paper's equation averages the accuracies of the answers (`paper`), the
published code takes 1 / (1 + alpha * mean error) (`official`), and the published tables follow the code: errors of 0
and 100 m are 28.57 by the code and 58.33 by the equation. The kinds that make one task (left and right, front and
behind) have equal weight in its acc and are counted together in its eff; the published cells are reproduced by this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from data_gen.drivemllm.records import KINDS, TASKS
from eval.drivemllm_grading import ALPHAS, Outcome
from eval.intervals import Interval, exact_bound, percentiles

SCORING_VERSION = 1
SCORINGS = ("official", "paper")
BOOTSTRAP_DRAWS = 2000
_DRAWS_AT_ONCE = 200
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KindFigures:
    """One way of asking: its accuracy over the valid answers, and how many questions and valid answers there are."""

    accuracy: float
    asked: int
    valid: int


@dataclass(frozen=True)
class TaskFigures:
    """One task. floors: what answering without looking scores on the same questions; `reasons` counts the zeros."""

    score: float
    accuracy: float
    efficiency: float
    asked: int
    valid: int
    ci95: Interval
    kinds: dict[str, KindFigures]
    reasons: dict[str, int]
    floors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Figures:
    """A run under one scoring; tasks without a question are left out, and so out of the means."""

    score: float
    acc_s: float
    eff_s: float
    ci95: Interval
    tasks: dict[str, TaskFigures]
    floors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sums:
    """`per_image`, (N, K, 4): questions, valid answers, and their errors and accuracies, of N images and K kinds."""

    kinds: tuple[str, ...]
    per_image: Floats

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of the kinds, in the paper's order."""
        there = {KINDS[kind].task for kind in self.kinds}
        return tuple(task for task in TASKS if task in there)

    @property
    def members(self) -> Floats:
        """1 where a kind is of a task, (T, K)."""
        return np.array([[float(KINDS[kind].task == task) for kind in self.kinds] for task in self.tasks])


def sums_of(outcomes: Sequence[Outcome]) -> Sums:
    """Add up the outcomes of a run."""
    images = {name: place for place, name in enumerate(dict.fromkeys(item.question.image for item in outcomes))}
    there = {item.question.kind for item in outcomes}
    kinds = {kind: place for place, kind in enumerate(kind for kind in KINDS if kind in there)}
    sums_NK4 = np.zeros((len(images), len(kinds), 4))
    for item in outcomes:
        cell = sums_NK4[images[item.question.image], kinds[item.question.kind]]
        cell += (1, item.mark.valid, item.mark.error or 0.0, item.mark.accuracy)
    return Sums(tuple(kinds), sums_NK4)


def kind_accuracies(kinds: Sequence[str], sums_K4: Floats, scoring: str) -> Floats:
    """Accuracy of each kind over its valid answers, (..., K), from sums (..., K, 4); 0 without a valid one."""
    _, valid, errors, accuracies = np.moveaxis(sums_K4, -1, 0)
    divisor = np.maximum(valid, 1)
    if scoring == "paper":
        return np.asarray(accuracies / divisor)
    alphas_K = np.array([ALPHAS.get(KINDS[kind].task, 0.0) for kind in kinds])
    return np.where((alphas_K > 0) & (valid > 0), 1 / (1 + alphas_K * errors / divisor), accuracies / divisor)


def task_scores(sums: Sums, sums_K4: Floats, scoring: str) -> tuple[Floats, Floats]:
    """acc and eff of each task, (..., T), from sums (..., K, 4); nan where a task has no question."""
    members_KT = sums.members.T
    accuracy = kind_accuracies(sums.kinds, sums_K4, scoring) @ members_KT / members_KT.sum(axis=0)
    with np.errstate(invalid="ignore"):
        efficiency = (sums_K4[..., 1] @ members_KT) / (sums_K4[..., 0] @ members_KT)
    return accuracy, efficiency


def quick_scores(outcomes: Sequence[Outcome], scoring: str) -> dict[str, float]:
    """The score of each task and nothing else."""
    sums = sums_of(outcomes)
    accuracy, efficiency = task_scores(sums, sums.per_image.sum(axis=0), scoring)
    return dict(zip(sums.tasks, (accuracy * efficiency).tolist(), strict=True))


def summarise(
    outcomes: Sequence[Outcome], scoring: str, floors: dict[str, dict[str, float]] | None = None, seed: int = 0
) -> Figures:
    """The figures of a run. floors: name -> task -> score of a strategy; seed: of the images drawn for intervals."""
    sums = sums_of(outcomes)
    total_K4 = sums.per_image.sum(axis=0)
    accuracy, efficiency = (values.tolist() for values in task_scores(sums, total_K4, scoring))
    of_kind = dict(zip(sums.kinds, kind_accuracies(sums.kinds, total_K4, scoring).tolist(), strict=True))
    counts = {kind: (int(asked), int(valid)) for kind, (asked, valid, *_) in zip(sums.kinds, total_K4, strict=True)}
    per_task, overall = intervals(sums, scoring, seed)
    tasks = {}
    for place, task in enumerate(sums.tasks):
        kinds = {kind: KindFigures(of_kind[kind], *counts[kind]) for kind in sums.kinds if KINDS[kind].task == task}
        tasks[task] = TaskFigures(
            score=accuracy[place] * efficiency[place],
            accuracy=accuracy[place],
            efficiency=efficiency[place],
            asked=sum(item.asked for item in kinds.values()),
            valid=sum(item.valid for item in kinds.values()),
            ci95=per_task[place],
            kinds=kinds,
            reasons=_reasons(outcomes, task),
            floors={name: scores[task] for name, scores in (floors or {}).items()},
        )
    return Figures(
        score=_mean([item.score for item in tasks.values()]),
        acc_s=_mean(accuracy),
        eff_s=_mean(efficiency),
        ci95=overall,
        tasks=tasks,
        floors={name: _mean([scores[task] for task in tasks]) for name, scores in (floors or {}).items()},
    )


def intervals(sums: Sums, scoring: str, seed: int) -> tuple[list[Interval], Interval]:
    """95 % intervals of the tasks' scores and of their mean, images drawn with replacement.

    A draw without a question of a task is left out. None where fewer than two images carry a task; a score that is the
    same in every draw gets `exact_bound`.
    """
    scores_DT = np.concatenate(list(_drawn_scores(sums, scoring, seed)))
    asked_NT = sums.per_image[..., 0] @ sums.members.T
    carried_T = (asked_NT > 0).sum(axis=0).tolist()
    per_task = [_bounded(scores_D, images) for scores_D, images in zip(scores_DT.T, carried_T, strict=True)]
    if not all(per_task):
        return per_task, None
    return per_task, _bounded(scores_DT.mean(axis=1), min(carried_T))


def _drawn_scores(sums: Sums, scoring: str, seed: int) -> Iterator[Floats]:
    """Scores of the tasks, (draws, T), over images drawn with replacement."""
    images, rng = len(sums.per_image), np.random.default_rng(seed)
    flat = sums.per_image.reshape(images, -1)
    for _ in range(BOOTSTRAP_DRAWS // _DRAWS_AT_ONCE):
        times_DN = rng.multinomial(images, np.full(images, 1 / images), size=_DRAWS_AT_ONCE).astype(float)
        drawn_DK4 = (times_DN @ flat).reshape(_DRAWS_AT_ONCE, -1, 4)
        accuracy, efficiency = task_scores(sums, drawn_DK4, scoring)
        yield accuracy * efficiency


def _bounded(scores_D: Floats, images: int) -> Interval:
    drawn = percentiles(scores_D)
    if images < 2 or drawn is None:
        return None
    return exact_bound(drawn[0], images) if drawn[1] - drawn[0] <= 1e-12 else drawn


def _reasons(outcomes: Sequence[Outcome], task: str) -> dict[str, int]:
    counts = Counter(item.mark.reason for item in outcomes if item.question.task == task and item.mark.reason)
    return dict(counts.most_common())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
