"""Answers to DriveMLLM without looking: a guesser as published, and the best constant answers; what they score."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from data_gen.drivemllm.prompts import marked
from data_gen.drivemllm.records import YES_NO, DriveMLLMQuestion
from eval.drivemllm_grading import assess
from eval.drivemllm_scores import quick_scores
from eval.engines import Reply, Request
from rewards.boxes import Box, CoordinateFrame, Size, iou

FARTHEST_M = 70.0
RANDOM_RUNS = 10
PIXELS = CoordinateFrame()


@dataclass(frozen=True)
class RandomAnswers:
    """An engine that guesses as the published baseline: uniformly one of the two names, Yes or No, 0 to 70 m with one
    decimal, a point, a box. The same for a question whatever else is asked. Coordinates are in `frame`.
    """

    questions: Mapping[str, DriveMLLMQuestion]
    frame: CoordinateFrame = PIXELS
    seed: int = 0

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """A guess between markers for every request that is not in `done`."""
        for request in requests:
            if request.id not in done:
                yield Reply(request.id, guess(self.questions[request.id], self.frame, self.seed))


def guess(question: DriveMLLMQuestion, frame: CoordinateFrame, seed: int) -> str:
    """A random output to a question."""
    rng = random.Random(f"{seed}-{question.id}")
    size = frame.size(question.image_size)
    match question.task:
        case "left_right":
            return marked(rng.choice(question.objects).name)
        case "front_behind":
            return marked(rng.choice(question.options))
        case "position":
            return marked(f"[{rng.randrange(size[0])}, {rng.randrange(size[1])}]")
        case "box":
            return marked(str(_random_box(rng, size)))
        case _:
            return marked(str(round(rng.uniform(0, FARTHEST_M), 1)))


def constant_outputs(questions: Sequence[DriveMLLMQuestion]) -> dict[str, str]:
    """A good constant answer to each kind of question, by id, in original pixels.

    The median number, point or box (of the box the size that overlaps best), the name that is more often right of the
    first and the second, Yes or No.
    """
    outputs = {}
    for kind in dict.fromkeys(question.kind for question in questions):
        alike = [question for question in questions if question.kind == kind]
        answer = _constant(alike)
        outputs.update({question.id: marked(answer(question)) for question in alike})
    return outputs


def floors_of(questions: Sequence[DriveMLLMQuestion], scoring: str) -> dict[str, dict[str, float]]:
    """What answering without looking scores, by task.

    random: the mean of ten seeded runs of the guesser. constant: the best constants, chosen knowing the answers.
    honest: the better of both, the bar for a model.
    """
    runs = [_scores(questions, scoring, lambda question, seed=seed: guess(question, PIXELS, seed))  # type: ignore[misc]
            for seed in range(RANDOM_RUNS)]  # fmt: skip
    constants = constant_outputs(questions)
    floors = {
        "random": {task: fmean(run[task] for run in runs) for task in runs[0]},
        "constant": _scores(questions, scoring, lambda question: constants[question.id]),
    }
    best = {task: max(scores[task] for scores in floors.values()) for task in runs[0]}
    return {**floors, "honest": best}


def _scores(
    questions: Sequence[DriveMLLMQuestion], scoring: str, answer: Callable[[DriveMLLMQuestion], str]
) -> dict[str, float]:
    return quick_scores([assess(question, answer(question), 0, PIXELS) for question in questions], scoring)


def _constant(alike: Sequence[DriveMLLMQuestion]) -> Callable[[DriveMLLMQuestion], str]:
    """A rule that answers all questions of a kind alike."""
    answers = [question.answer for question in alike]
    if alike[0].task == "left_right":
        place = _commonest([[item.name for item in q.objects].index(str(q.answer)) for q in alike])
        return lambda question: question.objects[place].name
    if alike[0].task == "front_behind":
        option = YES_NO[_commonest([YES_NO.index(str(answer)) for answer in answers])]
        return lambda question: option
    lists = [answer for answer in answers if isinstance(answer, tuple)]
    if lists:
        middle = [median(column) for column in zip(*lists, strict=True)]
        if alike[0].task == "box":
            middle = list(max(_scaled(middle), key=lambda box: fmean(iou(box, other) for other in lists)))  # type: ignore[arg-type]
        return lambda question: str(middle)
    metres = median(answer for answer in answers if isinstance(answer, int | float))
    return lambda question: str(metres)


def _scaled(box_xyxy: Sequence[float]) -> list[Box]:
    """A box and larger ones about its centre."""
    x1, y1, x2, y2 = box_xyxy
    half_x, half_y = (x2 - x1) / 2, (y2 - y1) / 2
    x, y = x1 + half_x, y1 + half_y
    sizes = (1.0, 1.5, 2.0, 3.0, 4.0)
    return [(max(x - s * half_x, 0), max(y - s * half_y, 0), x + s * half_x, y + s * half_y) for s in sizes]


def _commonest(values: Sequence[int]) -> int:
    return Counter(values).most_common(1)[0][0]


def _random_box(rng: random.Random, size: Size) -> list[int]:
    """Left and upper edge anywhere but at the far side, the others anywhere beyond them."""
    width, height = size
    x1, y1 = rng.randrange(width - 1), rng.randrange(height - 1)
    return [x1, y1, rng.randrange(x1 + 1, width), rng.randrange(y1 + 1, height)]
