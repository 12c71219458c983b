"""What describers take and give: the objects of an image, and the few words that name each.

A describer takes images with the objects to describe and yields, image by image and in order, one description per
object; what is missing, unclear or not specific comes back as a reason to drop the object. All objects of an image
that cannot be read get the problem `unreadable_image`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewards.boxes import Box


@dataclass(frozen=True)
class Asked:
    """An object to describe; its box is in pixels of the image file."""

    annotation_token: str
    category: str
    box_xyxy_px: Box


@dataclass(frozen=True)
class Description:
    """The words, or the reason why there are none; `raw` is what a model said before it was put into standard words."""

    text: str = ""
    problem: str = ""
    raw: str = ""


UNREADABLE = Description(problem="unreadable_image")


@dataclass(frozen=True)
class AskedImage:
    """The objects of one image to describe, with the file and the width and height it must have."""

    path: Path
    size_px: tuple[int, int]
    objects: tuple[Asked, ...]


Describer = Callable[[Iterable[AskedImage]], Iterator[list[Description]]]


def distinct(descriptions: Sequence[Description]) -> list[Description]:
    """The descriptions of one image without those that two objects share, be it with their words in another order."""
    counts = Counter(_words(description) for description in descriptions)
    return [
        Description(problem="duplicate_description", raw=item.raw) if item.text and counts[_words(item)] > 1 else item
        for item in descriptions
    ]


def _words(description: Description) -> tuple[str, ...]:
    return tuple(sorted(description.text.lower().split()))
