"""What a build shares with the public metadata, in numbers, and in what the shared objects differ.

Images are matched by the stem of their file name or, where the public ones were renamed, by the positions of their
objects; objects of a matched image by their position in camera metres.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import DroppedObject, DroppedObjects, SceneImage, SceneObject, read_drops, read_scenes
from rewards.boxes import iou

SAME_OBJECT_M = 1.0  # in a matched image: other conventions may move an object, but not to its neighbour's place
SAME_PLACE_M = 0.05  # over all images: two objects at one place to the centimetre are one


@dataclass(frozen=True)
class Pair:
    """A public object with ours at the same place: kept, dropped, or None where there is none."""

    public: SceneObject
    ours: SceneObject | DroppedObject | None


def compare(images: Sequence[JudgedImage], public: Sequence[SceneImage]) -> dict[str, Any]:
    """Counts of shared images and objects, why ours lacks what is public, and how shared objects differ.

    images: all images of the build, whatever was kept of them.
    """
    matched_by, partner_of = match_images(images, public)
    pairs = [pair for place, scene in enumerate(public) for pair in _pairs(scene, images, partner_of.get(place))]
    shared = [pair for pair in pairs if isinstance(pair.ours, SceneObject)]
    kept = [image.scene for image in images if image.scene.objects]
    in_both = sum(bool(images[ours].scene.objects) for ours in partner_of.values())
    ours_objects, public_objects = sum(len(s.objects) for s in kept), sum(len(s.objects) for s in public)
    return {
        "images_matched_by": matched_by,
        "images": _sides(len(public), len(kept), in_both) | {"public_without_match": len(public) - len(partner_of)},
        "objects": _sides(public_objects, ours_objects, len(shared)),
        "only_public_because": dict(
            Counter(_why_not(pair) for pair in pairs if not isinstance(pair.ours, SceneObject))
        ),
        "shared_objects": _differences(shared),
    }


def read_build(folder: Path) -> list[JudgedImage]:
    """The images of a finished build, from its `scenes.jsonl` and `dropped.jsonl`."""
    scenes = {scene.file_name: scene for scene in read_scenes(folder / "scenes.jsonl")}
    drops = {item.file_name: item for item in read_drops(folder / "dropped.jsonl")}
    return [
        JudgedImage(scenes.get(name, SceneImage(name, ())), drops.get(name, DroppedObjects(name, ())))
        for name in sorted(scenes.keys() | drops.keys())
    ]


def match_images(images: Sequence[JudgedImage], public: Sequence[SceneImage]) -> tuple[str, dict[int, int]]:
    """How images were matched, and place in `public` -> place in `images`."""
    place_of = {PurePosixPath(image.scene.file_name).stem: place for place, image in enumerate(images)}
    stems = [PurePosixPath(scene.file_name).stem for scene in public]
    named = {place: place_of[stem] for place, stem in enumerate(stems) if stem in place_of}
    if named:
        return "file name", named
    return "positions of objects", _match_by_position(images, public)


def _match_by_position(images: Sequence[JudgedImage], public: Sequence[SceneImage]) -> dict[int, int]:
    """Each public image with the image of ours that has the most of its objects, if any."""
    at: dict[tuple[int, ...], list[tuple[tuple[float, float, float], int]]] = defaultdict(list)
    for place, image in enumerate(images):
        for xyz_m in image.centres_m:
            at[_cell(xyz_m)].append((xyz_m, place))
    partner_of = {}
    for place, scene in enumerate(public):
        votes = Counter(found for item in scene.objects for found in _near(at, item.xyz_m))
        if votes:
            partner_of[place] = votes.most_common(1)[0][0]
    return partner_of


def _cell(xyz_m: Sequence[float], shift: Sequence[int] = (0, 0, 0)) -> tuple[int, ...]:
    """A cube of the grid in which two positions of one place lie in the same or in neighbouring cubes."""
    return tuple(math.floor(value / SAME_PLACE_M) + step for value, step in zip(xyz_m, shift, strict=True))


def _near(
    at: dict[tuple[int, ...], list[tuple[tuple[float, float, float], int]]], xyz_m: Sequence[float]
) -> Iterator[int]:
    for shift in np.ndindex(3, 3, 3):
        for other_m, place in at.get(_cell(xyz_m, [step - 1 for step in shift]), ()):
            if math.dist(xyz_m, other_m) <= SAME_PLACE_M:
                yield place


def _pairs(scene: SceneImage, images: Sequence[JudgedImage], partner: int | None) -> Iterator[Pair]:
    """Every object of a public image with the nearest free one of ours."""
    free: list[SceneObject | DroppedObject] = []
    if partner is not None:
        free = [*images[partner].scene.objects, *images[partner].drops.objects]
    for item in scene.objects:
        nearest = min(free, key=lambda other: math.dist(item.xyz_m, other.xyz_m), default=None)
        if nearest is None or math.dist(item.xyz_m, nearest.xyz_m) > SAME_OBJECT_M:
            yield Pair(item, None)
            continue
        free.remove(nearest)
        yield Pair(item, nearest)


def _why_not(pair: Pair) -> str:
    """Why a public object is not among ours."""
    return pair.ours.reason if isinstance(pair.ours, DroppedObject) else "no_object_there"


def _sides(public: int, ours: int, shared: int) -> dict[str, int]:
    return {
        "public": public, "ours": ours, "shared": shared, "only_public": public - shared, "only_ours": ours - shared,
    }  # fmt: skip


def _differences(pairs: Sequence[Pair]) -> dict[str, Any]:
    """How often words and headings agree, and by how much boxes, points and distances differ."""
    couples = [(pair.public, pair.ours) for pair in pairs if isinstance(pair.ours, SceneObject)]
    return {
        "same_description": sum(a.description.lower() == b.description.lower() for a, b in couples),
        "same_heading": sum(a.heading == b.heading for a, b in couples),
        "box_iou": _spread(iou(a.box_xyxy_px, b.box_xyxy_px) for a, b in couples),
        "pixel_px": _spread(math.dist(a.pixel_xy, b.pixel_xy) for a, b in couples),
        "position_m": _spread(math.dist(a.xyz_m, b.xyz_m) for a, b in couples),
        "depth_m": _spread(abs(a.depth_m - b.depth_m) for a, b in couples),
        "distance_m": _spread(abs(a.distance_m - b.distance_m) for a, b in couples),
    }


def _spread(values: Iterable[float]) -> dict[str, float] | None:
    listed = list(values)
    if not listed:
        return None
    return {
        "min": round(min(listed), 4),
        "median": round(float(np.median(listed)), 4),
        "max": round(max(listed), 4),
    }
