"""What all harnesses share: an answer graded by our rules, and graded answers as scores by unit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from data_gen.records import Question
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS, grade_text, unit_score


def graded(question: Question, text: str, frame: CoordinateFrame, scoring: str) -> dict[str, Any]:
    """One answer as plain values: `id`, `task`, `unit`, `image`, `valid`, and the `score` alone, 0..1."""
    grade = grade_text(text, question.truth, frame, scoring)
    return {
        "id": question.id,
        "task": question.task,
        "unit": question.unit,
        "image": question.image,
        "valid": grade.valid,
        "score": grade.score,
    }


def scores_by_task(answers: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Task -> mean over its units, and under `score` the mean of these tasks. answers: as `graded` gives them.

    A mirrored pair counts only when both its questions are right, so that half a pair (of a run that was cut short, for
    example by lmms-eval's --limit) scores 0.
    """
    units: dict[str, dict[str, list[float]]] = {}
    for answer in answers:
        units.setdefault(answer["task"], {}).setdefault(answer["unit"], []).append(answer["score"])
    scores = {
        task: fmean(unit_score(task, members) for members in units[task].values()) for task in TASKS if task in units
    }
    return {**scores, "score": fmean(scores.values())}
