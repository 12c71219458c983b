"""Boxes and coordinate frames: overlap measures, and the only place that converts coordinates.

Boxes are `(x1, y1, x2, y2)` with x to the right and y down; points are `(x, y)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

Box = tuple[float, float, float, float]
Size = tuple[int, int]

# Qwen's image processors refuse longer ones.
LARGEST_ASPECT = 200
FRAME_KINDS = ("original", "resized", "thousand")


def area(box: Box) -> float:
    """Area of a box; 0 when a side is empty or reversed."""
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def intersection(a: Box, b: Box) -> float:
    """Area shared by two boxes."""
    return area((max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])))


def sort_corners(box: Sequence[float]) -> Box:
    """The same box with its corners in the order top left, bottom right."""
    x1, y1, x2, y2 = box
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def iou(a: Box, b: Box) -> float:
    """Intersection over union in 0..1; reversed corners are sorted, a pair without any area gives 0."""
    a, b = sort_corners(a), sort_corners(b)
    shared = intersection(a, b)
    union = area(a) + area(b) - shared
    return shared / union if union > 0 else 0.0


def giou(a: Box, b: Box) -> float:
    """Generalised IoU in -1..1 (Rezatofighi et al. 2019): IoU minus the empty share of the enclosing box."""
    a, b = sort_corners(a), sort_corners(b)
    shared = intersection(a, b)
    union = area(a) + area(b) - shared
    hull = area((min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])))
    if hull <= 0:
        return -1.0
    return (shared / union if union > 0 else 0.0) - (hull - union) / hull


def centerness(point_xy: Sequence[float], box: Box) -> float:
    """FCOS centerness of a point in a box (Tian et al. 2019): 1 in the middle, 0 on the edge and outside.

    sqrt(min(l, r) / max(l, r) * min(t, b) / max(t, b)) with the distances to the four sides.
    """
    left, right = point_xy[0] - box[0], box[2] - point_xy[0]
    top, bottom = point_xy[1] - box[1], box[3] - point_xy[1]
    if min(left, right, top, bottom) < 0 or max(left, right) <= 0 or max(top, bottom) <= 0:
        return 0.0
    return math.sqrt(min(left, right) / max(left, right) * min(top, bottom) / max(top, bottom))


def clip_box(box: Box, size: Size) -> Box:
    """The part of a box inside an image of `size` (width, height)."""
    width, height = size
    return (
        min(max(box[0], 0), width),
        min(max(box[1], 0), height),
        min(max(box[2], 0), width),
        min(max(box[3], 0), height),
    )


def smart_resize(size: Size, factor: int, min_pixels: int, max_pixels: int) -> Size:
    """The size to which Qwen's image processors bring an image: sides multiples of `factor`, area in the budget.

    Same arithmetic as `transformers.models.qwen2_vl.image_processing_qwen2_vl.smart_resize`, (width, height) here.
    Raises ValueError for an aspect ratio above 200, as that one does.
    """
    width, height = size
    if max(width, height) > LARGEST_ASPECT * min(width, height):
        raise ValueError(f"aspect ratio of a {width}x{height} image is above {LARGEST_ASPECT}; crop it first")
    new_width, new_height = round(width / factor) * factor, round(height / factor) * factor
    if new_width * new_height > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
    elif new_width * new_height < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        new_width = math.ceil(width * grow / factor) * factor
        new_height = math.ceil(height * grow / factor) * factor
    return new_width, new_height


@dataclass(frozen=True)
class CoordinateFrame:
    """The coordinates a model is shown and writes, and their relation to the pixels of the original image.

    kind: `original` (pixels of the file), `resized` (pixels of the image after the model's own resizing, as
    Qwen2.5-VL writes them) or `thousand` (0..1000 on both axes, as Qwen2-VL and Qwen3-VL write them).
    The pixel budget and `factor` (patch side times merge size) only matter for `resized`.
    """

    kind: str = "original"
    min_pixels: int = 56 * 56
    max_pixels: int = 1280 * 28 * 28
    factor: int = 28

    def __post_init__(self) -> None:
        if self.kind not in FRAME_KINDS:
            raise ValueError(f"unknown frame {self.kind!r}; known: {', '.join(FRAME_KINDS)}")

    def size(self, image_size: Size) -> Size:
        """Width and height of this frame for an image of `image_size` (width, height) pixels."""
        if self.kind == "original":
            return image_size
        if self.kind == "thousand":
            return 1000, 1000
        return smart_resize(image_size, self.factor, self.min_pixels, self.max_pixels)

    def to_model(self, values: Sequence[float], image_size: Size) -> tuple[float, ...]:
        """x, y, x, y, ... in original pixels -> the same in this frame."""
        return _scale(values, image_size, self.size(image_size))

    def to_original(self, values: Sequence[float], image_size: Size) -> tuple[float, ...]:
        """x, y, x, y, ... in this frame -> the same in original pixels."""
        return _scale(values, self.size(image_size), image_size)

    def box_to_original(self, box: Box, image_size: Size) -> Box:
        """A box of this frame in original pixels."""
        x1, y1, x2, y2 = self.to_original(box, image_size)
        return x1, y1, x2, y2

    def as_dict(self) -> dict[str, Any]:
        """The fields of `frame.json`."""
        return asdict(self)


def _scale(values: Sequence[float], from_size: Size, to_size: Size) -> tuple[float, ...]:
    ratios = (to_size[0] / from_size[0], to_size[1] / from_size[1])
    return tuple(value * ratios[index % 2] for index, value in enumerate(values))
