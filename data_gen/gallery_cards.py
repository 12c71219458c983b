"""What a card of the gallery shows: the units that are drawn, their pictures, and the marks and facts of objects."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_gen.compass import direction_of
from data_gen.draw import heading_arrow
from data_gen.floors import Unit, units_of
from data_gen.pages import Picture
from data_gen.records import Pixels2, Pixels4, Question, QuestionObject
from data_gen.scene_records import DroppedObject, DroppedObjects, SceneImage, SceneObject
from rewards.boxes import area
from rewards.grading import TASKS

_HEAD_SHARE = 55  # an arrow's head is the image's width over this


@dataclass(frozen=True)
class Arrow:
    """A heading in pixels of the image: from `start` to `end`, with the corners of its head."""

    start: Pixels2
    end: Pixels2
    head: tuple[Pixels2, Pixels2, Pixels2]


@dataclass(frozen=True)
class Mark:
    """One object on a picture. kind: `first`, `second` (named in the question), `kept` or `dropped`."""

    kind: str
    box_xyxy_px: Pixels4
    label: str
    detail: str
    reason: str = ""
    arrow: Arrow | None = None


@dataclass(frozen=True)
class Fact:
    """What the records say about an object that a question names."""

    kind: str
    name: str
    text: str


@dataclass(frozen=True)
class Card:
    """One unit on its picture; without questions an image of which no object was kept."""

    questions: tuple[Question, ...]
    picture: Picture
    marks: tuple[Mark, ...]
    facts: tuple[Fact, ...]
    image: str
    camera: str
    scene: str
    split: str

    @property
    def task(self) -> str:
        """The task of its questions; empty where there are none."""
        return self.questions[0].task if self.questions else ""


def choose_units(questions: Sequence[Question], per_task: int, seed: int) -> list[Unit]:
    """Up to `per_task` units of every task, drawn at random so that tasks share images and images differ in a task."""
    rng = random.Random(seed)
    images = list(dict.fromkeys(question.image for question in questions))
    place_of = {image: place for place, image in enumerate(rng.sample(images, len(images)))}
    units: list[Unit] = list(units_of(questions).values())
    rng.shuffle(units)
    chosen = []
    for task in TASKS:
        used: Counter[str] = Counter()
        ranked: list[tuple[int, int, Unit]] = []
        for unit in units:
            if unit[0].task == task:
                ranked.append((used[unit[0].image], place_of[unit[0].image], unit))
                used[unit[0].image] += 1
        chosen += [unit for *_, unit in sorted(ranked, key=lambda item: item[:2])[:per_task]]
    return chosen


def unit_card(unit: Unit, picture: Picture, scene: SceneImage | None, drops: DroppedObjects | None) -> Card:
    """The card of a unit. scene, drops: what is recorded of its image, or None; then only named objects are drawn."""
    question = unit[0]
    named = [_recorded(item, scene) for item in question.objects]
    matrix = scene.extra.get("intrinsics") if scene else None
    kinds = ("first", "second")[: len(named)]
    objects = [*zip(kinds, named, strict=True)]
    objects += [("kept", item) for item in (scene.objects if scene else ()) if item not in named]
    marks = [*_dropped_marks(drops), *(_kept_mark(kind, item, matrix, question.width) for kind, item in objects)]
    facts = [Fact(kind, item.description, _facts_of(item)) for kind, item in zip(kinds, named, strict=True)]
    places = (question.image, question.camera, question.scene, question.split)
    return Card(tuple(unit), picture, _in_drawing_order(marks), tuple(facts), *places)


def empty_card(drops: DroppedObjects, picture: Picture) -> Card:
    """The card of an image of which nothing was kept."""
    places = (drops.file_name, drops.camera, drops.scene, drops.split)
    return Card((), picture, _in_drawing_order(_dropped_marks(drops)), (), *places)


def in_words(reason: str) -> str:
    """A reason code as words."""
    return reason.replace("_", " ")


def _recorded(item: QuestionObject, scene: SceneImage | None) -> SceneObject:
    """The scene's record of a named object; made from the question where there is none."""
    for known in scene.objects if scene else ():
        if known.box_xyxy_px == item.bbox and known.description == item.name:
            return known
    heading = "" if item.yaw_rad is None else direction_of(item.yaw_rad)
    distance_m = math.hypot(*item.xyz_m)
    depth_m = item.xyz_m[2]
    return SceneObject(
        item.name, item.bbox, item.pixel, item.xyz_m, depth_m, distance_m, heading, item.yaw_rad, item.category
    )


def _kept_mark(kind: str, item: SceneObject, intrinsics: Any, width_px: int) -> Mark:
    ends = heading_arrow(item.pixel_xy, item.xyz_m, item.yaw_rad, intrinsics, width_px)
    arrow = Arrow(*ends, _arrow_head(*ends, width_px / _HEAD_SHARE)) if ends else None
    return Mark(kind, item.box_xyxy_px, item.description, f"{item.description}: {_facts_of(item)}", arrow=arrow)


def _dropped_marks(drops: DroppedObjects | None) -> list[Mark]:
    return [
        Mark("dropped", item.box_xyxy_px, in_words(item.reason), _detail(item), item.reason)
        for item in (drops.objects if drops else ())
    ]


def _in_drawing_order(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Dropped objects below the others, and large ones below small ones, which stay within reach of the pointer."""
    return tuple(sorted(marks, key=lambda mark: (mark.kind != "dropped", -area(mark.box_xyxy_px))))


def _detail(item: DroppedObject) -> str:
    points = "" if item.lidar_points is None else f", {item.lidar_points} lidar points"
    return f"dropped, {in_words(item.reason)}: {item.category}, {item.xyz_m[2]:.1f} m ahead{points}"


def _facts_of(item: SceneObject) -> str:
    facts = [
        item.category,
        f"depth {item.depth_m:.2f} m",
        f"distance {item.distance_m:.2f} m",
        f"centre ({item.pixel_xy[0]:.0f}, {item.pixel_xy[1]:.0f})",
    ]
    if item.heading:
        degrees = "" if item.yaw_rad is None else f" ({math.degrees(item.yaw_rad) % 360:.0f}°)"
        facts.append(f"faces {item.heading}{degrees}")
    if item.lidar_points is not None:
        facts.append(f"{item.lidar_points} lidar points")
    return ", ".join(filter(None, facts))


def _arrow_head(start: Pixels2, end: Pixels2, size_px: float) -> tuple[Pixels2, Pixels2, Pixels2]:
    """The corners of an arrow's head, the tip first; at most as long as two thirds of the arrow."""
    size_px = min(size_px, 2 / 3 * math.dist(start, end))
    angle_rad = math.atan2(end[1] - start[1], end[0] - start[0])
    wings = [
        (end[0] - size_px * math.cos(angle_rad + turn), end[1] - size_px * math.sin(angle_rad + turn))
        for turn in (0.45, -0.45)
    ]
    return end, wings[0], wings[1]
