"""The colour names of pixels, through a table of hues, chromas and lightnesses in CIELAB.

A pixel is `plain` (grey to white: which of the two depends on the light it stands in), `dark` (black, and whatever has
no colour to see), or one of the colours proper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats

# (name, hue from, hue to in degrees, lightness from, to, chroma from, to); the first row that fits a pixel names it.
TABLE: tuple[tuple[str, float, float, float, float, float, float], ...] = (
    ("pink", 0, 35, 62, 101, 0, 60),
    ("pink", 0, 15, 42, 101, 0, 42),
    ("red", 0, 48, 0, 101, 0, 200),
    ("brown", 48, 85, 0, 55, 0, 45),
    ("orange", 48, 76, 0, 101, 45, 200),
    ("beige", 48, 110, 0, 101, 0, 30),
    ("orange", 48, 76, 0, 101, 0, 200),
    ("yellow", 76, 108, 0, 101, 0, 200),
    ("green", 108, 200, 0, 101, 0, 200),
    ("blue", 200, 303, 0, 101, 0, 200),
    ("purple", 303, 335, 0, 101, 0, 200),
    ("pink", 335, 360, 42, 101, 0, 200),
    ("purple", 335, 350, 0, 42, 0, 200),
    ("red", 350, 360, 0, 42, 0, 200),
)
PAINTS = tuple(dict.fromkeys(row[0] for row in TABLE))
PLAIN, DARK = "plain", "dark"
NAMES = (PLAIN, DARK, *PAINTS)
MIN_CHROMA = 10.0  # below, a pixel has no colour: street cameras wash colours out
MIN_DARK_CHROMA = 14.0  # the same for dark pixels, whose colour is mostly noise
DARK_LIGHTNESS = 30.0
# Window glass shows the sky, darkly: a blue that counts as dark where there is glass.
GLASS_HUES, GLASS_CHROMA, GLASS_LIGHTNESS = (200.0, 310.0), 26.0, 45.0

WHITE_LIGHTNESS = 68.0
# In shade white is as dark as grey is in the sun; it is still lighter than the road and the walls around it.
SHADED_WHITE_LIGHTNESS, WHITE_TO_SURROUNDINGS = 42.0, 1.25
GREY_LIGHTNESS, GREY_TO_SURROUNDINGS = 62.0, 1.05

_BITS = 5  # colours are looked up after rounding to 32 steps a channel
_WHITE_XYZ = np.array([0.95047, 1.0, 1.08883])  # D65
_XYZ_OF_RGB = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


@dataclass(frozen=True)
class Named:
    """N pixels with their places in NAMES, lightnesses (CIE L*, 0 to 100) and chromas."""

    places: NDArray[np.int64]
    lightness: Floats
    chroma: Floats

    def shares(self, weights: Floats) -> dict[str, float]:
        """Share of the weights (N,) that each name has."""
        counts = np.bincount(self.places, weights, minlength=len(NAMES)) / max(float(weights.sum()), 1e-9)
        return dict(zip(NAMES, counts.tolist(), strict=True))


def name_pixels(pixels_rgb: NDArray[np.uint8], glass: bool) -> Named:
    """Names of pixels (N, 3). With `glass`, dark dull blue is taken for a window."""
    steps = pixels_rgb.astype(np.int64) >> (8 - _BITS)
    index = (steps[:, 0] << 2 * _BITS) | (steps[:, 1] << _BITS) | steps[:, 2]
    places, lightness, chroma = _looked_up(glass)
    return Named(places[index], lightness[index], chroma[index])


def plain_name(lightness: float, surroundings_lightness: float) -> str:
    """White or grey for a plain colour among surroundings; empty where it could be either."""
    ratio = luminance(lightness) / max(luminance(surroundings_lightness), 0.005)
    if lightness >= WHITE_LIGHTNESS or (lightness >= SHADED_WHITE_LIGHTNESS and ratio >= WHITE_TO_SURROUNDINGS):
        return "white"
    return "grey" if lightness < GREY_LIGHTNESS and ratio < GREY_TO_SURROUNDINGS else ""


def luminance(lightness: float) -> float:
    """Relative luminance, 0 to 1, of a lightness (CIE 15; the cube root's linear start is left out)."""
    return ((lightness + 16) / 116) ** 3


def rgb_to_lab(rgb: Floats) -> Floats:
    """CIELAB (..., 3) under D65 of sRGB values (..., 3) in 0..255 (IEC 61966-2-1, CIE 15)."""
    share = rgb / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    ratio = linear @ _XYZ_OF_RGB.T / _WHITE_XYZ
    root = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


@cache
def _looked_up(glass: bool) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Place in NAMES, lightness and chroma of each of the rounded sRGB values."""
    levels = (np.arange(1 << _BITS) + 0.5) * (1 << (8 - _BITS))
    grid_rgb = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)
    lightness, a, b = rgb_to_lab(grid_rgb).T
    chroma, hue = np.hypot(a, b), np.degrees(np.arctan2(b, a)) % 360
    is_glass = (hue >= GLASS_HUES[0]) & (hue < GLASS_HUES[1]) & (chroma < GLASS_CHROMA) & (lightness < GLASS_LIGHTNESS)
    is_dark = (chroma < MIN_DARK_CHROMA) & (lightness < DARK_LIGHTNESS) | (is_glass if glass else False)
    places = np.where(is_dark, NAMES.index(DARK), np.where(chroma < MIN_CHROMA, NAMES.index(PLAIN), -1))
    for name, hue_from, hue_to, light_from, light_to, chroma_from, chroma_to in TABLE:
        fits = (hue >= hue_from) & (hue < hue_to) & (chroma >= chroma_from) & (chroma < chroma_to)
        fits &= (lightness >= light_from) & (lightness < light_to) & (places < 0)
        places[fits] = NAMES.index(name)
    return places, lightness, chroma
