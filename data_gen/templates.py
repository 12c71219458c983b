"""Prompts from a folder of outside template files, one per task, with `{}` slots in the published order.

The official wording is not part of this project; a user who has it points here to it. The slots of each task, in order
("the white car" is an object, with its article):

    yaw           North|South, object, four options
    pixel         object
    depth         object, three ranges
    distance      object, object, closer|farther, both as options
    left_right    left|right, object, object, both as options
    front_behind  object, in front of|behind, object

Two more slots at the end take the marks before and after the answer. A file belongs to the task whose name, or whose
published short name (xy2d, dis, lr, lf, fb), is a word of its own name between `_`, `-` and the ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from data_gen.command_line import UsageError
from data_gen.records import Question

SLOT = "{}"
ANSWER_MARKS = ("<answer>", "</answer>")
# Task -> what its file's name holds; the first is how the file is called where it was published.
FILE_WORDS: dict[str, tuple[str, ...]] = {
    "yaw": ("yaw",),
    "pixel": ("xy2d", "pixel"),
    "depth": ("depth",),
    "distance": ("dis", "distance"),
    "left_right": ("lr", "lf", "left_right"),
    "front_behind": ("fb", "front_behind"),
}
SLOTS = {"yaw": 6, "pixel": 1, "depth": 4, "distance": 5, "left_right": 5, "front_behind": 3}
# The word of the question that changes with its variant.
_VARIANT_WORDS = {
    "yaw": ("North", "South"),
    "distance": ("closer", "farther"),
    "left_right": ("left", "right"),
    "front_behind": ("in front of", "behind"),
}


@dataclass(frozen=True)
class Templates:
    """The text of every task's template, and the sha256 of them all."""

    texts: Mapping[str, str]
    digest: str

    def prompt(self, question: Question) -> str:
        """The whole text that follows the image of a question."""
        text = self.texts[question.task]
        values = slot_values(question)
        if text.count(SLOT) == len(values) + len(ANSWER_MARKS):
            values += ANSWER_MARKS
        pieces = text.split(SLOT)
        return pieces[0] + "".join(value + piece for value, piece in zip(values, pieces[1:], strict=True))

    def fill(self, question: Question) -> Question:
        """The question with its prompt."""
        return replace(question, prompt=self.prompt(question))


def read_templates(folder: Path) -> Templates:
    """The templates of a folder.

    Raises UsageError when there is no such folder, a task has no file or several, or a file has another number of
    slots than its task fills.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder of templates at {folder}")
    texts = {task: _read(_file_of(folder, task)) for task in FILE_WORDS}
    for task, text in texts.items():
        wanted, found = SLOTS[task], text.count(SLOT)
        if found not in (wanted, wanted + len(ANSWER_MARKS)):
            raise UsageError(
                f"{_file_of(folder, task)} has {found} slots {SLOT}; a {task} template has {wanted}, or two more for "
                "the marks round the answer"
            )
    return Templates(texts, sha256("\0".join(texts.values()).encode()).hexdigest())


def slot_values(question: Question) -> tuple[str, ...]:
    """What goes into the slots of a question's template, in the published order."""
    names = tuple(f"the {item.name}" for item in question.objects)
    word = _VARIANT_WORDS[question.task][question.variant] if question.task in _VARIANT_WORDS else ""
    if question.task == "yaw":
        return word, *names, *question.options
    if question.task == "distance":
        return *names, word, *question.options[:2]
    if question.task == "left_right":
        return word, *names, *question.options[:2]
    if question.task == "front_behind":
        return names[0], word, names[1]
    return *names, *question.options


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8: {error}") from error


def _file_of(folder: Path, task: str) -> Path:
    """The one text file of a task: a word of its name, between digits, `_` and `-`, says which."""
    words = FILE_WORDS[task]
    found = sorted(path for path in folder.glob("*.txt") if _holds(path.stem, words))
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "none"
        raise UsageError(
            f"{folder} must hold one template for the task {task}: a .txt file with {' or '.join(words)} as a word "
            f"of its name; found: {there}"
        )
    return found[0]


def _holds(stem: str, words: tuple[str, ...]) -> bool:
    padded = f"_{stem.lower().replace('-', '_')}_"
    return any(f"_{word}_" in padded for word in words)
