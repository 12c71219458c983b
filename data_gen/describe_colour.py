"""Descriptions without a model: the dominant colour of the pixels that show paint or clothes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from data_gen.colours import colour_name
from data_gen.crops import read_image
from data_gen.describe import UNREADABLE, Asked, AskedImage, Describer, Description
from data_gen.in_order import map_in_processes
from data_gen.wording import wording

# Mostly gaps: most pixels of their boxes show what is behind them.
SEE_THROUGH = frozenset({"vehicle.bicycle", "vehicle.motorcycle", "human.pedestrian.stroller"})


def colour_describer(workers: int = 1) -> Describer:
    """Descriptions from the dominant colour of the pixels in the box; each image is opened once."""

    def describe(images: Iterable[AskedImage]) -> Iterator[list[Description]]:
        return map_in_processes(describe_image, images, workers)

    return describe


def describe_image(image: AskedImage) -> list[Description]:
    """The descriptions of the objects of one image."""
    opened = read_image(image)
    if opened is None:
        return [UNREADABLE] * len(image.objects)
    image_rgb = np.asarray(opened)
    return [_by_colour(image_rgb, item) for item in image.objects]


def _by_colour(image_rgb: NDArray[np.uint8], item: Asked) -> Description:
    if item.category in SEE_THROUGH:
        return Description(problem="colour_unclear")
    colour = colour_name(telling_pixels(image_rgb, item))
    return Description(wording(item.category, colour)) if colour else Description(problem="colour_unclear")


def telling_pixels(image_rgb: NDArray[np.uint8], item: Asked) -> NDArray[np.uint8]:
    """The part of the box that shows paint or clothes: a vehicle's middle below the windows, a person's upper body."""
    x1, y1, x2, y2 = item.box_xyxy_px
    left, top, right, bottom = (0.35, 0.2, 0.65, 0.45) if item.category.startswith("human.") else (0.2, 0.35, 0.8, 0.75)
    columns = slice(int(x1 + left * (x2 - x1)), max(int(x1 + left * (x2 - x1)) + 1, round(x1 + right * (x2 - x1))))
    rows = slice(int(y1 + top * (y2 - y1)), max(int(y1 + top * (y2 - y1)) + 1, round(y1 + bottom * (y2 - y1))))
    return image_rgb[rows, columns]
