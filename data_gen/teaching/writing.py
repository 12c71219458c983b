"""What a writer wrote: the trace and the answer in a reply, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass

from data_gen.records import Question
from data_gen.teaching.coordinates import answer_as_stored, as_stored
from data_gen.teaching.records import CUT, NO_ANSWER, NO_TRACE
from data_gen.teaching.teacher import Said
from data_gen.trace_checks import TraceBudget, trace_problems
from rewards.boxes import CoordinateFrame
from rewards.grading import grade_answer
from rewards.response import parse

_TAGS = ("think", "answer")


@dataclass(frozen=True)
class Writing:
    """A trace and its answer, coordinates in original pixels. failed: why there is none, empty when there is."""

    reasoning: str = ""
    answer: str = ""
    failed: str = ""


def read_writing(said: Said, question: Question) -> Writing:
    """The writing in a reply."""
    if said.failed:
        return Writing(failed=said.failed)
    response = parse(said.text, tags=_TAGS)
    if response.think is None:
        return Writing(failed=CUT if said.cut else NO_TRACE)
    reasoning = as_stored(response.think, question)
    if not response.answer:
        return Writing(reasoning, failed=CUT if said.cut else NO_ANSWER)
    return Writing(reasoning, answer_as_stored(response.answer, question))


def is_right(question: Question, answer: str) -> bool:
    """Whether an answer in original pixels is the true one, by the grader."""
    return grade_answer(answer, question.truth, CoordinateFrame("original")).score > 0


def problems_of(question: Question, writing: Writing, budget: TraceBudget) -> tuple[str, ...]:
    """Why a writing cannot be used: that there is none, or what the checks of traces say."""
    if writing.failed:
        return (writing.failed,)
    return trace_problems(question, writing.reasoning, writing.answer, budget)
