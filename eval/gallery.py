"""Pictures for the report: a fixed random choice of questions, their images, and what each run drew and said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.pages import Picture, load_picture
from data_gen.records import Question
from rewards.boxes import Box, CoordinateFrame
from rewards.grading import TASKS
from rewards.response import read_point

PER_TASK = 4
CHOICE_SEED = 0


@dataclass(frozen=True)
class Shown:
    """What one run made of a question; boxes and point in original pixels. score: of the single question, 0..1."""

    run: int
    answer: str | None
    score: float
    reasons: tuple[str, ...]
    output: str
    boxes: tuple[tuple[str, Box], ...]
    point_xy_px: tuple[float, ...] | None


@dataclass(frozen=True)
class Card:
    """One question of the gallery with its picture and the runs' answers."""

    question: Question
    picture: Picture
    shown: tuple[Shown, ...]


def choose(questions: Sequence[Question], known: set[str]) -> list[Question]:
    """Some questions of every task whose ids are in `known`, drawn at random, the same ones every time."""
    rng = random.Random(CHOICE_SEED)
    chosen = []
    for task in TASKS:
        there = [question for question in questions if question.task == task and question.id in known]
        chosen += rng.sample(there, min(PER_TASK, len(there)))
    return chosen


def make_cards(
    questions: Sequence[Question],
    root: Path,
    predictions: Sequence[dict[str, dict[str, Any]]],
    frames: Sequence[CoordinateFrame],
    scorings: Sequence[str],
) -> list[Card]:
    """A card per chosen question. predictions, frames, scorings: one item per run, predictions by question id."""
    known = set.intersection(*(set(rows) for rows in predictions)) if predictions else set()
    pictures: dict[str, Picture] = {}
    cards = []
    for question in choose(questions, known):
        if question.image not in pictures:
            pictures[question.image] = load_picture(root / question.image, question.image_size, f"image{len(pictures)}")
        shown = tuple(
            _shown(run, rows[question.id], question, frame, scoring)
            for run, (rows, frame, scoring) in enumerate(zip(predictions, frames, scorings, strict=True))
        )
        cards.append(Card(question, pictures[question.image], shown))
    return cards


def _shown(run: int, row: dict[str, Any], question: Question, frame: CoordinateFrame, scoring: str) -> Shown:
    point = read_point(row["answer"] or "") if question.task == "pixel" else None
    return Shown(
        run=run,
        answer=row["answer"],
        score=row["score"][scoring],
        reasons=tuple(row["reasons"]),
        output=row["output"],
        boxes=tuple((item["name"], tuple(item["bbox"])) for item in row["boxes"]),  # type: ignore[misc]
        point_xy_px=frame.to_original(point, question.image_size) if point else None,
    )
