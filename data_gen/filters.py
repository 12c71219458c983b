"""Keep an object of an image, or drop it with a reason. Every reason is counted.

The order is cheap first: tables only, then lidar, then pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Bools, Floats
from data_gen.views import View

AMBIGUITY_RULES = ("image", "objects")
CLASS_LEVELS = ("category", "group")
PAPER_AREA_PX = 1600 * 900
LONGEST_REASON = 32
ASKED_CATEGORIES = ("vehicle.", "human.pedestrian.")

Check = Callable[[View], Bools]

# In the order in which they are checked.
GEOMETRIC_REASONS = (
    "other_category", "centre_outside", "too_small", "occluded", "class_repeated", "image_has_repeated_class",
)  # fmt: skip
DESCRIPTION_REASONS = (
    "unreadable_image", "no_description", "colour_unclear", "vague_description", "duplicate_description",
)  # fmt: skip
REASONS = (*GEOMETRIC_REASONS, "few_lidar_points", *DESCRIPTION_REASONS)


@dataclass(frozen=True)
class Thresholds:
    """What an object must pass. Areas are in pixels of a 1600x900 image and scale with the image.

    ambiguity: `image` drops all objects of an image in which a class repeats, `objects` only those of that class.
    class_level: a class is the nuScenes `category`, or its `group`: the first two parts, as in human.pedestrian.
    """

    min_area_px: float = 2000.0
    max_overlap: float = 0.8
    min_lidar_points: int = 5
    ambiguity: str = "image"
    class_level: str = "category"

    def __post_init__(self) -> None:
        if not (0 <= self.min_area_px < math.inf and 0 <= self.max_overlap <= 1 and self.min_lidar_points >= 0):
            raise ValueError(
                f"a least area and number of points of 0 or more and an overlap of 0 to 1 are needed, got "
                f"{self.min_area_px}, {self.min_lidar_points}, {self.max_overlap}"
            )


# The paper's own values; the others it does not give.
PAPER_VALUES = {"max_overlap": 0.8, "ambiguity": "image"}


def geometric_reasons(view: View, thresholds: Thresholds) -> NDArray[np.str_]:
    """Per object of a view why it is dropped by what the tables alone tell, or an empty string."""
    checks: dict[str, Check] = {
        "other_category": other_category,
        "centre_outside": centre_outside,
        "too_small": partial(too_small, min_area_px=thresholds.min_area_px),
        "occluded": partial(behind_nearer, max_overlap=thresholds.max_overlap),
        "class_repeated": partial(class_repeated, class_level=thresholds.class_level),
    }
    return apply_checks(view, checks, thresholds.ambiguity)


def apply_checks(view: View, checks: Mapping[str, Check], ambiguity: str) -> NDArray[np.str_]:
    """Per object the first check that drops it, or an empty string; each sees only what those before it have kept.

    ambiguity: with `image` a repeated class takes all other objects along, as `image_has_repeated_class`.
    """
    reasons = np.full(len(view), "", dtype=f"<U{LONGEST_REASON}")
    for reason, dropped in checks.items():
        kept = reasons == ""
        reasons[kept] = np.where(dropped(view.subset(kept)), reason, "")
    if ambiguity == "image" and "class_repeated" in reasons:
        reasons[reasons == ""] = "image_has_repeated_class"
    return reasons


def other_category(view: View) -> Bools:
    """Neither a vehicle nor a pedestrian."""
    asked: Bools = np.logical_or.reduce([np.char.startswith(view.categories, prefix) for prefix in ASKED_CATEGORIES])
    return ~asked


def centre_outside(view: View) -> Bools:
    """The centre, in whole pixels, is not ahead of the camera, not in the image, or on the edge of the 2D box."""
    pixels = np.nan_to_num(view.pixels, nan=-1.0).round()
    low, high = view.boxes_xyxy_px[:, :2], view.boxes_xyxy_px[:, 2:]
    inside = (pixels > low) & (pixels < high) & (pixels >= 0) & (pixels < view.size_px)
    outside: Bools = ~np.logical_and.reduce(inside, axis=1)
    return outside


def too_small(view: View, min_area_px: float) -> Bools:
    """The area of the 2D box is below the minimum, which is in pixels of a 1600x900 image."""
    width, height = view.size_px
    return areas_px(view.boxes_xyxy_px) < min_area_px * width * height / PAPER_AREA_PX


def behind_nearer(view: View, max_overlap: float) -> Bools:
    """Some nearer object's box and its own share more than this of the smaller of the two."""
    overlaps = overlap_shares(view.boxes_xyxy_px)
    distances_m = np.linalg.norm(view.centres_m, axis=1)
    farther = distances_m[:, None] > distances_m
    hidden: Bools = np.logical_or.reduce((overlaps > max_overlap) & farther, axis=1)
    return hidden


def class_repeated(view: View, class_level: str) -> Bools:
    """Another object of the image has the same class."""
    classes = classes_of(view.categories, class_level)
    _, inverse, counts = np.unique(classes, return_inverse=True, return_counts=True)
    repeated: Bools = counts[inverse] > 1
    return repeated


def areas_px(boxes_xyxy_px: Floats) -> Floats:
    """Areas (N,) of boxes (N, 4)."""
    return np.prod(boxes_xyxy_px[:, 2:] - boxes_xyxy_px[:, :2], axis=1)


def overlap_shares(boxes_xyxy_px: Floats) -> Floats:
    """(N, N) shared area over the smaller area of the two: |A and B| / min(|A|, |B|)."""
    low = np.maximum(boxes_xyxy_px[:, None, :2], boxes_xyxy_px[:, :2])
    high = np.minimum(boxes_xyxy_px[:, None, 2:], boxes_xyxy_px[:, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=-1)
    areas = areas_px(boxes_xyxy_px)
    return shared / np.maximum(np.minimum(areas[:, None], areas), 1e-9)


def classes_of(categories: NDArray[np.str_], class_level: str) -> list[str]:
    """The class of each category at a level."""
    if class_level == "category":
        return [str(category) for category in categories]
    return [".".join(str(category).split(".")[:2]) for category in categories]
