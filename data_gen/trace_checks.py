"""Is a reasoning trace fit to learn from? Pure checks of its text against the question; each failure has a code.

What is written for a question becomes a training target as it stands, so a trace must keep the response format, lead
to the true answer, name only places that are there, and sound like someone who had to find the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data_gen.prompts import located_response
from data_gen.records import Question
from rewards.boxes import CoordinateFrame
from rewards.grading import grade_text, same_answer
from rewards.normal_form import normalise
from rewards.response import contains_phrase, parse
from rewards.trace_text import (
    concluded_option,
    concluded_point,
    coordinates_in,
    has_bare_coordinates,
    has_tag,
    last_answer_clause,
    mentions_given_answer,
)

TRACE_REASONS = (
    "empty_trace", "tag_in_trace", "too_long", "bare_coordinates", "coordinates_outside", "given_answer",
    "contradicts_answer", "bad_format", "wrong_answer",
)  # fmt: skip
MAX_WORDS = 80
ROUNDING_PX = 1.0


@dataclass(frozen=True)
class TraceBudget:
    """How long a trace may be: its words, and the tokens of the whole response, counted as the trained model counts."""

    max_words: int | None = MAX_WORDS
    max_tokens: int | None = None
    count_tokens: Callable[[str], int] | None = None

    def is_exceeded(self, reasoning: str, target: str) -> bool:
        """Whether the trace, or the response that it becomes, is too long."""
        if self.max_words is not None and len(reasoning.split()) > self.max_words:
            return True
        return bool(self.max_tokens and self.count_tokens and self.count_tokens(target) > self.max_tokens)


def trace_problems(
    question: Question, reasoning: str, answer: str | None = None, budget: TraceBudget = TraceBudget()
) -> tuple[str, ...]:
    """Why a trace cannot be used: codes of `TRACE_REASONS`, none when it is fine.

    reasoning: the text between the think tags, coordinates in original pixels. answer: the answer that the teacher
    wrote with it, by default the true one, which is what becomes the target.
    """
    if not reasoning.strip():
        return ("empty_trace",)
    target = located_response(
        [(item.name, item.bbox) for item in question.objects],
        reasoning,
        question.answer_text if answer is None else answer,
    )
    found = {
        "tag_in_trace": has_tag(reasoning),
        "too_long": budget.is_exceeded(reasoning, target),
        "bare_coordinates": has_bare_coordinates(reasoning),
        "coordinates_outside": any(not _is_inside(values, question) for values in coordinates_in(reasoning)),
        "given_answer": mentions_given_answer(reasoning),
        "contradicts_answer": contradicts_answer(question, reasoning),
        "bad_format": not parse(target).well_formed,
        "wrong_answer": grade_text(target, question.truth, CoordinateFrame("original")).score <= 0,
    }
    return tuple(code for code in TRACE_REASONS if found.get(code))


def contradicts_answer(question: Question, reasoning: str) -> bool:
    """Whether what the trace concludes last is another option, or another point, than the true answer."""
    if question.task == "pixel":
        point = concluded_point(reasoning)
        said = f"[{', '.join(map(str, point))}]" if point else question.answer_text
        return not same_answer(said, question.answer_text, question.image_size)
    concluded = concluded_option(reasoning, question.options)
    return concluded is not None and normalise(concluded) != normalise(question.answer_text)


def ends_with_answer(question: Question, reasoning: str) -> bool:
    """Whether the trace concludes with the literal true answer."""
    if question.task == "pixel":
        return f"[{question.answer_text}]" in (last_answer_clause(reasoning) or "")
    return concluded_option(reasoning, question.options) == normalise(question.answer_text)


def holds_answer(question: Question, reasoning: str) -> bool:
    """Whether the literal answer stands anywhere in the trace; in a comparison it is the name of an object."""
    if question.task == "pixel":
        return question.answer_text in reasoning
    return contains_phrase(normalise(reasoning), normalise(question.answer_text))


def _is_inside(values: Sequence[float], question: Question) -> bool:
    """Whether a point or box lies in the box of an object of the question."""
    corners = list(zip(values[::2], values[1::2], strict=True))
    return any(
        all(x1 - ROUNDING_PX <= x <= x2 + ROUNDING_PX and y1 - ROUNDING_PX <= y <= y2 + ROUNDING_PX for x, y in corners)
        for x1, y1, x2, y2 in (item.bbox for item in question.objects)
    )
