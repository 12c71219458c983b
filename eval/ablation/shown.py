"""The same test images with every row's answer: what the page shows of single outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.pages import Picture, picture_if_readable
from data_gen.records import Question, question_from_row
from eval.ablation.records import RowResult, TestQuestions
from eval.metrics import assess
from rewards.boxes import Box, CoordinateFrame
from rewards.response import read_point


@dataclass(frozen=True)
class Answered:
    """What a row answered. score: of this question alone, 0..1. boxes, point: in original pixels."""

    row: str
    answer: str | None
    score: float
    output: str
    boxes: tuple[tuple[str, Box], ...]
    point_xy_px: tuple[float, ...] | None


@dataclass(frozen=True)
class ShownQuestion:
    """A question, its picture (None without images), and the rows' answers to it."""

    question: Question
    picture: Picture
    answers: tuple[Answered, ...]


def shown_questions(
    questions: TestQuestions, results: Mapping[str, RowResult], images: Path | None
) -> list[ShownQuestion]:
    """The kept questions with the answers of some rows. results: row -> the seed shown. images: folder, if any."""
    shown = []
    for place, row in enumerate(questions.shown):
        question = question_from_row(row)
        picture = Picture(f"image{place}", *question.image_size, None, question.image)
        if images:
            picture = picture_if_readable(images / question.image, question.image_size, f"image{place}")
        answers = tuple(_answered(name, question, result, questions) for name, result in results.items())
        shown.append(ShownQuestion(question, picture, answers))
    return shown


def results_shown(rows: Sequence[str], results: Mapping[str, Mapping[int, RowResult]]) -> dict[str, RowResult]:
    """Row -> the result of its lowest finished seed."""
    return {name: results[name][min(results[name])] for name in rows if name in results}


def _answered(name: str, question: Question, result: RowResult, questions: TestQuestions) -> Answered:
    output = next(item.output for item in result.examples if item.question_id == question.id)
    frame, size = questions.frame, question.image_size
    outcome = assess(question, output, 0, frame, questions.style)
    boxes = tuple((item.name, frame.box_to_original(item.box_xyxy, size)) for item in outcome.response.boxes)
    answer = outcome.response.answer
    point = _point(answer, frame, size) if question.task == "pixel" else None
    return Answered(name, answer, outcome.grades["strict"].score, output, boxes, point)


def _point(answer: str | None, frame: CoordinateFrame, size: tuple[int, int]) -> tuple[float, ...] | None:
    point = read_point(answer or "")
    return frame.to_original(point, size) if point else None
