"""Descriptions without a model: the dominant colour of the pixels that show paint or clothes.

What it cannot see: which garment a person wears (it says "shirt" of whatever covers the upper body), whether a plain
car is silver, and the colour of a bicycle that is black, white or grey. Where colours compete it gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from data_gen.describers.colours import DARK, NAMES, PAINTS, PLAIN, Named, name_pixels, plain_name
from data_gen.describers.crops import read_image
from data_gen.describers.regions import BELOW, BESIDE, Part, Pixels, in_front, likely_own, region_of, surroundings_of
from data_gen.describers.wording import is_person, wording
from data_gen.descriptions import UNREADABLE, Asked, AskedImage, Describer, Description
from data_gen.geometry import Floats
from data_gen.in_order import map_in_processes
from rewards.boxes import Box

# Where paint or clothes are: a car's body below its windows, nearly all of a truck, the chest, a bicycle's frame.
CAR_BODY: Part = (0.15, 0.35, 0.85, 0.82)
HIGH_BODY: Part = (0.15, 0.2, 0.85, 0.85)
CHEST: Part = (0.12, 0.2, 0.88, 0.47)
FRAME: Part = (0.05, 0.45, 0.95, 0.92)
# Mostly gaps: most pixels of their boxes show what is behind them.
SEE_THROUGH = frozenset({"vehicle.bicycle", "vehicle.motorcycle", "human.pedestrian.stroller"})
CARRIED_OR_SKIN = ("brown", "beige")  # what bags, arms and faces show; a shirt only if there is little else
# One paint in light and in shadow.
SHADES_OF_ONE = frozenset(
    map(frozenset, (
        ("red", "pink"), ("red", "orange"), ("red", "brown"), ("pink", "purple"), ("purple", "blue"),
        ("orange", "yellow"), ("orange", "brown"), ("orange", "beige"), ("brown", "beige"), ("yellow", "beige"),
        ("yellow", "green"), ("beige", "white"),
    ))
)  # fmt: skip

MIN_SEEN, MIN_PIXELS = 0.25, 12
MIN_PAINT, MIN_PAINT_TO_PLAIN = 0.18, 0.35  # windows, wheels, shadow and skin take the rest
MIN_EACH_OF_TWO, MIN_SECOND_TO_FIRST = 0.25, 0.75
MAX_ODD_PAINTS, MAX_ODD_TO_PLAIN = 0.2, 0.6  # more than this of several colours: not plain
MIN_UNPAINTED, MIN_PLAIN, MIN_PLAIN_TO_DARK, MIN_DARK = 0.3, 0.2, 0.45, 0.45
MIN_CARRIED = 0.7
NIGHT_LIGHTNESS = 25.0  # where all is darker than this, anything looks black
MIN_OWN_PAINT = 0.3  # mean likelihood below which a colour is that of the bushes in front
MIN_OWN = 0.15  # mean likelihood below which nothing sets an object off from what is around it
SURELY_OWN = 0.3
CHEST_WIDTH = 0.35  # of the box: boxes of people leave room for the stride
LIGHTNESS_PERCENTILE = 60  # of plain pixels: above the shadows, below the reflections
STRONG_CHROMA, MIN_STRONG, MAX_OTHER_STRONG = 28.0, 0.035, 0.5


def colour_describer(workers: int = 1) -> Describer:
    """Descriptions from the colours of the pixels in the box; each image is opened once, in one of the processes."""

    def describe(images: Iterable[AskedImage]) -> Iterator[list[Description]]:
        return map_in_processes(describe_image, images, workers)

    return describe


def describe_image(image: AskedImage) -> list[Description]:
    """The descriptions of the objects of one image."""
    opened = read_image(image)
    if opened is None:
        return [UNREADABLE] * len(image.objects)
    image_rgb = np.asarray(opened)
    boxes = [item.box_xyxy_px for item in image.objects]
    colours = [colour_of(image_rgb, item, boxes) for item in image.objects]
    return [
        Description(wording(item.category, colour)) if colour else Description(problem="colour_unclear")
        for item, colour in zip(image.objects, colours, strict=True)
    ]


def colour_of(image_rgb: Pixels, item: Asked, boxes: Iterable[Box]) -> str:
    """The colour of an object in words, "red", "blue and orange", or empty where it is unclear.

    boxes: of all objects of the image, of which those in front may hide this one.
    """
    person, box = is_person(item.category), item.box_xyxy_px
    region = region_of(image_rgb, box, _part(item.category), in_front(box, boxes))
    if region.seen < MIN_SEEN or len(region.pixels_rgb) < MIN_PIXELS:
        return ""
    around = surroundings_of(image_rgb, box, BESIDE if person else (*BESIDE, BELOW))
    named, own = name_pixels(region.pixels_rgb, glass=not person), likely_own(region.pixels_rgb, around)
    if item.category in SEE_THROUGH:
        return strong_colour(named, own)
    if not person:
        return painted(named, own, around)
    if own.mean() < MIN_OWN:
        return ""
    return worn(named, own * np.exp(-(((region.across - 0.5) / CHEST_WIDTH) ** 2)), around)


def painted(named: Named, own: Floats, around_rgb: Pixels) -> str:
    """The colour of a vehicle's body from its pixels and how likely each is its own: bushes in front have a colour."""
    weights = np.ones(len(named.places))
    shares = named.shares(weights)
    paints, unpainted = _paints(shares), _unpainted(named, weights, shares, around_rgb)
    colours = paints | ({"white": shares[PLAIN]} if unpainted == "white" else {})
    if colour := _two(colours) or _one(paints, shares[PLAIN]):
        of_first_paint = own[named.places == NAMES.index(next(iter(paints)))]
        return colour if of_first_paint.mean() >= MIN_OWN_PAINT else ""
    return "" if sum(paints.values()) > max(MAX_ODD_PAINTS, MAX_ODD_TO_PLAIN * shares[PLAIN]) else unpainted


