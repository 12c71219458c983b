"""Boxes, headings as arrows and names drawn on an image, for looking and for reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data_gen.geometry import NEAR_M, project
from data_gen.scene_records import SceneImage
from rewards.boxes import Box

PALETTE = ("#ff3b30", "#34c759", "#0a84ff", "#ff9f0a", "#bf5af2", "#64d2ff")
ARROW_M = 2.5  # length of a heading arrow over the ground


@dataclass(frozen=True)
class Mark:
    """One object to draw, in pixels of the image: its box, its name, and the arrow of its heading if there is one."""

    box_xyxy_px: Box
    name: str = ""
    arrow_px: tuple[tuple[float, float], tuple[float, float]] | None = None
    colour: str = ""


def draw_marks(image: Image.Image, marks: Sequence[Mark]) -> Image.Image:
    """A copy of the image with the marks; line width and text size follow the image's width."""
    drawn = image.convert("RGB")
    canvas = ImageDraw.Draw(drawn)
    line_px = max(1, round(drawn.width / 500))
    font = ImageFont.load_default(size=max(9, drawn.width / 70))
    for place, mark in enumerate(marks):
        colour = mark.colour or PALETTE[place % len(PALETTE)]
        canvas.rectangle(mark.box_xyxy_px, outline=colour, width=line_px)
        if mark.arrow_px:
            _draw_arrow(canvas, mark.arrow_px, colour, line_px)
        if mark.name:
            _draw_name(canvas, mark, colour, font)
    return drawn


def scene_marks(scene: SceneImage) -> list[Mark]:
    """The objects of a scene record with their headings: in perspective where it carries its camera's matrix."""
    return [
        Mark(
            item.box_xyxy_px,
            f"{item.description}, {item.depth_m:.1f} m, {item.heading}",
            heading_arrow(item.pixel_xy, item.xyz_m, item.yaw_rad, scene.extra.get("intrinsics"), scene.width),
        )
        for item in scene.objects
    ]


def heading_arrow(
    pixel_xy: tuple[float, float],
    centre_m: tuple[float, float, float],
    yaw_rad: float | None,
    intrinsics: Sequence[Sequence[float]] | None,
    width_px: int,
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Start and end of a heading's arrow.

    With the camera's matrix: ARROW_M along the heading from the object's centre, in perspective. Without: an arrow of
    fixed length as seen from above, up being away from the camera.
    """
    if yaw_rad is None:
        return None
    east, north = math.sin(yaw_rad), math.cos(yaw_rad)
    if intrinsics is None:
        length_px = width_px / 25
        return pixel_xy, (pixel_xy[0] + length_px * east, pixel_xy[1] - length_px * north)
    tip_m = np.array(centre_m) + ARROW_M * np.array([east, 0.0, north])
    tip_m[2] = max(tip_m[2], NEAR_M)
    x, y = project(tip_m, np.array(intrinsics))
    return pixel_xy, (float(x), float(y))


def _draw_arrow(
    canvas: ImageDraw.ImageDraw,
    arrow_px: tuple[tuple[float, float], tuple[float, float]],
    colour: str,
    line_px: int,
) -> None:
    (x0, y0), (x1, y1) = arrow_px
    canvas.line([(x0, y0), (x1, y1)], fill=colour, width=2 * line_px)
    angle_rad = math.atan2(y1 - y0, x1 - x0)
    wings = [
        (x1 - 6 * line_px * math.cos(angle_rad + turn), y1 - 6 * line_px * math.sin(angle_rad + turn))
        for turn in (0.45, -0.45)
    ]
    canvas.polygon([(x1, y1), *wings], fill=colour)
    canvas.ellipse((x0 - 2 * line_px, y0 - 2 * line_px, x0 + 2 * line_px, y0 + 2 * line_px), fill=colour)


def _draw_name(
    canvas: ImageDraw.ImageDraw, mark: Mark, colour: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont
) -> None:
    """The name above the box, or inside it where there is no room."""
    x, y = mark.box_xyxy_px[0], mark.box_xyxy_px[1]
    left, top, right, bottom = canvas.textbbox((0, 0), mark.name, font=font)
    width, height = right - left + 4, bottom - top + 4
    x = max(0, min(x, canvas.im.size[0] - width))
    y = y - height if y >= height else y
    canvas.rectangle((x, y, x + width, y + height), fill=colour)
    canvas.text((x + 2 - left, y + 2 - top), mark.name, fill="white", font=font)
