"""Numbered boxes and shaded lanes, drawn onto a copy of a photograph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data_gen.cycling.annotations import Points
from data_gen.draw import PALETTE
from rewards.boxes import Box

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
COLOURS = (*PALETTE, "#ff2d92", "#a2845e")
SHADE = 0.45  # how much of a lane's own look the colour hides


@dataclass(frozen=True)
class Region:
    """A box to outline, in pixels, with the text above it."""

    box_xyxy_px: Box
    text: str
    colour: str


@dataclass(frozen=True)
class Shaded:
    """A polygon to shade, in pixels, with the text on it."""

    polygon_px: Points
    text: str
    colour: str


def draw_items(image: Image.Image, regions: Sequence[Region], lanes: Sequence[Shaded]) -> Image.Image:
    """A copy of the image with lanes shaded and boxes outlined; line width and text size follow the image's width."""
    drawn = image.convert("RGB")
    for lane in lanes:
        drawn = Image.composite(_tinted(drawn, lane.colour), drawn, _mask(drawn.size, lane.polygon_px))
    canvas = ImageDraw.Draw(drawn)
    line_px = max(2, round(drawn.width / 400))
    font = ImageFont.load_default(size=max(12, drawn.width / 50))
    for lane in lanes:
        if lane.text:
            x, y = _inside(_mask(drawn.size, lane.polygon_px))
            _write(canvas, (x, y), lane.text, lane.colour, font)
    for region in regions:
        # The line stands outside the box, so that it hides nothing of what is asked about.
        x1, y1, x2, y2 = region.box_xyxy_px
        canvas.rectangle((x1 - line_px, y1 - line_px, x2 + line_px, y2 + line_px), outline=region.colour, width=line_px)
        _write_above(canvas, region, line_px, font)
    return drawn


def _mask(size: tuple[int, int], polygon_px: Points) -> Image.Image:
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).polygon([(x, y) for x, y in polygon_px], fill=255)
    return mask


def _tinted(image: Image.Image, colour: str) -> Image.Image:
    return Image.blend(image, Image.new("RGB", image.size, colour), SHADE)


def _inside(mask: Image.Image) -> tuple[int, int]:
    """A pixel (x, y) of the mask near its middle; the image's middle for an empty mask."""
    ys, xs = np.nonzero(np.asarray(mask))
    if not len(xs):
        return mask.width // 2, mask.height // 2
    nearest = np.argmin((xs - xs.mean()) ** 2 + (ys - ys.mean()) ** 2)
    return int(xs[nearest]), int(ys[nearest])


def _write(canvas: ImageDraw.ImageDraw, centre_px: tuple[float, float], text: str, colour: str, font: Font) -> None:
    """White text on its colour, moved into the image where it would leave it."""
    left, top, right, bottom = canvas.textbbox((0, 0), text, font=font)
    width, height = right - left + 6, bottom - top + 6
    x = min(max(0, centre_px[0] - width / 2), canvas.im.size[0] - width)
    y = min(max(0, centre_px[1] - height / 2), canvas.im.size[1] - height)
    canvas.rectangle((x, y, x + width, y + height), fill=colour)
    canvas.text((x + 3 - left, y + 3 - top), text, fill="white", font=font)


def _write_above(canvas: ImageDraw.ImageDraw, region: Region, line_px: int, font: Font) -> None:
    """The text above the box, or below it where there is no room."""
    x1, y1, x2, y2 = region.box_xyxy_px
    _, top, _, bottom = canvas.textbbox((0, 0), region.text, font=font)
    height = bottom - top + 6
    above = y1 - line_px - height / 2
    _write(canvas, ((x1 + x2) / 2, above if above >= height / 2 else y2 + line_px + height / 2), region.text,
           region.colour, font)  # fmt: skip
