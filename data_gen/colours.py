"""The colour of an image region in words, through a table of hues, chromas and lightnesses in CIELAB."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats

MIN_CHROMA = 10.0  # below, a pixel is black, grey or white: street cameras wash colours out
MIN_PAINT_SHARE = 0.2  # windows, wheels, shadow and skin take the rest
MIN_PAINT_TO_PLAIN = 0.5  # less than this beside black, grey or white is what glass reflects or what lies behind
MIN_SECOND_TO_FIRST = 0.75
MIN_PLAIN_SHARE = 0.4

# (name, hue from, hue to in degrees, lightness from, to, chroma from, to); the first row that fits a pixel names it.
TABLE: tuple[tuple[str, float, float, float, float, float, float], ...] = (
    ("black", 0, 360, 0, 28, 0, MIN_CHROMA),
    ("grey", 0, 360, 28, 72, 0, MIN_CHROMA),
    ("white", 0, 360, 72, 101, 0, MIN_CHROMA),
    ("pink", 0, 35, 62, 101, 0, 60),
    ("red", 0, 48, 0, 101, 0, 200),
    ("brown", 48, 85, 0, 55, 0, 45),
    ("orange", 48, 76, 0, 101, 45, 200),
    ("beige", 48, 110, 0, 101, 0, 30),
    ("orange", 48, 76, 0, 101, 0, 200),
    ("yellow", 76, 108, 0, 101, 0, 200),
    ("green", 108, 200, 0, 101, 0, 200),
    ("blue", 200, 305, 0, 101, 0, 200),
    ("purple", 305, 335, 0, 101, 0, 200),
    ("pink", 335, 360, 50, 101, 0, 200),
    ("purple", 335, 350, 0, 50, 0, 200),
    ("red", 350, 360, 0, 50, 0, 200),
)
COLOURS = tuple(dict.fromkeys(row[0] for row in TABLE))
PLAIN = ("black", "grey", "white")
_BITS = 5  # colours are looked up after rounding to 32 steps a channel
_WHITE_XYZ = np.array([0.95047, 1.0, 1.08883])  # D65
_XYZ_OF_RGB = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def colour_name(pixels_rgb: NDArray[np.uint8]) -> str:
    """The colour of a region of pixels (..., 3): "red", "blue and orange", "grey", or empty when none stands out.

    Colours proper go before black, grey and white, of which every street scene has plenty.
    """
    shares = colour_shares(pixels_rgb)
    plain_name = max(PLAIN, key=lambda name: shares.get(name, 0.0))
    plain_share = shares.get(plain_name, 0.0)
    least = max(MIN_PAINT_SHARE, MIN_PAINT_TO_PLAIN * plain_share)
    paints = [name for name, share in shares.items() if name not in PLAIN and share >= least]
    if not paints:
        return plain_name if plain_share >= MIN_PLAIN_SHARE else ""
    return " and ".join(name for name in paints[:2] if shares[name] >= MIN_SECOND_TO_FIRST * shares[paints[0]])


def colour_shares(pixels_rgb: NDArray[np.uint8]) -> dict[str, float]:
    """Share of the pixels (..., 3) that each colour name has, largest first; names that do not occur are left out."""
    steps = pixels_rgb.reshape(-1, 3).astype(np.int64) >> (8 - _BITS)
    places = _places_of_colours()[(steps[:, 0] << 2 * _BITS) | (steps[:, 1] << _BITS) | steps[:, 2]]
    counts = np.bincount(places, minlength=len(COLOURS))
    order = np.argsort(-counts, kind="stable")
    return {COLOURS[place]: float(counts[place]) / len(places) for place in order if counts[place]}


def rgb_to_lab(rgb: Floats) -> Floats:
    """CIELAB (..., 3) under D65 of sRGB values (..., 3) in 0..255 (IEC 61966-2-1, CIE 15)."""
    share = rgb / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    ratio = linear @ _XYZ_OF_RGB.T / _WHITE_XYZ
    root = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


@cache
def _places_of_colours() -> NDArray[np.int64]:
    """Place in COLOURS of each of the rounded sRGB values."""
    levels = (np.arange(1 << _BITS) + 0.5) * (1 << (8 - _BITS))
    grid_rgb = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)
    lightness, a, b = rgb_to_lab(grid_rgb).T
    chroma, hue = np.hypot(a, b), np.degrees(np.arctan2(b, a)) % 360
    places = np.full(len(grid_rgb), -1)
    for name, hue_from, hue_to, light_from, light_to, chroma_from, chroma_to in TABLE:
        fits = (hue >= hue_from) & (hue < hue_to) & (chroma >= chroma_from) & (chroma < chroma_to)
        fits &= (lightness >= light_from) & (lightness < light_to) & (places < 0)
        places[fits] = COLOURS.index(name)
    return places
