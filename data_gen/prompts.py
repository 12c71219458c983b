"""Every sentence a model is shown: questions, task notes, response formats, frames in words, the verifier's request.

All wording is the project's own. The image comes first in every prompt, the text after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.records import Question
from rewards.boxes import CoordinateFrame, Size

STYLES = ("located", "reasoning", "direct")

_QUESTIONS: dict[str, tuple[str, ...]] = {
    "yaw": (
        "The camera faces North. Which direction does the {0} face?",
        "The camera faces South. Which direction does the {0} face?",
    ),
    "pixel": ("Where in the image is the centre of the {0}?",),
    "depth": ("How far ahead of the camera is the {0}?",),
    "distance": (
        "Which is closer to the camera, the {0} or the {1}?",
        "Which is farther from the camera, the {0} or the {1}?",
    ),
    "left_right": (
        "Which is further left in the image, the {0} or the {1}?",
        "Which is further right in the image, the {0} or the {1}?",
    ),
    "front_behind": ("Is the {0} in front of the {1}?", "Is the {0} behind the {1}?"),
}

_NOTES = {
    "yaw": "Directions are those of a compass seen from above.",
    "pixel": "Answer with the point [x, y].",
    "depth": "Distance is measured along the viewing direction of the camera.",
    "distance": "Distance is measured from the camera to the object.",
    "left_right": "Left and right are meant as they appear in the image.",
    "front_behind": "Here the object that is farther from the camera counts as being in front.",
}

_FORMATS = {
    "located": (
        "First give the box of every object named in the question, then reason, then answer:\n"
        "<location>name: [x1, y1, x2, y2], ...</location>\n<think>reasoning</think>\n<answer>answer</answer>"
    ),
    "reasoning": "First reason, then answer:\n<think>reasoning</think>\n<answer>answer</answer>",
    "direct": "Reply with the answer only:\n<answer>answer</answer>",
}

_FRAMES = {
    "original": "Coordinates are pixels of the {width}x{height} image, x to the right and y down.",
    "resized": "Coordinates are pixels of the {width}x{height} image, x to the right and y down.",
    "thousand": "Coordinates run from 0 to 1000 over the width (x, to the right) and the height (y, down).",
}

_VERIFIER = "{think}\n\nWhich answer does this reasoning reach?"
_VERIFIER_MASKED = (
    "{think}\n\nSome words of this reasoning are left out and marked with {gap}. "
    "Which of these answers does it reach?\n{options}"
)


def question_text(task: str, names: Sequence[str], variant: int) -> str:
    """The bare question of a task about the named objects (names without article)."""
    return _QUESTIONS[task][variant].format(*names)


def prompt_of(question: Question, frame: CoordinateFrame, style: str = "located") -> str:
    """The text that follows a question's image: its own, where it came with one from outside templates, else ours."""
    if question.prompt:
        return question.prompt
    return prompt_text(question.task, question.question, question.options, frame, question.image_size, style)


def prompt_text(
    task: str, question: str, options: Sequence[str], frame: CoordinateFrame, image_size: Size, style: str = "located"
) -> str:
    """The text that follows the image: question, what the task means, options one a line, frame, response format.

    Raises ValueError for an unknown style.
    """
    if style not in STYLES:
        raise ValueError(f"unknown prompt style {style!r}; known: {', '.join(STYLES)}")
    lines = [f"{question} {_NOTES[task]}"]
    if options:
        lines += ["Options:", *options]
    if style == "located" or task == "pixel":
        lines.append(frame_text(frame, image_size))
    lines.append(_FORMATS[style])
    return "\n".join(lines)


def located_text(question: str, options: Sequence[str], frame: CoordinateFrame, image_size: Size) -> str:
    """The text that follows the image, in the located style, for a question of none of the tasks."""
    listed = ["Options:", *options] if options else []
    return "\n".join([question, *listed, frame_text(frame, image_size), _FORMATS["located"]])


def frame_text(frame: CoordinateFrame, image_size: Size) -> str:
    """What coordinates mean in a frame, for an image of `image_size` (width, height) pixels."""
    width, height = frame.size(image_size)
    return _FRAMES[frame.kind].format(width=width, height=height)


def verifier_text(think: str) -> str:
    """The verifier's request: the trace, and which answer it reaches. Nothing else: no image, no question."""
    return _VERIFIER.format(think=think)


def verifier_text_for_chat(think: str) -> str:
    """The verifier's request to a server, whose reply cannot be begun for it: how to reply is said as well."""
    return f"{verifier_text(think)} {_FORMATS['direct']}"


def masked_verifier_text(think: str, gap: str, options: Sequence[str]) -> str:
    """The request about a trace from which the answer was cut out: the trace, the mark of its gaps, the options."""
    return _VERIFIER_MASKED.format(think=think, gap=gap, options="\n".join(options))


def located_response(boxes: Sequence[tuple[str, Sequence[float]]], think: str, answer: str) -> str:
    """A response in the trained format from named boxes (in the frame of the run), a trace and an answer."""
    listed = ", ".join(f"{name}: [{', '.join(str(round(value)) for value in box)}]" for name, box in boxes)
    return f"<location>{listed}</location>\n<think>{think}</think>\n<answer>{answer}</answer>"
