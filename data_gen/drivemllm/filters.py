"""DriveMLLM's filters: keep an object of an image, or drop it with a reason. Every reason is counted.

Boxes alone are looked at: what hides behind a tree or a wall, which nobody annotated, passes. The paper picked 880 of
the images that passed by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_gen import filters
from data_gen.filters import PAPER_AREA_PX, areas_px, classes_of, overlap_shares
from data_gen.geometry import Bools
from data_gen.views import View

PAPER_WIDTH_PX = 1600

# In the order in which they are checked.
GEOMETRIC_REASONS = (
    "other_category", "centre_outside", "too_small", "overlapped", "class_repeated", "image_has_repeated_class",
)  # fmt: skip


@dataclass(frozen=True)
class FrontThresholds:
    """What an object must pass. Widths and areas are in pixels of a 1600x900 image and scale with the image.

    max_overlap: shared area over the smaller of two boxes; above it the farther object goes, the nearer hides nothing
    of itself. ambiguity: `image` drops all objects of an image in which a class repeats, `objects` only those of that
    class. class_level: a class is the nuScenes `category`, or its `group`: the first two parts, as in human.pedestrian.
    """

    min_pedestrian_width_px: float = 40.0
    min_vehicle_area_px: float = 2000.0
    max_overlap: float = 0.3
    ambiguity: str = "image"
    class_level: str = "category"

    def __post_init__(self) -> None:
        if not (self.min_pedestrian_width_px >= 0 and self.min_vehicle_area_px >= 0 and 0 <= self.max_overlap <= 1):
            raise ValueError(
                f"a least width and area of 0 or more and an overlap of 0 to 1 are needed, got "
                f"{self.min_pedestrian_width_px}, {self.min_vehicle_area_px}, {self.max_overlap}"
            )


# The paper's own values. It says that no image has two objects of one type, not how, nor which of two overlapping goes.
PAPER_VALUES = {"min_pedestrian_width_px": 40.0, "min_vehicle_area_px": 2000.0, "max_overlap": 0.3}


def geometric_reasons(view: View, thresholds: FrontThresholds) -> NDArray[np.str_]:
    """Per object of a view why it is dropped by what the tables tell, or an empty string.

    Each check sees only what the checks before it have kept.
    """
    reasons = np.full(len(view), "", dtype=f"<U{max(map(len, GEOMETRIC_REASONS))}")
    for reason, dropped in _CHECKS.items():
        kept = reasons == ""
        reasons[kept] = np.where(dropped(view.subset(kept), thresholds), reason, "")
    if thresholds.ambiguity == "image" and "class_repeated" in reasons:
        reasons[reasons == ""] = "image_has_repeated_class"
    return reasons


def other_category(view: View, thresholds: FrontThresholds) -> Bools:
    """Neither a vehicle nor a pedestrian."""
    return filters.other_category(view, filters.Thresholds())


def centre_outside(view: View, thresholds: FrontThresholds) -> Bools:
    """The projected 3D centre is not ahead of the camera, not in the image, or on the edge of the 2D box."""
    return filters.centre_outside(view, filters.Thresholds())


def too_small(view: View, thresholds: FrontThresholds) -> Bools:
    """A pedestrian's box is too narrow, a vehicle's too small in area."""
    width, height = view.size_px
    widths_px = view.boxes_xyxy_px[:, 2] - view.boxes_xyxy_px[:, 0]
    narrow = widths_px < thresholds.min_pedestrian_width_px * width / PAPER_WIDTH_PX
    small = areas_px(view.boxes_xyxy_px) < thresholds.min_vehicle_area_px * width * height / PAPER_AREA_PX
    dropped: Bools = np.where(np.char.startswith(view.categories, "human."), narrow, small)
    return dropped


def overlapped(view: View, thresholds: FrontThresholds) -> Bools:
    """The box of some nearer object and its own share too much of the smaller of the two."""
    distances_m = np.linalg.norm(view.centres_m, axis=1)
    nearer = distances_m[:, None] > distances_m
    dropped: Bools = np.logical_or.reduce(
        (overlap_shares(view.boxes_xyxy_px) > thresholds.max_overlap) & nearer, axis=1
    )
    return dropped


def class_repeated(view: View, thresholds: FrontThresholds) -> Bools:
    """Another object of the image has the same class."""
    _, inverse, counts = np.unique(
        classes_of(view.categories, thresholds.class_level), return_inverse=True, return_counts=True
    )
    repeated: Bools = counts[inverse] > 1
    return repeated


_CHECKS: dict[str, Callable[[View, FrontThresholds], Bools]] = {
    "other_category": other_category,
    "centre_outside": centre_outside,
    "too_small": too_small,
    "overlapped": overlapped,
    "class_repeated": class_repeated,
}
