"""Every sentence that a DriveMLLM question shows a model: questions, what they mean, and the form of the answer.

All wording is the project's own; only the two markers around the answer are the benchmark's. The image comes first in
every prompt, the text after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewards.boxes import CoordinateFrame, Size

ANSWER_START, ANSWER_END = "<OUTPUT FORMAT START>", "<OUTPUT FORMAT END>"

_QUESTIONS = {
    "xy": "Which point of the image is the middle of the {0}?",
    "box": "Which upright rectangle of the image holds the {0} as closely as possible?",
    "left": "Which of the two appears more to the left: the {0} or the {1}?",
    "right": "Which of the two appears more to the right: the {0} or the {1}?",
    "front": "Seen from the camera, is the {0} in front of the {1}?",
    "behind": "Seen from the camera, is the {0} behind the {1}?",
    "dA": "How many meters is it from the camera to the {0}?",
    "dz": "How many meters ahead of the camera is the {0}?",
    "dAB": "How many meters is it from the {0} to the {1}?",
    "dx": "By how many meters are the {0} and the {1} apart sideways?",
}

_SIDES = "Only their places in the image count. Answer with the words used for that object, without an article."
_ORDER = "The object that is nearer to the camera, along its viewing direction, counts as the one in front."
_STRAIGHT = "Meant is the straight line between {0}, in all three dimensions. Answer with the number alone, no unit."
_NOTES = {
    "xy": "Meant is the center of the tightest rectangle around it.",
    "box": "Give its left, upper, right and lower edge in this order.",
    "left": _SIDES,
    "right": _SIDES,
    "front": _ORDER,
    "behind": _ORDER,
    "dA": _STRAIGHT.format("the camera and the center of the object"),
    "dz": "Count only along the viewing direction, to the center of the object. Answer with the number alone, no unit.",
    "dAB": _STRAIGHT.format("the centers of the two objects"),
    "dx": "Count only from left to right, between the two centers. Answer with the number alone, no unit.",
}

_FORMS = {
    "xy": "[x, y]",
    "box": "[x1, y1, x2, y2]",
    "left": "object",
    "right": "object",
    "front": "Yes or No",
    "behind": "Yes or No",
    "dA": "number",
    "dz": "number",
    "dAB": "number",
    "dx": "number",
}

_FRAMES = {
    "original": "Count pixels of the {width}x{height} image, x to the right and y down.",
    "resized": "Count pixels of the {width}x{height} image, x to the right and y down.",
    "thousand": "Count x from 0 to 1000 over the width, to the right, and y from 0 to 1000 over the height, down.",
}

_EXAMPLES = "How such questions about other images, which are not shown, are answered:"
_AFTER_EXAMPLES = "Now the question about the image that is shown:"


def question_text(kind: str, names: Sequence[str]) -> str:
    """The bare question of a kind about the named objects (names without article)."""
    return _QUESTIONS[kind].format(*names)


def prompt_text(
    kind: str,
    question: str,
    frame: CoordinateFrame,
    image_size: Size,
    examples: Sequence[tuple[str, str]] = (),
) -> str:
    """The text that follows the image: question, what is meant, the frame of coordinates, the form of the answer.

    examples: questions of this kind with their answers, shown ahead of it.
    """
    lines = [*_example_lines(examples), question, _NOTES[kind]]
    if kind in ("xy", "box"):
        width, height = frame.size(image_size)
        lines.append(_FRAMES[frame.kind].format(width=width, height=height))
    lines.append(f"Write the answer in this form: {marked(_FORMS[kind])}")
    return "\n".join(lines)


def marked(answer: str) -> str:
    """An answer between the benchmark's markers."""
    return f"{ANSWER_START}{answer}{ANSWER_END}"


def _example_lines(examples: Sequence[tuple[str, str]]) -> list[str]:
    if not examples:
        return []
    lines = [_EXAMPLES]
    for question, answer in examples:
        lines += [f"Question: {question}", f"Answer: {marked(answer)}"]
    return [*lines, "", _AFTER_EXAMPLES]
