"""DriveMLLM's filters: keep an object of an image, or drop it with a reason. Every reason is counted.

Boxes alone are looked at: what hides behind a tree or a wall, which nobody annotated, passes. The paper picked 880 of
the images that passed by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from data_gen import filters
from data_gen.filters import Check, apply_checks, behind_nearer, centre_outside, class_repeated, other_category
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
    """Per object of a view why it is dropped by what the tables tell, or an empty string."""
    checks: dict[str, Check] = {
        "other_category": other_category,
        "centre_outside": centre_outside,
        "too_small": partial(too_small, thresholds=thresholds),
        "overlapped": partial(behind_nearer, max_overlap=thresholds.max_overlap),
        "class_repeated": partial(class_repeated, class_level=thresholds.class_level),
    }
    return apply_checks(view, checks, thresholds.ambiguity)


def too_small(view: View, thresholds: FrontThresholds) -> Bools:
    """A pedestrian's box is too narrow, a vehicle's too small in area."""
    widths_px = view.boxes_xyxy_px[:, 2] - view.boxes_xyxy_px[:, 0]
    narrow = widths_px < thresholds.min_pedestrian_width_px * view.size_px[0] / PAPER_WIDTH_PX
    small = filters.too_small(view, thresholds.min_vehicle_area_px)
    dropped: Bools = np.where(np.char.startswith(view.categories, "human."), narrow, small)
    return dropped
