"""What a reasoning text says about itself: its coordinates, its conclusion, whether it was told things beforehand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rewards.normal_form import normalise
from rewards.response import LOCATED_TAGS, map_coordinates

_GIVEN = r"(?:given|provided|supplied|stated|reference|expected|known|labell?ed|annotated)"
_PLACE = r"(?:bounding[- ])?(?:box(?:es)?|coordinates|locations?|positions?)"
_GIVEN_ANSWER = re.compile(
    rf"\b(?:{_GIVEN}|true|ground[- ]truth) (?:right |correct )?answer\b"
    r"|\banswer (?:is |was |has been |that was )?(?:given|provided|supplied)\b(?! by)"
    r"|\banswer (?:is |was )?(?:already )?known\b"
    r"|\b(?:given|since|know|knowing|told) that the (?:right |correct )?answer\b"
    r"|\b(?:given|since|as|because|knowing) the (?:right|correct) answer\b"
    r"|\b(?:according to|match(?:es|ing)?|agree(?:s|ing)? with|consistent with|in line with|align(?:s|ed|ing)? with"
    r"|confirm(?:s|ing)?|support(?:s|ing)?|fit(?:s|ting)?) the (?:right |correct )?(?:answer|label|annotation)\b"
    r"|\bground[- ]truth\b|\banswer key\b|\b(?:we|i) (?:are|am|were|was|have been) told\b"
    rf"|\b{_GIVEN} {_PLACE}\b|\b{_PLACE} (?:is |are |was |were )?(?:given|provided|supplied)\b(?! by)"
    r"|\b(?:according to|follow(?:s|ing)?|per|by|apply(?:ing)?|based on|using) the (?:given |provided )?rules\b"
    r"|\brules? (?:number )?\d",
    re.IGNORECASE,
)
_ANSWER_CLAUSE = re.compile(
    r"\banswer(?: is| must be| should be| would be| has to be|:)|\bmakes the answer\b", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CONCLUSION = re.compile(r"\b(?:so|therefore|thus|hence|means)\b", re.IGNORECASE)
# Too common as plain words to count as an answer outside a clause that says so.
_PLAIN_WORDS = {"yes", "no"}


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
    """Whether the trace speaks of an answer, a box or a rule that was there before it."""
    return _GIVEN_ANSWER.search(reasoning) is not None


def concluded_option(reasoning: str, options: Sequence[str]) -> str | None:
    """The option that a trace literally ends with, in normal form, or None when it names none as its conclusion.

    After the last "the answer is" it is the option named first. Without such a clause it is the option that the last
    sentence names after its "so", provided it names only one: in a comparison both objects are named.
    """
    clause = last_answer_clause(reasoning)
    if clause is not None:
        return next(iter(_named_options(clause, options)), None)
    last_sentence = _SENTENCE_END.split(reasoning.strip())[-1]
    if not (markers := list(_CONCLUSION.finditer(last_sentence))):
        return None
    named = set(_named_options(last_sentence[markers[-1].end() :], options)) - _PLAIN_WORDS
    return named.pop() if len(named) == 1 else None


def concluded_point(reasoning: str) -> tuple[float, ...] | None:
    """The point or box that a trace ends with, or None.

    After the last "the answer is" it is the one named first. Without such a clause it is the last point of the last
    sentence.
    """
    clause = last_answer_clause(reasoning)
    if clause is not None:
        return next(iter(coordinates_in(clause)), None)
    points = [values for values in coordinates_in(_SENTENCE_END.split(reasoning.strip())[-1]) if len(values) == 2]
    return points[-1] if points else None


def last_answer_clause(reasoning: str) -> str | None:
    """What follows the last "answer is", or None."""
    clauses = list(_ANSWER_CLAUSE.finditer(reasoning))
    return reasoning[clauses[-1].end() :] if clauses else None


def _named_options(text: str, options: Sequence[str]) -> list[str]:
    """The options that a text names as whole phrases, in normal form and in order of appearance."""
    forms = sorted({normalise(option) for option in options}, key=len, reverse=True)
    return re.findall(rf"\b(?:{'|'.join(map(re.escape, forms))})\b", normalise(text)) if forms else []
