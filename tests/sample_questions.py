"""Questions for tests: built from random objects on flat ground, and a few written by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from data_gen.compass import direction_of
from data_gen.questions import own_units, questions_of
from data_gen.records import Question, QuestionObject
from data_gen.scene_records import SceneImage, SceneObject

KINDS = {  # description -> half length and height in metres
    "white car": (2.2, 1.6), "black truck": (3.4, 3.0), "adult wearing a blue shirt": (0.3, 1.75), "red bus": (5, 3.3),
}  # fmt: skip


def projected(name: str, x_m: float, z_m: float, yaw_rad: float) -> SceneObject:
    """An object on flat ground before a level camera 1.5 m high with the optics of nuScenes."""
    half_m, height_m = KINDS[name]
    u, focal = 800 + 1266 * x_m / z_m, 1266
    top, bottom = 491 + focal * (1.5 - height_m) / z_m, 491 + focal * 1.5 / max(1.0, z_m - half_m)
    box = (
        max(0, u - focal * half_m / z_m),
        max(0, min(top, 489)),
        min(1600, u + focal * half_m / z_m),
        min(900, bottom),
    )
    v = 491 + focal * (1.5 - height_m / 2) / z_m
    distance_m = math.hypot(x_m, z_m)
    return SceneObject(name, box, (u, v), (x_m, 0.5, z_m), z_m, distance_m, direction_of(yaw_rad), yaw_rad)


def scenes(count: int = 120) -> list[SceneImage]:
    rng = random.Random(7)
    images = []
    for index in range(count):
        objects = []
        for name in rng.sample(sorted(KINDS), 1 + index % 3):
            z_m = rng.uniform(6, 50)
            objects.append(projected(name, rng.uniform(-0.55, 0.55) * z_m, z_m, rng.uniform(-math.pi, math.pi)))
        images.append(SceneImage(f"{index}.jpg", tuple(objects)))
    return images


def questions(count: int = 120) -> list[Question]:
    return [question for unit in own_units(scenes(count)) for question in questions_of(unit)]


CAR = QuestionObject("white car", (100, 300, 300, 500), (200, 400), (-4, 1, 12))
TRUCK = QuestionObject("red truck", (900, 300, 1200, 600), (1050, 450), (2, 1, 9))
CLOSER = Question(
    "distance-0-0-1-0", "distance-0-0-1", 0, "distance", "a.jpg", 1600, 900, "Which is closer?",
    ("The white car", "The red truck", "Almost the same"), "The red truck", (CAR, TRUCK),
)  # fmt: skip
IN_FRONT = replace(
    CLOSER, task="front_behind", options=("Yes", "No", "Almost the same in terms of front-back position"), answer="Yes"
)
FACING = replace(CLOSER, task="yaw", options=("North", "East", "South", "West"), answer="East", objects=(CAR,))
CENTRE = Question("pixel-0-0", None, 0, "pixel", "a.jpg", 1600, 900, "Where?", (), (200, 400), (CAR,))
