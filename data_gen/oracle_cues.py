"""What a picture shows of an object's place: its side, its size, how low it stands, which of its faces are seen.

Cues are rough levels on purpose, from the box and the heading alone, so that they say no more than a look at the image
would. Levels run from 0 (speaks for near) to 2 (speaks for far). A level camera is assumed, with its horizon near the
middle and a focal length as in nuScenes; where a camera differs, a cue disagrees with the truth and is not used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from data_gen.compass import DIRECTIONS, opposite
from data_gen.records import Question, QuestionObject

FOCAL_LENGTHS_PER_WIDTH = 0.79  # 1266 px of 1600, the cameras of nuScenes except the one to the back
TYPICAL_HEIGHT_M = {
    "car": 1.6, "van": 2.0, "truck": 3.0, "bus": 3.3, "trailer": 3.7, "vehicle": 3.0, "ambulance": 2.6,
    "bicycle": 1.6, "motorcycle": 1.5, "child": 1.3,
}  # fmt: skip
PERSON_HEIGHT_M = 1.75
LEVEL_BOUNDS_M = (10.0, 22.0)
# The lower edge as a share of the image height that a point on the ground at these depths has, camera 1.5 m high.
GROUND_BOUNDS = (0.755, 0.64)
PREPOSITIONS = (" wearing ", " with ", " in ", " on ", " carrying ", " holding ", " riding ", " pushing ")


def level_of(depth_m: float) -> int:
    """0 near, 1 middle, 2 far."""
    return sum(depth_m >= bound for bound in LEVEL_BOUNDS_M)


def head_noun(name: str) -> str:
    """What the object is: "car" of "white car", "adult" of "adult wearing a blue shirt"."""
    start = min((place for word in PREPOSITIONS if (place := name.find(word)) > 0), default=len(name))
    return name[:start].split()[-1]


def short_names(objects: Sequence[QuestionObject]) -> list[str]:
    """The head of each name; of two objects of one kind the "left car" and the "right car"."""
    heads = [head_noun(item.name) for item in objects]
    if len(set(heads)) == len(heads):
        return heads
    leftmost = min(objects, key=lambda item: item.pixel[0])
    return [f"{'left' if item is leftmost else 'right'} {head_noun(item.name)}" for item in objects]


def third_of(x_px: float, width: int) -> int:
    """0, 1 or 2: the left, middle or right third of the image."""
    return min(2, max(0, int(3 * x_px / width)))


def ground_level(item: QuestionObject, height: int) -> int:
    """How low the object reaches in the image: 0 low, 2 near the horizon."""
    return sum(item.bbox[3] / height < bound for bound in GROUND_BOUNDS)


def apparent_depth_m(item: QuestionObject, width: int) -> float:
    """The depth at which an object of this kind has the height of its box; rough."""
    height_px = max(1.0, item.bbox[3] - item.bbox[1])
    typical_m = TYPICAL_HEIGHT_M.get(head_noun(item.name), PERSON_HEIGHT_M)
    return FOCAL_LENGTHS_PER_WIDTH * width * typical_m / height_px


def depth_cues(question: Question) -> tuple[int, list[str]]:
    """The level of the object's depth and which cues (`ground`, `size`) speak for it.

    Near the bound of a level both levels are true of a depth; the one with more cues is taken.
    """
    item = question.objects[0]
    seen = {
        "ground": ground_level(item, question.height),
        "size": level_of(apparent_depth_m(item, question.width)),
    }
    depth_m = item.xyz_m[2]
    levels = [level_of(depth_m * factor) for factor in (1.0, 0.8, 1.25)]
    best = max(levels, key=list(seen.values()).count)
    return best, [name for name, level in seen.items() if level == best]


def nearer_cues(near: QuestionObject, far: QuestionObject, question: Question) -> list[str]:
    """What shows that one object is nearer: `lower` in the image, `larger` for its kind, else a place further `inward`.

    Without any of them it can only be said: `ahead` along the viewing axis, or as it is (an empty name).
    """
    cues = []
    if near.bbox[3] - far.bbox[3] > 0.02 * question.height:
        cues.append("lower")
    if apparent_depth_m(near, question.width) < 0.8 * apparent_depth_m(far, question.width):
        cues.append("larger")
    equally_ahead = abs(far.xyz_m[2] - near.xyz_m[2]) < 2
    if not cues and question.task == "distance" and equally_ahead and abs(far.xyz_m[0]) - abs(near.xyz_m[0]) > 1:
        return ["inward"]
    return cues or _told(question)


def equal_cues(a: QuestionObject, b: QuestionObject, question: Question) -> list[str]:
    """What shows that two objects are about equally far: equally `lower` or equally `larger` for their kind."""
    cues = []
    if abs(a.bbox[3] - b.bbox[3]) < 0.04 * question.height:
        cues.append("lower")
    ratio = apparent_depth_m(a, question.width) / apparent_depth_m(b, question.width)
    if 0.8 < ratio < 1.25:
        cues.append("larger")
    return cues or _told(question)


def _told(question: Question) -> list[str]:
    return ["ahead" if question.task == "front_behind" else ""]


def heading_sector(question: Question) -> int:
    """Sector of the heading in the picture, 0 = away from the camera, clockwise, whatever way the camera faces."""
    answer = str(question.answer)
    return DIRECTIONS.index(answer if question.variant == 0 else opposite(answer))


def seen_sector(question: Question) -> int:
    """Sector of the heading against the line of sight, which decides the sides that are seen: 0 = the back.

    In the middle of the image it is the sector of the heading itself.
    """
    item, sector = question.objects[0], heading_sector(question)
    if third_of(item.pixel[0], question.width) == 1:
        return sector
    yaw_rad = item.yaw_rad if item.yaw_rad is not None else sector * math.pi / 4
    bearing_rad = math.atan2(item.xyz_m[0], item.xyz_m[2])
    return round((yaw_rad - bearing_rad) / (math.pi / 4)) % 8


def spot_in_box(item: QuestionObject, point_xy_px: Sequence[float]) -> int:
    """Where a point lies in the object's box: 0 in the middle, 1 left, 2 right, 3 above, 4 below it."""
    x1, y1, x2, y2 = item.bbox
    across = (point_xy_px[0] - x1) / max(1.0, x2 - x1) - 0.5
    down = (point_xy_px[1] - y1) / max(1.0, y2 - y1) - 0.5
    if max(abs(across), abs(down)) < 0.06:
        return 0
    if abs(across) >= abs(down):
        return 1 if across < 0 else 2
    return 3 if down < 0 else 4
