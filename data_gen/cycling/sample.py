"""A small set of drawn rides with their annotations, for trying the chain and for tests."""

from __future__ import annotations

import random
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

from data_gen.cycling.annotations import Lane, Photo, Thing
from data_gen.cycling.sample_pictures import SIGN_FACES, Standing, Strip, box_of, draw_street, polygon_of
from data_gen.files import write_whole
from data_gen.records import write_rows
from rewards.boxes import iou

RIDES = 4
STEP_M = 3.5  # between the two pictures of a ride
SMALLEST_PX = 24
ALLOWING, FORBIDDING = ("lane for cyclists only", "path shared by pedestrians and cyclists"), ("no cycling",)
CAR_COLOURS = ("#b3261e", "#1f4e9e", "#e8e8e4", "#2b2d30", "#2f7d4f")
BOARD_COLOURS = ("#7a4fa3", "#c06a1d", "#2c7f86")


def write_sample(folder: Path, seed: int) -> tuple[Path, Path]:
    """Draw the photographs; returns the annotation file and the folder of the photographs."""
    photos = []
    for number in range(RIDES):
        rng = random.Random(f"{seed}-ride-{number}")
        rule = (ALLOWING if number % 2 else FORBIDDING)[rng.randrange(2) if number % 2 else 0]
        strips = _strips(rng, rule)
        things = _things(rng, strips, rule)
        for frame in range(2):
            boxed = _boxed(things, frame * STEP_M)
            # A sign that is cut off or hidden is not drawn: every sign that can be seen is annotated.
            seen = tuple(thing for thing in things if thing.kind != "sign" or thing in boxed)
            name = f"ride{number}-{frame}.png"
            buffer = BytesIO()
            draw_street(strips, seen, frame * STEP_M).save(buffer, "PNG")
            write_whole(folder / "photos" / name, buffer.getvalue())
            signs = tuple(box for thing, box in boxed.items() if thing.kind == "sign")
            others = tuple(box for thing, box in boxed.items() if thing.kind != "sign")
            photos.append(Photo(name, signs, others, _lanes(strips, rule), f"ride{number}", frame))
    write_rows(folder / "annotations.jsonl", map(asdict, photos))
    return folder / "annotations.jsonl", folder / "photos"


def _strips(rng: random.Random, rule: str) -> tuple[Strip, ...]:
    """Lanes from one side to the other, the one that the rule is about outermost; either way round.

    No cycling: footpath, cycle lane, road. Cyclists only: cycle lane, road, footpath. Shared: path, road.
    """
    foot, cycle, road = ("pedestrians", rng.uniform(1.6, 2.2)), ("bicycle", rng.uniform(1.6, 2.2)), ("cars", 5.0)
    order = {"no cycling": [foot, cycle, road], "lane for cyclists only": [cycle, road, foot]}.get(rule, [cycle, road])
    if rng.random() < 0.5:
        order.reverse()
    ridden = next(index for index, (use, _) in enumerate(order) if use == "bicycle")
    left_m = -sum(width for _, width in order[:ridden]) - order[ridden][1] / 2 + rng.uniform(-0.6, 0.6)
    strips = []
    for use, width in order:
        strips.append(Strip(left_m, left_m + width, use))
        left_m += width + 0.15
    return tuple(strips)


def _things(rng: random.Random, strips: tuple[Strip, ...], rule: str) -> tuple[Standing, ...]:
    """Signs at both sides, two cars on the road, two boards beyond the lanes; apart from each other in depth."""
    left_m, right_m = strips[0].left_m - 0.5, strips[-1].right_m + 0.5
    road = next(strip for strip in strips if strip.use == "cars")
    others = rng.sample([label for label in SIGN_FACES if label not in (*ALLOWING, *FORBIDDING)], 2)
    ride_side_m = left_m if strips[0].use == _ruled(rule) else right_m
    far_side_m = right_m if ride_side_m == left_m else left_m
    outwards_m = 2.2 if ride_side_m == right_m else -2.2
    signs = [
        Standing("sign", rule, ride_side_m, rng.uniform(9.5, 11), 2.1, 0.75, 0.75),
        Standing("sign", others[0], far_side_m, rng.uniform(12, 13.5), 2.1, 0.8, 0.8),
        Standing("sign", others[1], ride_side_m + outwards_m, rng.uniform(14.5, 16), 2.3, 0.8, 0.8),
    ]
    quarter_m = (road.right_m - road.left_m) / 4
    cars = [
        Standing("car", colour, road.left_m + side * quarter_m, z_m, 0.0, 1.85, 1.5)
        for colour, side, z_m in zip(rng.sample(CAR_COLOURS, 2), (1, 3), (17.5, rng.uniform(26, 32)), strict=True)
    ]
    boards = [
        Standing("board", colour, x_m, z_m, 1.2, 1.6, 1.1)
        for colour, x_m, z_m in zip(
            rng.sample(BOARD_COLOURS, 2), (left_m - 3.4, right_m + 3.4), (12.5, 20), strict=True
        )
    ]
    return (*signs, *cars, *boards)


def _boxed(things: tuple[Standing, ...], camera_z_m: float) -> dict[Standing, Thing]:
    """What is wholly in the picture, large enough and behind nothing that is, nearest first."""
    boxed: dict[Standing, Thing] = {}
    for order, thing in enumerate(sorted(things, key=lambda thing: thing.z_m), 1):
        box = box_of(thing, camera_z_m)
        if box and box[2] - box[0] >= SMALLEST_PX and not any(iou(box, nearer.box) for nearer in boxed.values()):
            boxed[thing] = Thing(box, thing.look if thing.kind == "sign" else thing.kind, order)
    return boxed


def _ruled(rule: str) -> str:
    """Which lane the rule is about."""
    return "bicycle" if rule in ALLOWING else "pedestrians"


def _lanes(strips: tuple[Strip, ...], rule: str) -> tuple[Lane, ...]:
    """The lanes with what the sign says of the one it stands at."""
    allowed = {_ruled(rule): rule in ALLOWING}
    return tuple(Lane(polygon_of(strip), strip.use, allowed.get(strip.use)) for strip in strips)
