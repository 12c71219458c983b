"""Visible objects -> units of questions, one function per task.

A unit is what the metric scores: one question (pixel, depth) or a mirrored pair (the other four). Two ways to choose
the units: `published_units`, the reproducible construction from the public metadata, and `own_units`, everything that
a user's own scenes allow. Rules and thresholds: SURDS.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from data_gen.command_line import UsageError
from data_gen.compass import CARDINALS, DIAGONALS, opposite
from data_gen.depth_ranges import DepthRange, fair_ranges, matched_ranges, official_ranges
from data_gen.prompts import question_text
from data_gen.records import Question, QuestionObject
from data_gen.scene_records import SceneImage, SceneObject
from rewards.grading import MIRRORED_TASKS

DISTANCE_TIE_M = 1.0
PIXEL_TIE_PX = 100.0  # of a 1600 pixels wide image
DEPTH_TIE_M = 0.5
SAME = "Almost the same"
SAME_DEPTH = "Almost the same in terms of front-back position"


RangeMaker = Callable[[SceneObject, random.Random], tuple[DepthRange, DepthRange, DepthRange]]
ENOUGH_DEPTHS = 50  # of one class, to draw matched depth ranges from


@dataclass(frozen=True)
class Unit:
    """One unit: its task, name, image, the indices of its objects, options, and one answer per question."""

    task: str
    name: str
    scene: SceneImage
    object_indices: tuple[int, ...]
    options: tuple[str, ...]
    answers: tuple[str | tuple[int, int], ...]


def option_name(description: str) -> str:
    """How an object is named in an option."""
    return f"the {description}".capitalize()


def distance_unit(scene: SceneImage, image: int, first: int, second: int) -> Unit:
    """Which is closer (then: farther); a difference of at most 1 m is a tie."""
    a, b = scene.objects[first], scene.objects[second]
    names = option_name(a.description), option_name(b.description)
    nearer = 0 if a.distance_m < b.distance_m else 1
    tie = abs(a.distance_m - b.distance_m) <= DISTANCE_TIE_M
    answers = (SAME, SAME) if tie else (names[nearer], names[1 - nearer])
    return Unit("distance", f"distance-{image}-{first}-{second}", scene, (first, second), (*names, SAME), answers)


def left_right_unit(scene: SceneImage, image: int, first: int, second: int) -> Unit:
    """Which is further left (then: right); less than 100 px (of 1600) apart is a tie."""
    a, b = scene.objects[first], scene.objects[second]
    names = option_name(a.description), option_name(b.description)
    lefter = 0 if a.pixel_xy[0] < b.pixel_xy[0] else 1
    tie = abs(a.pixel_xy[0] - b.pixel_xy[0]) < PIXEL_TIE_PX * scene.width / 1600
    answers = (SAME, SAME) if tie else (names[lefter], names[1 - lefter])
    return Unit("left_right", f"left-right-{image}-{first}-{second}", scene, (first, second), (*names, SAME), answers)


def front_behind_unit(scene: SceneImage, image: int, first: int, second: int) -> Unit:
    """Is the first in front of (then: behind) the second; the farther one is in front, below 0.5 m is a tie."""
    gap_m = scene.objects[first].depth_m - scene.objects[second].depth_m
    answers = ("Yes", "No") if gap_m > 0 else ("No", "Yes")
    if abs(gap_m) < DEPTH_TIE_M:
        answers = (SAME_DEPTH, SAME_DEPTH)
    name = f"front-behind-{image}-{first}-{second}"
    return Unit("front_behind", name, scene, (first, second), ("Yes", "No", SAME_DEPTH), answers)


def yaw_unit(scene: SceneImage, image: int, cardinals: Sequence[str], diagonals: Sequence[str]) -> Unit:
    """Which way the object faces, the camera facing North (then: South); the options are the set with the truth."""
    heading = scene.objects[0].heading
    options = tuple(cardinals if heading in cardinals else diagonals)
    return Unit("yaw", f"yaw-{image}", scene, (0,), options, (heading, opposite(heading)))


def pixel_unit(scene: SceneImage, image: int) -> Unit:
    """Where the object is: the projected centre in whole pixels."""
    x, y = scene.objects[0].pixel_xy
    return Unit("pixel", f"pixel-{image}", scene, (0,), (), ((round(x), round(y)),))


def depth_unit(scene: SceneImage, image: int, ranges: Sequence[str], truth: str) -> Unit:
    """How far ahead the object is: one of three ranges."""
    return Unit("depth", f"depth-{image}", scene, (0,), tuple(ranges), (truth,))


_PAIR_UNITS: dict[str, Callable[[SceneImage, int, int, int], Unit]] = {
    "distance": distance_unit,
    "left_right": left_right_unit,
    "front_behind": front_behind_unit,
}


def pair_units(scenes: Sequence[SceneImage]) -> list[tuple[Unit, Unit, Unit]]:
    """For every two objects of an image, in file order, the three units that compare them."""
    return [
        tuple(build(scene, image, first, second) for build in _PAIR_UNITS.values())  # type: ignore[misc]
        for image, scene in enumerate(scenes)
        for first, second in itertools.combinations(range(len(scene.objects)), 2)
    ]


def single_units(scene: SceneImage, image: int, rng: random.Random, make_ranges: RangeMaker) -> tuple[Unit, Unit, Unit]:
    """The yaw, pixel and depth units of an image with one object; draws in the published order."""
    diagonals = rng.sample(DIAGONALS, k=4)
    cardinals = rng.sample(CARDINALS, k=4)
    ranges = make_ranges(scene.objects[0], rng)
    shown = rng.sample(ranges, k=3)
    return (
        yaw_unit(scene, image, cardinals, diagonals),
        pixel_unit(scene, image),
        depth_unit(scene, image, [str(item) for item in shown], str(ranges[0])),
    )


def range_maker(scenes: Sequence[SceneImage], depth_ranges: str) -> RangeMaker:
    """What makes the three ranges of an object; `matched` ones need the depths of the others of its class.

    Objects of a class that has too few, or none far enough apart, take them from all classes.
    """
    if depth_ranges != "matched":
        make = {"official": official_ranges, "fair": fair_ranges}[depth_ranges]
        return lambda item, rng: make(item.depth_m, rng)
    depths_m: dict[str, list[float]] = defaultdict(list)
    for item in (scene.objects[0] for scene in scenes if len(scene.objects) == 1):
        depths_m[item.category].append(item.depth_m)
    everywhere = [depth_m for listed in depths_m.values() for depth_m in listed]

    def matched(item: SceneObject, rng: random.Random) -> tuple[DepthRange, DepthRange, DepthRange]:
        alike = depths_m[item.category]
        ranges = matched_ranges(item.depth_m, alike, rng) if len(alike) >= ENOUGH_DEPTHS else None
        ranges = ranges or matched_ranges(item.depth_m, everywhere, rng)
        if ranges is None:
            raise UsageError(
                f"the depths of {len(everywhere)} objects give no two ranges beside that of {item.depth_m} m; "
                "matched ranges need more images: use --depth-ranges fair"
            )
        return ranges

    return matched


def published_units(scenes: Sequence[SceneImage], seed: int = 42, depth_ranges: str = "official") -> list[Unit]:
    """The units of the published benchmark: all pairs, and as many single-object images drawn by one generator.

    With the default arguments they equal the published ones; other depth ranges make other draws.

    Raises ValueError with both numbers when there are fewer single-object images than pairs.
    """
    rng = random.Random(seed)
    pairs = pair_units(scenes)
    alone = [image for image, scene in enumerate(scenes) if len(scene.objects) == 1]
    if len(alone) < len(pairs):
        raise ValueError(f"{len(pairs)} pairs need as many single-object images, there are {len(alone)}")
    drawn = sorted(rng.sample(alone, len(pairs)))
    make_ranges = range_maker(scenes, depth_ranges)
    return _by_task([single_units(scenes[image], image, rng, make_ranges) for image in drawn], pairs)


def own_units(
    scenes: Sequence[SceneImage],
    seed: int = 42,
    depth_ranges: str = "official",
    balance: bool = False,
    most: int | None = None,
) -> list[Unit]:
    """All units that scenes allow. `balance` cuts single images and pairs to the smaller number of the two.

    most: at most so many units of every task; the three that compare keep the same pairs, of as many images as can be.

    Every image has its own generator, so that a unit does not depend on which other images are there (but for matched
    depth ranges, which are made of the others' depths).
    """
    pairs = pair_units(scenes)
    alone = [image for image, scene in enumerate(scenes) if len(scene.objects) == 1]
    if balance:
        count = min(len(pairs), len(alone))
        rng = random.Random(seed)
        pairs = [pairs[index] for index in sorted(rng.sample(range(len(pairs)), count))]
        alone = sorted(rng.sample(alone, count))
    if most is not None:
        rng = random.Random(f"{seed}-{most}")
        alone = sorted(rng.sample(alone, min(most, len(alone))))
        pairs = _spread(pairs, most, rng)
    make_ranges = range_maker(scenes, depth_ranges)
    singles = [
        single_units(scenes[image], image, random.Random(f"{seed}-{scenes[image].file_name}"), make_ranges)
        for image in alone
    ]
    return _by_task(singles, pairs)


def _spread(pairs: Sequence[tuple[Unit, Unit, Unit]], most: int, rng: random.Random) -> list[tuple[Unit, Unit, Unit]]:
    """At most so many pairs, drawn: one of every image before the second of any."""
    drawn = rng.sample(range(len(pairs)), len(pairs))
    before: Counter[str] = Counter()
    turn_of: dict[int, int] = {}
    for index in drawn:
        image = pairs[index][0].scene.file_name
        turn_of[index] = before[image]
        before[image] += 1
    return [pairs[index] for index in sorted(sorted(drawn, key=turn_of.__getitem__)[:most])]


def _by_task(singles: Sequence[tuple[Unit, ...]], pairs: Sequence[tuple[Unit, ...]]) -> list[Unit]:
    """Task by task in the order of the benchmark."""
    return [unit for group in (singles, pairs) for column in zip(*group, strict=True) for unit in column]


def questions_of(
    unit: Unit, split: str = "", source: str = "real", depth_ranges: str = "official"
) -> Iterator[Question]:
    """The one or two question records of a unit."""
    objects = tuple(_question_object(unit.scene.objects[index]) for index in unit.object_indices)
    for variant, answer in enumerate(unit.answers):
        yield Question(
            id=f"{unit.name}-{variant}",
            pair_id=unit.name if unit.task in MIRRORED_TASKS else None,
            variant=variant,
            task=unit.task,
            image=unit.scene.file_name,
            width=unit.scene.width,
            height=unit.scene.height,
            question=question_text(unit.task, [item.name for item in objects], variant),
            options=unit.options,
            answer=answer,
            objects=objects,
            scene=unit.scene.scene,
            camera=unit.scene.camera,
            split=split or unit.scene.split,
            source=source,
            depth_ranges=depth_ranges,
        )


def _question_object(item: SceneObject) -> QuestionObject:
    return QuestionObject(
        name=item.description,
        bbox=item.box_xyxy_px,
        pixel=item.pixel_xy,
        xyz_m=item.xyz_m,
        category=item.category,
        yaw_rad=item.yaw_rad,
    )
