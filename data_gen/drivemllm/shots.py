"""Worked examples for a prompt: questions of the same kind about other images, with their true answers, as text.

As in the published few-shot prompts, an example is text alone: its image is not shown. Theirs are about invented
things; these come from the question file, so that names and sizes are those of the benchmark.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from data_gen.drivemllm.records import KINDS, DriveMLLMQuestion
from data_gen.records import RecordError
from rewards.boxes import CoordinateFrame


def draw_shots(
    asked: Sequence[DriveMLLMQuestion], pool: Sequence[DriveMLLMQuestion], count: int, seed: int
) -> dict[str, list[DriveMLLMQuestion]]:
    """For every asked question, by id, `count` questions of its kind from the pool, each about another image.

    The draw of a question depends on the seed, its id and the pool alone. Raises RecordError when the pool has too few
    images.
    """
    alike: dict[str, list[DriveMLLMQuestion]] = {kind: [] for kind in KINDS}
    images: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for question in pool:
        alike[question.kind].append(question)
        images[question.kind].add(question.image)
    for question in asked:
        others = len(images[question.kind]) - (question.image in images[question.kind])
        if others < count:
            raise RecordError(
                f"{count} examples for a question of kind {question.kind} need as many other images with such "
                f"questions, the file has {others}; use --shots 0 or a larger file"
            )
    return {question.id: _drawn(question, alike[question.kind], count, seed) for question in asked}


def worked_example(shot: DriveMLLMQuestion, frame: CoordinateFrame) -> tuple[str, str]:
    """The question of an example and its answer: coordinates in `frame`, whole; metres with one decimal."""
    if isinstance(shot.answer, tuple):
        values = frame.to_model(shot.answer, shot.image_size)
        return shot.question, f"[{', '.join(str(round(value)) for value in values)}]"
    return shot.question, shot.answer if isinstance(shot.answer, str) else f"{shot.answer:.1f}"


def _drawn(
    question: DriveMLLMQuestion, alike: Sequence[DriveMLLMQuestion], count: int, seed: int
) -> list[DriveMLLMQuestion]:
    rng = random.Random(f"{seed}-{question.id}")
    chosen: dict[str, DriveMLLMQuestion] = {}
    while len(chosen) < count:
        shot = rng.choice(alike)
        if shot.image != question.image:
            chosen.setdefault(shot.image, shot)
    return list(chosen.values())
