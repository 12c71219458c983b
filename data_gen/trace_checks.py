"""Is a reasoning trace fit to learn from? Pure checks of its text against the question; each failure has a code.

What is written for a question becomes a training target as it stands, so a trace must keep the response format, lead
to the true answer, name only places that are there, and sound like someone who had to find the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from data_gen.prompts import located_response
from data_gen.records import Question
from rewards.boxes import CoordinateFrame
from rewards.grading import grade_text, same_answer
from rewards.normal_form import normalise
from rewards.response import LOCATED_TAGS, map_coordinates, parse

TRACE_REASONS = (
    "empty_trace", "tag_in_trace", "too_long", "bare_coordinates", "coordinates_outside", "given_answer",
    "contradicts_answer", "bad_format", "wrong_answer",
)  # fmt: skip
MAX_WORDS = 50
ROUNDING_PX = 1.0

_GIVEN_ANSWER = re.compile(
    r"\b(?:given|provided|supplied|stated|reference|expected|known|true|ground[- ]truth) answer\b"
    r"|\banswer (?:is |was |has been |that was )?(?:given|provided|supplied)\b(?! by)"
    r"|\b(?:given|since|know|knowing|told) that the (?:correct )?answer\b"
    r"|\b(?:according to|matches|agrees with|consistent with) the (?:correct )?(?:answer|label|annotation)\b"
    r"|\bground[- ]truth\b|\banswer key\b|\b(?:we|i) (?:are|am|were|was|have been) told\b",
    re.IGNORECASE,
)
_ANSWER_CLAUSE = re.compile(
    r"\banswer(?: is| must be| should be| would be| has to be|:)|\bmakes the answer\b", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CONCLUSION = re.compile(r"\b(?:so|therefore|thus|hence|means)\b", re.IGNORECASE)
# Too common as plain words to count as an answer outside a clause that says so.
_PLAIN_WORDS = {"yes", "no"}


def trace_problems(
    question: Question, reasoning: str, answer: str | None = None, max_words: int = MAX_WORDS
) -> tuple[str, ...]:
    """Why a trace cannot be used: codes of `TRACE_REASONS`, none when it is fine.

    reasoning: the text between the think tags, coordinates in original pixels. answer: the answer that the teacher
    wrote with it, by default the true one, which is what becomes the target.
    """
    if not reasoning.strip():
        return ("empty_trace",)
    found = {
        "tag_in_trace": has_tag(reasoning),
        "too_long": len(reasoning.split()) > max_words,
        "bare_coordinates": has_bare_coordinates(reasoning),
        "coordinates_outside": any(not _is_inside(values, question) for values in coordinates_in(reasoning)),
        "given_answer": mentions_given_answer(reasoning),
        "contradicts_answer": contradicts_answer(question, reasoning),
        **_target_problems(question, reasoning, question.answer_text if answer is None else answer),
    }
    return tuple(code for code in TRACE_REASONS if found.get(code))


def has_tag(reasoning: str) -> bool:
    """Whether a tag of the response format or a special token stands in the trace."""
    lowered = reasoning.lower()
    return "<|" in lowered or any(f"<{slash}{tag}" in lowered for tag in LOCATED_TAGS for slash in ("", "/"))


def coordinates_in(reasoning: str) -> list[tuple[float, ...]]:
    """The points and boxes that a trace writes as `[[x, y]]` or `[[x1, y1, x2, y2]]`, in order."""
    found: list[tuple[float, ...]] = []

    def collect(values: Sequence[float]) -> Sequence[float]:
        found.append(tuple(values))
        return values

    map_coordinates(reasoning, collect)
    return found


def has_bare_coordinates(reasoning: str) -> bool:
    """Whether brackets stand in the trace that are no `[[...]]` coordinates, which no frame would convert."""
    brackets = reasoning.count("[") + reasoning.count("]")
    return brackets != 4 * len(coordinates_in(reasoning)) or re.search(r"\(\s*[-+.\d]+\s*,", reasoning) is not None


def mentions_given_answer(reasoning: str) -> bool:
    """Whether the trace speaks of an answer that was there before it."""
    return _GIVEN_ANSWER.search(reasoning) is not None


def contradicts_answer(question: Question, reasoning: str) -> bool:
    """Whether what the trace concludes last is another option, or another point, than the true answer."""
    if question.task == "pixel":
        clause = _last_answer_clause(reasoning)
        points = coordinates_in(clause or "")
        said = f"[{', '.join(map(str, points[0]))}]" if points else question.answer_text
        return not same_answer(said, question.answer_text, question.image_size)
    concluded = concluded_option(reasoning, question.options)
    return concluded is not None and normalise(concluded) != normalise(question.answer_text)


def concluded_option(reasoning: str, options: Sequence[str]) -> str | None:
    """The option that a trace literally ends with, in normal form, or None when it names none as its conclusion.

    After the last "the answer is" it is the option named first. Without such a clause it is the option that the last
    sentence names after its "so", provided it names only one: in a comparison both objects are named.
    """
    clause = _last_answer_clause(reasoning)
    if clause is not None:
        return next(iter(_named_options(clause, options)), None)
    last_sentence = _SENTENCE_END.split(reasoning.strip())[-1]
    if not (markers := list(_CONCLUSION.finditer(last_sentence))):
        return None
    named = set(_named_options(last_sentence[markers[-1].end() :], options)) - _PLAIN_WORDS
    return named.pop() if len(named) == 1 else None


def ends_with_answer(question: Question, reasoning: str) -> bool:
    """Whether the trace concludes with the literal true answer."""
    if question.task == "pixel":
        return f"[{question.answer_text}]" in (_last_answer_clause(reasoning) or "")
    return concluded_option(reasoning, question.options) == normalise(question.answer_text)


def _last_answer_clause(reasoning: str) -> str | None:
    """What follows the last "answer is", or None."""
    clauses = list(_ANSWER_CLAUSE.finditer(reasoning))
    return reasoning[clauses[-1].end() :] if clauses else None


def _named_options(text: str, options: Sequence[str]) -> list[str]:
    """The options that a text names as whole phrases, in normal form and in order of appearance."""
    forms = sorted({normalise(option) for option in options}, key=len, reverse=True)
    return re.findall(rf"\b(?:{'|'.join(map(re.escape, forms))})\b", normalise(text)) if forms else []


def _is_inside(values: Sequence[float], question: Question) -> bool:
    """Whether a point or box lies in the box of an object of the question."""
    corners = list(zip(values[::2], values[1::2], strict=True))
    return any(
        all(x1 - ROUNDING_PX <= x <= x2 + ROUNDING_PX and y1 - ROUNDING_PX <= y <= y2 + ROUNDING_PX for x, y in corners)
        for x1, y1, x2, y2 in (item.bbox for item in question.objects)
    )


def _target_problems(question: Question, reasoning: str, answer: str) -> dict[str, bool]:
    """Faults of the whole response that the trace becomes: its strict format, and its answer by the grader."""
    target = located_response([(item.name, item.bbox) for item in question.objects], reasoning, answer)
    return {
        "bad_format": not parse(target).well_formed,
        "wrong_answer": grade_text(target, question.truth, CoordinateFrame("original")).score <= 0,
    }
