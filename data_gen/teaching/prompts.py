"""Every sentence that a teacher is shown. Coordinates are in the frame of 0 to 1000, whatever a server resizes to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from data_gen.records import Question
from data_gen.teaching import records as codes
from data_gen.teaching.coordinates import answer_as_shown, as_shown, box_as_shown
from data_gen.teaching.records import REPLY_REASONS, Reasoned

MEANINGS = {
    "yaw": "It asks for the compass direction in which an object's front points, seen from above.",
    "pixel": "It asks for the point of the picture where the centre of an object is.",
    "depth": "It asks how far ahead an object is, measured along the viewing direction of the camera.",
    "distance": "It asks which of two objects has the smaller or the larger distance to the camera.",
    "left_right": "It asks which of two objects is further to one side, as they appear in the picture.",
    "front_behind": (
        "It asks whether one object is in front of or behind another: here the one farther from the camera is in "
        "front, the nearer one behind."
    ),
}
FRAME = (
    "Coordinates run from 0 to 1000: x over the whole width of the picture, to the right, y over its whole height, "
    "downwards. In running text a point is written [[x, y]] and a box [[x1, y1, x2, y2]], never otherwise; give those "
    "of the named objects only."
)
# Of a writer who is not told where the objects are: its boxes would seldom be the true ones.
BLIND_FRAME = (
    "Coordinates run from 0 to 1000: x over the whole width of the picture, to the right, y over its whole height, "
    "downwards. In running text a point is written [[x, y]], never otherwise; give points on the named objects only, "
    "and no boxes."
)
FORM = "<think>the reasoning</think>\n<answer>the answer</answer>"
KNOWN = "Where the named objects are: {boxes}\nRight answer: {answer}"
OPTION_ANSWER = "The answer is one of the options, word for word."
POINT_ANSWER = "The answer is the point as [x, y]."

REASON = """This picture comes from a camera on a car. Below are a question about it and the right answer. Find out \
how somebody who has nothing but the picture can get to that answer.

{question}
{known}

{frame}

Explain it step by step from what can be seen: where things are and how large they look, where they touch the ground, \
which of their sides are visible, what hides what. Do not use measurements that the picture does not show. Where what \
you see speaks for another answer, say so. Close with the answer that your explanation leads to, on a line of its own:
<answer>the answer</answer>
{answer_form}"""

RULES = """Below are explanations of questions about pictures from a camera on a car, all of one kind. {meaning}

{examples}

Gather from them how to go about any question of this kind, as a numbered list of three to eight short rules: what to \
look at, in which order, how to weigh and compare it, and which mistakes to avoid. Every rule has to hold for pictures \
that nobody has seen yet. So name none of these examples, no object or place in them, and do not mention answers that \
are known beforehand. Reply with the numbered list and nothing else, one rule a line."""
EXAMPLE = """Example {number} ({worth})
{question}
{known}
Explanation: {explanation}"""
RIGHT_EXAMPLE = "the explanation reaches the right answer"
WRONG_EXAMPLE = "the explanation goes wrong: it does not reach the right answer"
OPEN_EXAMPLE = "the explanation stops before it reaches an answer"

WRITE = """This picture comes from a camera on a car. Reason about a question on it.

{question}
{known}

Rules for questions of this kind:
{rules}

{frame}

Write the reasoning of a careful observer who sees the picture and has to find the answer: first what can be seen, \
then what follows from it, last the conclusion. Follow the rules that help here, without quoting or counting them. Use \
at most {words} words. {discretion}Reply in exactly this form, with nothing before or after it:
{form}
{answer_form}"""
DISCRETION = (
    "You know the answer so that the reasoning can end there, but it has to be found in the picture: do not let the "
    "reasoning say or hint that an answer, a box or a rule was known to anybody. "
)

AGAIN = """

An earlier attempt cannot be used:
{attempt}

What is wrong with it:
{problems}

Write it anew without these faults."""
UNREADABLE = "(no reasoning could be read in it)"

JUDGE = """This picture comes from a camera on a car. Somebody has reasoned about a question on it; check the work.

{question}
{known}

The reasoning and its answer:
{attempt}

{frame}

{duty} Is every step borne out by what came before? Does it avoid any hint that the answer, a box or a \
rule was known beforehand? Does it stay below {words} words?