def worn(named: Named, weights: Floats, around_rgb: Pixels) -> str:
    """The colour of what a person wears on the upper body from its pixels and how much each counts."""
    shares = named.shares(weights)
    paints = {name: share for name, share in _paints(shares).items() if name not in CARRIED_OR_SKIN}
    if colour := _two(paints) or _one(paints, shares[PLAIN]):
        return colour
    most = max(CARRIED_OR_SKIN, key=lambda name: shares[name])
    return most if shares[most] > MIN_CARRIED else _unpainted(named, weights, shares, around_rgb)


def strong_colour(named: Named, weights: Floats) -> str:
    """The one vivid colour of something with gaps; what is behind, dull, black or white is left out."""
    weights = weights * (named.chroma > STRONG_CHROMA)
    paints = _paints(named.shares(weights))
    name, share = next(iter(paints.items()))
    enough = share * weights.sum() >= MIN_STRONG * len(weights)
    return name if enough and 1 - share < MAX_OTHER_STRONG * share else ""


def _part(category: str) -> Part:
    if category in SEE_THROUGH:
        return FRAME
    return CHEST if is_person(category) else CAR_BODY if category == "vehicle.car" else HIGH_BODY


def _paints(shares: Mapping[str, float]) -> dict[str, float]:
    """The colours proper, most first."""
    return {name: shares[name] for name in sorted(PAINTS, key=lambda name: -shares[name])}


def _two(shares: Mapping[str, float]) -> str:
    """Two colours that share the object between them, "red and white", or empty."""
    first, *others = sorted(shares, key=lambda name: -shares[name])
    second = next(name for name in others if frozenset((first, name)) not in SHADES_OF_ONE)
    both = shares[second] >= max(MIN_EACH_OF_TWO, MIN_SECOND_TO_FIRST * shares[first])
    return f"{first} and {second}" if both else ""


def _one(paints: Mapping[str, float], plain: float) -> str:
    """The colour there is most of, or empty if it is no more than what glass reflects and lamps show."""
    first = next(iter(paints))
    return first if paints[first] >= max(MIN_PAINT, MIN_PAINT_TO_PLAIN * plain) else ""


def _unpainted(named: Named, weights: Floats, shares: Mapping[str, float], around_rgb: Pixels) -> str:
    """White, grey or black. Only what is dark nearly all over is black: all vehicles have windows and tyres."""
    plain, dark = shares[PLAIN], shares[DARK]
    if plain + dark < MIN_UNPAINTED:
        return ""
    if not len(around_rgb):
        return ""
    around = float(np.median(name_pixels(around_rgb, glass=False).lightness))
    if plain < max(MIN_PLAIN, MIN_PLAIN_TO_DARK * dark):
        return "black" if dark >= MIN_DARK and around >= NIGHT_LIGHTNESS else ""
    lightness = named.lightness[(named.places == NAMES.index(PLAIN)) & (weights > SURELY_OWN)]
    return plain_name(float(np.percentile(lightness, LIGHTNESS_PERCENTILE)), around) if len(lightness) else ""
