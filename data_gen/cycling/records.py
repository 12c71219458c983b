"""The items of CyclingVQA: one or two images, a question, lettered choices, one right; JSON Lines or a folder of them.

The eight tasks, as the public project page shows them:

TSG     traffic sign grounding: which of the numbered regions holds a traffic sign
SU      spatial understanding: which of two marked things is further left, or nearer to the cyclist
TO      temporal ordering: which of two images of a ride was taken first
LR      lane recognition: which of the shaded, numbered lanes is the cyclist's
RED     referring expression detection: which numbered region holds the sign of a description
TSR+S   traffic sign recognition with a region: what the sign in the marked region says
TSR     traffic sign recognition: which of the described signs is in the image
SAA     sign-action association: may one cycle on the shaded lane
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from data_gen.records import RecordError, flat_row, iterate_rows, nested_row
from rewards.normal_form import normalise
from rewards.response import holds_markup

TASKS = ("TSG", "SU", "TO", "LR", "RED", "TSR+S", "TSR", "SAA")
MOST_CHOICES = 8
LETTERS = string.ascii_uppercase[:MOST_CHOICES]
ITEMS = "items.jsonl"
BUILD_COMMAND = (
    "python data_gen/build_cyclingvqa.py --annotations FILE --images DIR --out data/cyclingvqa (or --sample)"
)


@dataclass(frozen=True)
class CyclingItem:
    """One item. images: relative to the image folder. answer: the letter of the right choice.

    photos: the photographs that the images were drawn on, where that is known; items of one photograph are not
    independent of each other.
    """

    id: str
    task: str
    images: tuple[str, ...]
    question: str
    choices: tuple[str, ...]
    answer: str
    photos: tuple[str, ...] = ()
    source: str = "real"
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := _problem(self):
            raise ValueError(problem)

    @property
    def letters(self) -> str:
        """The letters of the choices, A first."""
        return LETTERS[: len(self.choices)]

    @property
    def answer_text(self) -> str:
        """The text of the right choice."""
        return self.choices[self.letters.index(self.answer)]

    @property
    def cluster(self) -> str:
        """What the item shares with others that are not independent of it: its first photograph, or image."""
        return min(self.photos or self.images)


def _problem(item: CyclingItem) -> str | None:
    """Why an item cannot be asked or scored, or None."""
    if item.task not in TASKS:
        return f"unknown task {item.task!r}; known: {', '.join(TASKS)}"
    if len(item.images) not in (1, 2) or not all(item.images):
        return f"an item shows one or two images, got {list(item.images)}"
    if not 2 <= len(item.choices) <= MOST_CHOICES:
        return f"an item has 2 to {MOST_CHOICES} choices, got {len(item.choices)}"
    for text in (item.question, *item.choices):
        if not text.strip() or holds_markup(text):
            return f"the text {text!r} is empty or holds tags or special tokens"
    if len({normalise(choice) for choice in item.choices}) < len(item.choices):
        return f"two of the choices {list(item.choices)} say the same"
    if item.answer not in tuple(item.letters):
        return f"the answer {item.answer!r} is none of the letters {', '.join(item.letters)}"
    return None


def item_to_row(item: CyclingItem) -> dict[str, Any]:
    """An item as a flat JSON object."""
    return flat_row(asdict(item))


def item_from_row(row: dict[str, Any]) -> CyclingItem:
    """An item from a JSON object; unknown fields go to `extra`.

    `images` may be one name, `answer` the letter of a choice or its text. Raises ValueError, KeyError.
    """
    if "options" in row and "choices" not in row:
        raise ValueError("it has `options` and no `choices`: these are questions of another benchmark")
    nested = nested_row(row, CyclingItem)
    if isinstance(nested.get("images"), str):
        nested["images"] = [nested["images"]]
    nested["answer"] = _letter(nested["answer"], nested["choices"])
    return msgspec.convert(nested, CyclingItem)


def _letter(answer: Any, choices: Any) -> str:
    """The letter of an answer that is a letter or a choice's text. Raises ValueError if it is neither, or both."""
    if (
        not isinstance(answer, str)
        or not isinstance(choices, list | tuple)
        or not all(isinstance(c, str) for c in choices)
    ):
        raise ValueError("`answer` is a text and `choices` a list of texts")
    letters = LETTERS[: len(choices)]
    readings = {letter for letter, text in zip(letters, choices, strict=False) if normalise(text) == normalise(answer)}
    if len(answer.strip()) == 1 and answer.strip() in letters:
        readings.add(answer.strip())
    if len(readings) != 1:
        what = "means two of" if readings else "is neither a letter nor a text of"
        raise ValueError(f"the answer {answer!r} {what} the choices {list(choices)}")
    return readings.pop()


def read_items(path: Path) -> list[CyclingItem]:
    """All items of a JSON Lines file, or of a folder: of its items.jsonl, else of all its *.jsonl by name.

    An item without `id` is named after its task and place. Raises RecordError on a bad line, a repeated id, no item.
    """
    items, line_of = list[CyclingItem](), dict[str, str]()
    for file in item_files(path):
        for number, row in iterate_rows(file):
            place = f"{file}, line {number}"
            item = _item_at(place, {"id": f"{row.get('task')}-{len(items)}", **row})
            if item.id in line_of:
                raise RecordError(f"{place}: repeats the id {item.id!r} of {line_of[item.id]}")
            line_of[item.id] = place
            items.append(item)
    if not items:
        raise RecordError(f"{path} holds no item; build some with: {BUILD_COMMAND}")
    return items


def item_files(path: Path) -> Iterator[Path]:
    """The files that hold the items. Raises RecordError when there is none."""
    files = [path]
    if path.is_dir():
        files = [path / ITEMS] if (path / ITEMS).is_file() else sorted(path.glob("*.jsonl"))
    if not files or not path.exists():
        raise RecordError(f"no items at {path}; build some with: {BUILD_COMMAND}")
    yield from files


def _item_at(place: str, row: dict[str, Any]) -> CyclingItem:
    try:
        return item_from_row(row)
    except KeyError as error:
        raise RecordError(f"{place}: the field {error} is missing") from error
    except ValueError as error:  # msgspec.ValidationError is one
        raise RecordError(f"{place}: {error}") from error
