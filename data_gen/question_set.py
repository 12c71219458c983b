"""Units -> the questions of a file: in words, with a prompt from outside templates if there are some, each checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from data_gen.questions import Unit, questions_of
from data_gen.records import Question
from data_gen.templates import Templates
from rewards.boxes import CoordinateFrame
from rewards.grading import SCORINGS, grade_text


@dataclass(frozen=True)
class QuestionSet:
    """The questions of a file, and what is wrong with given units: those left out, and true answers that cannot score.

    Both map a name to its reason. They stay empty for scenes that were just made.
    """

    questions: list[Question]
    left_out: dict[str, str] = field(default_factory=dict)
    unscorable: dict[str, str] = field(default_factory=dict)


def make_questions(
    units: Sequence[Unit], source: str, depth_ranges: str, templates: Templates | None = None, trusted: bool = True
) -> QuestionSet:
    """All questions of the units.

    Of scenes that others made or may have changed (not `trusted`) a unit that cannot be asked is left out with its
    reason, and a true answer that does not score full marks is told. Else both are bugs: ValueError, RuntimeError.
    """
    made = QuestionSet([])
    for unit in units:
        try:
            asked = list(questions_of(unit, source=source, depth_ranges=depth_ranges))
        except ValueError as error:
            if trusted:
                raise
            made.left_out[unit.name] = str(error)
            continue
        for question in asked:
            if problem := truth_problem(question):
                if trusted:
                    raise RuntimeError(f"the true answer of {question.id} fails {problem}; question: {question}")
                made.unscorable[question.id] = problem
        made.questions.extend(map(templates.fill, asked) if templates else asked)
    return made


def truth_problem(question: Question) -> str | None:
    """Why a question's true answer does not score full marks, or None.

    For a point, whose score is graded, full marks are the reward's: inside the box. The official scoring of points
    knows 1600x900 images only.
    """
    scorings = SCORINGS if question.image_size == (1600, 900) else ("strict",)
    return next(_failures(question, scorings), None)


def _failures(question: Question, scorings: Sequence[str]) -> Iterator[str]:
    for scoring in scorings:
        text = f"<answer>{question.answer_text}</answer>"
        grade = grade_text(text, question.truth, CoordinateFrame("original"), scoring)
        if grade.reasons or not grade.score:
            yield f"({scoring}): {', '.join(grade.reasons) or 'scores 0'}"
