"""Pictures for the report: units that all runs fail, units on which runs differ most, and some at random.

A unit is what is scored at once: a mirrored pair of questions, or a single question.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.floors import Unit, units_of
from data_gen.pages import Picture, picture_if_readable
from data_gen.records import Question
from eval.finished_run import FinishedRun
from rewards.boxes import Box
from rewards.grading import TASKS
from rewards.response import read_point

PER_KIND = 2
CHOICE_SEED = 0
KINDS = ("failed", "differ", "random")


@dataclass(frozen=True)
class Shown:
    """What a run answered to one question. score: of that question alone, 0..1. point: in original pixels."""

    answer: str | None
    score: float
    reasons: tuple[str, ...]
    output: str
    point_xy_px: tuple[float, ...] | None


@dataclass(frozen=True)
class Panel:
    """What a run made of a unit. run: its place. score: the mean over its samples; the rest is of the first sample.

    boxes: (name, corners in original pixels), each once.
    """

    run: int
    score: float
    boxes: tuple[tuple[str, Box], ...]
    answers: tuple[Shown, ...]


@dataclass(frozen=True)
class Card:
    """One unit of the gallery, and why it is there: `failed` by all runs, runs `differ`, or drawn at `random`."""

    name: str
    kind: str
    questions: tuple[Question, ...]
    picture: Picture
    panels: tuple[Panel, ...]


def make_cards(questions: Sequence[Question], root: Path, runs: Mapping[int, FinishedRun]) -> list[Card]:
    """Cards task by task. questions: as all of the runs were asked them. root: folder of the images. runs: by place."""
    scores_of = [run.unit_scores(questions) for run in runs.values()]
    units = units_of(questions)
    scores = {name: [known[name] for known in scores_of] for name in units}
    pictures: dict[str, Picture] = {}
    cards = []
    for name, kind in choose(units, scores):
        unit = units[name]
        image = unit[0].image
        if image not in pictures:
            pictures[image] = picture_if_readable(root / image, unit[0].image_size, f"image{len(pictures)}")
        panels = tuple(
            _panel(place, run, unit, score) for (place, run), score in zip(runs.items(), scores[name], strict=True)
        )
        cards.append(Card(name, kind, tuple(unit), pictures[image], panels))
    return cards


def choose(units: Mapping[str, Unit], scores: Mapping[str, Sequence[float]]) -> list[tuple[str, str]]:
    """(unit, kind) of some units of every task, ties broken at random, the same ones every time; none twice.

    scores: of each unit, one per run.
    """
    rng = random.Random(CHOICE_SEED)
    chosen: list[tuple[str, str]] = []
    for task in TASKS:
        left = [name for name, unit in units.items() if unit[0].task == task]
        rng.shuffle(left)
        for kind in KINDS:
            taken = _of_kind(kind, left, scores)
            chosen += [(name, kind) for name in taken]
            left = [name for name in left if name not in taken]
    return chosen


def _of_kind(kind: str, names: Sequence[str], scores: Mapping[str, Sequence[float]]) -> list[str]:
    def gap(name: str) -> float:
        return max(scores[name]) - min(scores[name])

    wanted: dict[str, Callable[[], list[str]]] = {
        "failed": lambda: [name for name in names if max(scores[name]) == 0],
        "differ": lambda: sorted((name for name in names if gap(name) > 0), key=gap, reverse=True),
        "random": lambda: list(names),
    }
    return wanted[kind]()[:PER_KIND]


def _panel(place: int, run: FinishedRun, unit: Unit, score: float) -> Panel:
    rows = [run.predictions[question.id] for question in unit]
    boxes = dict.fromkeys((item["name"], tuple(item["bbox"])) for row in rows for item in row["boxes"])
    answers = tuple(_shown(run, question, row) for question, row in zip(unit, rows, strict=True))
    return Panel(place, score, tuple(boxes), answers)


def _shown(run: FinishedRun, question: Question, row: dict[str, Any]) -> Shown:
    point = read_point(row["answer"] or "") if question.task == "pixel" else None
    return Shown(
        answer=row["answer"],
        score=row["score"][run.summary.scoring],
        reasons=tuple(row["reasons"]),
        output=row["output"],
        point_xy_px=run.facts.frame.to_original(point, question.image_size) if point else None,
    )