If nothing has to be changed, reply with the single word FINE. Otherwise reply with the whole corrected text, and \
nothing else, in exactly this form:
{form}
{answer_form}"""
JUDGE_AGAINST_TRUTH = "Does everything it says agree with the picture and the boxes? Does it lead to the right answer?"
JUDGE_ALONE = (
    "Does the reasoning lead to the answer that stands below it, without contradicting itself? Leave that answer as it "
    "is; whether it is right is not your concern."
)
FINE = "fine"

PROBLEMS = {
    REPLY_REASONS["empty"]: "The reply was empty.",
    codes.OVERLONG: "The reply was many times too long.",
    codes.CUT: "The reply was so long that its end is missing.",
    codes.NO_TRACE: "The reasoning does not stand between <think> and </think>.",
    codes.NO_ANSWER: "No answer stands between <answer> and </answer> after the reasoning.",
    codes.UNJUDGED: "It could not be told whether the reasoning agrees with the picture; make it plainer.",
    "empty_trace": "There is nothing between <think> and </think>.",
    "tag_in_trace": "Tags or special tokens stand inside the reasoning.",
    "too_long": "The reasoning is too long: use at most {words} words.",
    "bare_coordinates": "Coordinates are written in another way than [[x, y]] or [[x1, y1, x2, y2]].",
    "coordinates_outside": "Coordinates are named that do not lie on the objects of the question.",
    "given_answer": "The reasoning speaks of an answer, a box or a rule that was known beforehand.",
    "contradicts_answer": "The reasoning ends with another conclusion than the answer.",
    "bad_format": "The form of the reply was not kept.",
    "wrong_answer": "The answer below the reasoning is not the right one, or is not worded as asked.",
}


def prompts_digest() -> str:
    """What tells these prompts from others: the sha256 of this file."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def reason_prompt(question: Question) -> str:
    """Asks the reasoner how one gets to the true answer."""
    return REASON.format(
        question=_question(question), known=_known(question), frame=FRAME, answer_form=_answer_form(question)
    )


def rules_prompt(examples: Sequence[tuple[Question, Reasoned]], longest_example: int) -> str:
    """Asks the writer for the rules of a task. Of long explanations the last `longest_example` characters are shown."""
    told = [
        EXAMPLE.format(
            number=number,
            worth=_worth(reasoned),
            question=_question(question),
            known=_known(question),
            explanation=_end_of(as_shown(reasoned.reasoning, question.image_size), longest_example),
        )
        for number, (question, reasoned) in enumerate(examples, 1)
    ]
    return RULES.format(meaning=MEANINGS[examples[0][0].task], examples="\n\n".join(told))


def _worth(reasoned: Reasoned) -> str:
    """What an example is good for; one that was cut at the limit of tokens has reached no answer."""
    if reasoned.right:
        return RIGHT_EXAMPLE
    return WRONG_EXAMPLE if reasoned.answer else OPEN_EXAMPLE


def write_prompt(question: Question, rules: str, blind: bool, words: int) -> str:
    """Asks the writer for a trace; `blind`: without the answer and the boxes."""
    return WRITE.format(
        question=_question(question),
        known="" if blind else _known(question),
        rules=rules,
        frame=BLIND_FRAME if blind else FRAME,
        words=words,
        discretion="" if blind else DISCRETION,
        form=FORM,
        answer_form=_answer_form(question),
    )


def write_again_prompt(first: str, attempt: str, problems: Sequence[str], words: int) -> str:
    """The request `first` once more, with the earlier attempt and what is wrong with it, codes of `PROBLEMS`."""
    told = "\n".join(f"- {PROBLEMS[code].format(words=words)}" for code in problems)
    return first + AGAIN.format(attempt=attempt, problems=told)


def judge_prompt(question: Question, attempt: str, blind: bool, words: int) -> str:
    """Asks the writer to judge a trace, and to correct it."""
    return JUDGE.format(
        question=_question(question),
        known="" if blind else _known(question),
        attempt=attempt,
        frame=BLIND_FRAME if blind else FRAME,
        duty=JUDGE_ALONE if blind else JUDGE_AGAINST_TRUTH,
        words=words,
        form=FORM,
        answer_form=_answer_form(question),
    )


def attempt_text(question: Question, reasoning: str, answer: str) -> str:
    """A trace and its answer, stored in original pixels, as a teacher is shown them."""
    if not reasoning:
        return UNREADABLE
    size = question.image_size
    return f"<think>{as_shown(reasoning, size)}</think>\n<answer>{answer_as_shown(answer, size)}</answer>"


def _question(question: Question) -> str:
    lines = [f"Question: {question.question}", MEANINGS[question.task]]
    return "\n".join([*lines, "Options:", *question.options] if question.options else lines)


def _known(question: Question) -> str:
    size = question.image_size
    boxes = ", ".join(f"{item.name} {box_as_shown(item.bbox, size)}" for item in question.objects)
    return KNOWN.format(boxes=boxes, answer=answer_as_shown(question.answer_text, size))


def _answer_form(question: Question) -> str:
    return OPTION_ANSWER if question.options else POINT_ANSWER


def _end_of(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"... {text[-longest:]}"
