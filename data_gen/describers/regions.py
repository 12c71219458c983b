"""The pixels that show an object, and those around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats
from rewards.boxes import Box

Pixels = NDArray[np.uint8]
Part = tuple[float, float, float, float]  # left, top, right, bottom in sides of the box; below 0 and above 1 is outside

SAMPLES = 48  # pixels taken along each side of a part
BESIDE: tuple[Part, ...] = ((-0.35, 0.1, -0.05, 1.0), (1.05, 0.1, 1.35, 1.0))
BELOW: Part = (0.0, 1.0, 1.0, 1.3)
_BITS = 4  # colours are compared after rounding to 16 steps a channel
_STEPS = 1 << _BITS


@dataclass(frozen=True)
class Region:
    """N pixels of a part of a box, how far across the box each is (0 left, 1 right), and the share of the part seen."""

    pixels_rgb: Pixels  # (N, 3)
    across: Floats  # (N,)
    seen: float


def region_of(image_rgb: Pixels, box_xyxy_px: Box, part: Part, nearer: Iterable[Box] = ()) -> Region:
    """A part of a box without the pixels in `nearer` boxes, at most SAMPLES in each direction."""
    rows, columns = _samples(image_rgb, box_xyxy_px, part)
    seen = np.ones((len(rows), len(columns)), dtype=bool)
    for x1, y1, x2, y2 in nearer:
        seen &= ~np.outer((rows >= y1) & (rows <= y2), (columns >= x1) & (columns <= x2))
    x1, _, x2, _ = box_xyxy_px
    across = np.broadcast_to((columns - x1) / max(x2 - x1, 1e-6), seen.shape)
    share = float(seen.mean()) if seen.size else 0.0
    return Region(image_rgb[np.ix_(rows, columns)][seen], across[seen], share)


def surroundings_of(image_rgb: Pixels, box_xyxy_px: Box, parts: Iterable[Part]) -> Pixels:
    """The pixels (N, 3) of the parts around a box that lie in the image; N is 0 for a box that fills it."""
    return np.concatenate([region_of(image_rgb, box_xyxy_px, part).pixels_rgb for part in parts])


def in_front(box_xyxy_px: Box, others: Iterable[Box]) -> list[Box]:
    """Boxes that end lower in the image: on level ground these objects are nearer, and hide what they overlap."""
    return [other for other in others if other[3] > box_xyxy_px[3] + 1]


def likely_own(pixels_rgb: Pixels, surroundings_rgb: Pixels) -> Floats:
    """For each pixel (N, 3) how likely, 0 to 1, it belongs to the object: its colour is rarer around it than in it."""
    if not len(surroundings_rgb):
        return np.ones(len(pixels_rgb))
    inside, outside = _frequencies(pixels_rgb), _frequencies(surroundings_rgb)
    own: Floats = np.clip(1 - outside / np.maximum(inside, 1e-9), 0, 1)[_colour_bins(pixels_rgb)]
    return own


def _samples(image_rgb: Pixels, box_xyxy_px: Box, part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the pixels to take."""
    x1, y1, x2, y2 = box_xyxy_px
    left, top, right, bottom = part
    height, width = image_rgb.shape[:2]
    rows = _steps(y1 + top * (y2 - y1), y1 + bottom * (y2 - y1), height)
    return rows, _steps(x1 + left * (x2 - x1), x1 + right * (x2 - x1), width)


def _steps(start: float, end: float, size: int) -> NDArray[np.int64]:
    first, last = max(0, int(start)), min(size, int(np.ceil(end)))
    return np.arange(first, last, max(1, (last - first) // SAMPLES))


def _frequencies(pixels_rgb: Pixels) -> Floats:
    """Share of the pixels in each colour bin, neighbouring bins added: noise moves a pixel by one."""
    counts = np.bincount(_colour_bins(pixels_rgb), minlength=_STEPS**3).reshape((_STEPS,) * 3) / len(pixels_rgb)
    wide = np.pad(counts, 1)
    inner = slice(1, -1)
    near = [wide[:-2, inner, inner], wide[2:, inner, inner], wide[inner, :-2, inner], wide[inner, 2:, inner]]
    frequencies: Floats = counts + sum(near) + wide[inner, inner, :-2] + wide[inner, inner, 2:]
    return frequencies.reshape(-1)


def _colour_bins(pixels_rgb: Pixels) -> NDArray[np.int64]:
    steps = pixels_rgb.astype(np.int64) >> (8 - _BITS)
    return (steps[:, 0] << 2 * _BITS) | (steps[:, 1] << _BITS) | steps[:, 2]
