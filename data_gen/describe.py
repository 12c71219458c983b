"""An object -> a few words that name it in its image: "white car", "adult wearing a blue shirt".

A describer takes images with the objects to describe and yields, image by image and in order, one description per
object; what is missing, unclear or not specific comes back as a reason to drop the object.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.colours import COLOURS, colour_name
from data_gen.images import open_rgb
from data_gen.nuscenes_tables import WorldError
from rewards.boxes import Box

NOUNS = {
    "human.pedestrian.adult": "adult",
    "human.pedestrian.child": "child",
    "human.pedestrian.construction_worker": "construction worker",
    "human.pedestrian.personal_mobility": "scooter rider",
    "human.pedestrian.police_officer": "police officer",
    "human.pedestrian.stroller": "stroller",
    "human.pedestrian.wheelchair": "wheelchair user",
    "vehicle.bicycle": "bicycle",
    "vehicle.bus.bendy": "bus",
    "vehicle.bus.rigid": "bus",
    "vehicle.car": "car",
    "vehicle.construction": "construction vehicle",
    "vehicle.emergency.ambulance": "ambulance",
    "vehicle.emergency.police": "police car",
    "vehicle.motorcycle": "motorcycle",
    "vehicle.trailer": "trailer",
    "vehicle.truck": "truck",
}
# Mostly gaps: most pixels of their boxes show what is behind them.
_SEE_THROUGH = frozenset({"vehicle.bicycle", "vehicle.motorcycle", "human.pedestrian.stroller"})
_COLOUR_WORDS = frozenset({*COLOURS, "gray", "silver", "gold", "golden", "cyan", "teal", "turquoise", "maroon"})


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


@dataclass(frozen=True)
class AskedImage:
    """The objects of one image to describe, with the file and the width and height it must have."""

    path: Path
    size_px: tuple[int, int]
    objects: tuple[Asked, ...]


@dataclass(frozen=True)
class DescriberOptions:
    """Which describer, and what the describers need; each reads what concerns it.

    version_folder: the tables' folder (`truth`). workers: processes that open images (`colour`).
    """

    name: str
    version_folder: Path
    workers: int = 1


Describer = Callable[[Iterable[AskedImage]], Iterator[list[Description]]]


def make_describer(options: DescriberOptions) -> Describer:
    """The describer of a name. Raises WorldError when `truth` is asked of a world that has no descriptions.json."""
    return DESCRIBERS[options.name](options)


def wording(category: str, colour: str) -> str:
    """The standard description: vehicles by colour and type, pedestrians by what they wear."""
    noun = NOUNS.get(category, category.rsplit(".", 1)[-1].replace("_", " "))
    if not category.startswith("human.") or category in _SEE_THROUGH:
        return f"{colour} {noun}"
    article = "an" if colour[0] in "aeiou" else "a"
    return f"{noun} wearing {article} {colour} shirt"


def judged(text: str) -> Description:
    """A description with its problem if it is empty or names no colour."""
    words = " ".join(text.split())
    if not words:
        return Description(problem="no_description")
    if not _COLOUR_WORDS & set(words.lower().replace("-", " ").split()):
        return Description(problem="vague_description")
    return Description(words)


def distinct(descriptions: Sequence[Description]) -> list[Description]:
    """The descriptions of one image without those that two objects share."""
    counts = Counter(description.text.lower() for description in descriptions)
    return [
        Description(problem="duplicate_description") if item.text and counts[item.text.lower()] > 1 else item
        for item in descriptions
    ]


def truth_describer(options: DescriberOptions) -> Describer:
    """Descriptions from the folder's descriptions.json, by annotation."""
    path = options.version_folder / "descriptions.json"
    if not path.is_file():
        raise WorldError(f"--describer truth needs {path}, which only synthetic worlds have; use --describer colour")
    rows = json.loads(path.read_text(encoding="utf-8"))
    text_of = {row["sample_annotation_token"]: row["description"] for row in rows}
    return lambda images: (
        [judged(text_of.get(item.annotation_token, "")) for item in image.objects] for image in images
    )


def colour_describer(options: DescriberOptions) -> Describer:
    """Descriptions from the dominant colour of the pixels in the box."""
    return lambda images: map(_describe_by_colour, images)


def _describe_by_colour(image: AskedImage) -> list[Description]:
    image_rgb = np.asarray(open_rgb(image.path, image.size_px))
    return [_by_colour(image_rgb, item) for item in image.objects]


def _by_colour(image_rgb: NDArray[np.uint8], item: Asked) -> Description:
    if item.category in _SEE_THROUGH:
        return Description(problem="colour_unclear")
    colour = colour_name(telling_pixels(image_rgb, item))
    return judged(wording(item.category, colour)) if colour else Description(problem="colour_unclear")


def telling_pixels(image_rgb: NDArray[np.uint8], item: Asked) -> NDArray[np.uint8]:
    """The part of the box that shows paint or clothes: a vehicle's middle below the windows, a person's upper body."""
    x1, y1, x2, y2 = item.box_xyxy_px
    left, top, right, bottom = (0.35, 0.2, 0.65, 0.45) if item.category.startswith("human.") else (0.2, 0.35, 0.8, 0.75)
    columns = slice(int(x1 + left * (x2 - x1)), max(int(x1 + left * (x2 - x1)) + 1, round(x1 + right * (x2 - x1))))
    rows = slice(int(y1 + top * (y2 - y1)), max(int(y1 + top * (y2 - y1)) + 1, round(y1 + bottom * (y2 - y1))))
    return image_rgb[rows, columns]


DESCRIBERS: dict[str, Callable[[DescriberOptions], Describer]] = {"colour": colour_describer, "truth": truth_describer}
