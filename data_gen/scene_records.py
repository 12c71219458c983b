"""What one image shows, as JSON Lines: the objects that questions may ask about, and those that were dropped and why.

The columns of `scenes.jsonl` are those of the public SURDS metadata and ours, so that either file loads. Pixels are
original ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from data_gen.compass import DIRECTIONS
from data_gen.records import Metres3, Pixels2, Pixels4, read_records

Image = TypeVar("Image", "SceneImage", "DroppedObjects")


@dataclass(frozen=True)
class SceneObject:
    """One visible object: 2D box and projected centre in pixels, centre in camera metres (x right, y down, z ahead)."""

    description: str
    box_xyxy_px: Pixels4
    pixel_xy: Pixels2
    xyz_m: Metres3
    depth_m: float
    distance_m: float
    heading: str
    yaw_rad: float | None = None
    category: str = ""
    annotation_token: str = ""
    lidar_points: int | None = None


@dataclass(frozen=True)
class SceneImage:
    """One image with the objects that questions may ask about; a line of `scenes.jsonl`."""

    file_name: str
    objects: tuple[SceneObject, ...]
    width: int = 1600
    height: int = 900
    camera: str = ""
    scene: str = ""
    sample_token: str = ""
    split: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DroppedObject:
    """One object that no question may ask about, and why; `lidar_points` is None where they were not counted."""

    category: str
    box_xyxy_px: Pixels4
    xyz_m: Metres3
    reason: str
    annotation_token: str = ""
    lidar_points: int | None = None


@dataclass(frozen=True)
class DroppedObjects:
    """The dropped objects of one image; a line of `dropped.jsonl`."""

    file_name: str
    objects: tuple[DroppedObject, ...]
    width: int = 1600
    height: int = 900
    camera: str = ""
    scene: str = ""
    sample_token: str = ""
    split: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


_SCENE_COLUMNS = {  # field of the public metadata -> attribute of SceneObject
    "descs": "description", "bboxes2D": "box_xyxy_px", "xy2Ds": "pixel_xy", "xyz3Ds": "xyz_m", "depths": "depth_m",
    "distances": "distance_m", "yaw_descs": "heading",
}  # fmt: skip
_OUR_COLUMNS = {
    "yaws": "yaw_rad", "categories": "category", "annotation_tokens": "annotation_token",
    "lidar_points": "lidar_points",
}  # fmt: skip
_DROP_COLUMNS = {
    "categories": "category", "bboxes2D": "box_xyxy_px", "xyz3Ds": "xyz_m", "reasons": "reason",
    "annotation_tokens": "annotation_token", "lidar_points": "lidar_points",
}  # fmt: skip
_IMAGE_FIELDS = ("width", "height", "camera", "scene", "sample_token", "split")


def scene_to_row(scene: SceneImage) -> dict[str, Any]:
    """A scene as the columns of the public metadata and ours."""
    return _columns_of(scene, _SCENE_COLUMNS | _OUR_COLUMNS)


def scene_from_row(row: dict[str, Any]) -> SceneImage:
    """A scene from a row of ours or of the public metadata. Raises ValueError, KeyError on bad columns."""
    scene = _from_columns(row, SceneImage, _SCENE_COLUMNS, _OUR_COLUMNS)
    for item in scene.objects:
        if problem := _object_problem(item):
            raise ValueError(f"{item.description!r}: {problem}")
    return scene


def _object_problem(item: SceneObject) -> str | None:
    """Why nothing can be asked about an object, or None."""
    numbers = (*item.box_xyxy_px, *item.pixel_xy, *item.xyz_m, item.depth_m, item.distance_m)
    if not all(map(math.isfinite, numbers)):
        return "a number is not finite"
    if item.depth_m <= 0:
        return f"a depth of {item.depth_m} m is not ahead of the camera"
    if item.heading not in DIRECTIONS:
        return f"unknown heading {item.heading!r}; known: {', '.join(DIRECTIONS)}"
    return None


def drops_to_row(drops: DroppedObjects) -> dict[str, Any]:
    """The dropped objects of an image as columns."""
    return _columns_of(drops, _DROP_COLUMNS)


def drops_from_row(row: dict[str, Any]) -> DroppedObjects:
    """The dropped objects of an image from columns. Raises ValueError, KeyError on bad columns."""
    return _from_columns(row, DroppedObjects, _DROP_COLUMNS, {})


def _columns_of(image: SceneImage | DroppedObjects, attributes: dict[str, str]) -> dict[str, Any]:
    """One list per attribute of an image's objects, beside the fields of the image."""
    columns = {name: [getattr(item, attribute) for item in image.objects] for name, attribute in attributes.items()}
    own = {name: getattr(image, name) for name in _IMAGE_FIELDS}
    return {"file_name": image.file_name, **columns, **own, **image.extra}


def _from_columns(row: dict[str, Any], kind: type[Image], needed: dict[str, str], known: dict[str, str]) -> Image:
    columns = {a: row[name] for name, a in needed.items()} | {a: row[name] for name, a in known.items() if name in row}
    if odd := [name for name, values in columns.items() if not isinstance(values, list)]:
        raise ValueError(f"the column of {odd[0]} must hold a list, one entry per object")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    objects = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    own = {"file_name", *_IMAGE_FIELDS}
    rest = {name: value for name, value in row.items() if name not in own | needed.keys() | known.keys()}
    return msgspec.convert({**{n: row[n] for n in own & row.keys()}, "objects": objects, "extra": rest}, kind)


def read_scenes(path: Path) -> list[SceneImage]:
    """All scenes of a JSON Lines file."""
    return [scene for _, scene in read_records(path, scene_from_row)]


def read_drops(path: Path) -> list[DroppedObjects]:
    """The dropped objects of all images of a JSON Lines file."""
    return [drops for _, drops in read_records(path, drops_from_row)]
