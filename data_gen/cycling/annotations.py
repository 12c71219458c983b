"""What items are made from: photographs with their sign boxes, other boxes, lanes, depth order and frame order.

One JSON object a line:

image     the file, relative to the image folder
signs     [{"box": [x1, y1, x2, y2], "label": "no cycling", "depth_order": 2}], every traffic sign in the photograph
others    [{"box": ..., "label": "poster", "depth_order": 1}], things that are no sign: marked beside one, or compared
lanes     [{"polygon": [[x, y], ...], "use": "bicycle", "cycling_allowed": true}]; use is free text, `bicycle` is the
          cyclist's lane; `cycling_allowed` is left out where no sign says so
ride      a name, and `frame` a number: photographs of a ride in the order in which they were taken

Pixels of the upright image. depth_order: 1 is nearest; things of one photograph with the same number, or none, are not
asked about. All but `image` may be left out; unknown fields are ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec

from data_gen.images import upright_size
from data_gen.records import RecordError, read_records
from rewards.boxes import Box, Size

CYCLE_LANE = "bicycle"
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Thing:
    """A boxed thing in a photograph; of a sign, `label` is what it says."""

    box: Box
    label: str
    depth_order: int | None = None

    def __post_init__(self) -> None:
        x1, y1, x2, y2 = self.box
        if not (all(map(math.isfinite, self.box)) and x1 < x2 and y1 < y2):
            raise ValueError(f"the box {list(self.box)} is no [x1, y1, x2, y2] with x1 < x2 and y1 < y2")
        if not self.label.strip():
            raise ValueError("a box has an empty label")


@dataclass(frozen=True)
class Lane:
    """A lane as a polygon in pixels, with what it is for and whether a sign lets one cycle on it."""

    polygon: Points
    use: str = ""
    cycling_allowed: bool | None = None

    def __post_init__(self) -> None:
        if len(self.polygon) < 3 or not all(math.isfinite(value) for point in self.polygon for value in point):
            raise ValueError(f"a lane's polygon needs three finite points, got {list(self.polygon)}")


@dataclass(frozen=True)
class Photo:
    """The annotations of one photograph."""

    image: str
    signs: tuple[Thing, ...] = ()
    others: tuple[Thing, ...] = ()
    lanes: tuple[Lane, ...] = ()
    ride: str | None = None
    frame: float | None = None

    def __post_init__(self) -> None:
        if not self.image or Path(self.image).is_absolute() or ".." in Path(self.image).parts:
            raise ValueError(f"`image` is a name inside the image folder, got {self.image!r}")
        if (self.ride is None) != (self.frame is None):
            raise ValueError("`ride` and `frame` go together")

    @property
    def things(self) -> tuple[Thing, ...]:
        """Signs, then the others."""
        return (*self.signs, *self.others)


def read_annotations(path: Path) -> list[Photo]:
    """All photographs of an annotation file. Raises RecordError on a bad line, a repeated image, or none."""
    photos: dict[str, Photo] = {}
    for number, photo in read_records(path, lambda row: msgspec.convert(row, Photo)):
        if photo.image in photos:
            raise RecordError(f"{path}, line {number}: repeats the image {photo.image!r}")
        photos[photo.image] = photo
    if not photos:
        raise RecordError(f"{path} holds no photograph; what a line holds: python data_gen/build_cyclingvqa.py --help")
    return list(photos.values())


def sizes_of(photos: list[Photo], images: Path) -> dict[str, Size]:
    """(width, height) of every photograph, from file headers.

    Raises FileNotFoundError naming the first missing one, RecordError for one that cannot be read, or whose boxes or
    lanes reach outside it.
    """
    missing = [photo.image for photo in photos if not (images / photo.image).is_file()]
    if missing:
        raise FileNotFoundError(f"image {missing[0]} is missing under {images} ({len(missing)} of {len(photos)})")
    sizes = {photo.image: upright_size(images / photo.image) for photo in photos}
    for photo in photos:
        _check_inside(photo, sizes[photo.image])
    return sizes


def _check_inside(photo: Photo, size: Size) -> None:
    width, height = size
    points = [corner for thing in photo.things for corner in (thing.box[:2], thing.box[2:])]
    points += [point for lane in photo.lanes for point in lane.polygon]
    for x, y in points:
        if not (0 <= x <= width and 0 <= y <= height):
            raise RecordError(
                f"{photo.image}: the annotation at ({x:g}, {y:g}) lies outside the {width}x{height} image"
            )
