"""What our self-contained HTML pages share: pictures as data URIs, and templates in which everything is escaped."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from data_gen.columns import decimal, percent
from data_gen.images import open_rgb, upright_size
from data_gen.records import RecordError
from rewards.boxes import Size

if TYPE_CHECKING:
    from jinja2 import Template

LARGEST_SIDE_PX = 800
JPEG_QUALITY = 82
_UNKNOWN_SIZE = (16, 9)
TASK_TITLES = {
    "yaw": "Yaw",
    "pixel": "Pixel",
    "depth": "Depth",
    "distance": "Distance",
    "left_right": "Left / right",
    "front_behind": "Front / behind",
}


@dataclass(frozen=True)
class Picture:
    """An image for embedding: a data URI, or None with the path where no image is. Size of the original in pixels."""

    key: str
    width: int
    height: int
    uri: str | None
    path: str


def load_picture(path: Path, size: Size, key: str, largest_side_px: int = LARGEST_SIDE_PX) -> Picture:
    """The image as a JPEG of at most `largest_side_px`; without uri when the file is not there.

    Raises RecordError when the file is no image of `size`.
    """
    if not path.is_file():
        return Picture(key, *size, None, str(path))
    image = open_rgb(path, size)
    image.thumbnail((largest_side_px, largest_side_px))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return Picture(key, *size, "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode(), str(path))


def picture_if_readable(path: Path, size: Size | None, key: str) -> Picture:
    """The same, also without uri where the file cannot be shown; `size` None takes the file's own.

    A run may have skipped an image that is missing or cannot be read, and is still reported.
    """
    try:
        return load_picture(path, size or upright_size(path), key)
    except RecordError:
        return Picture(key, *(size or _UNKNOWN_SIZE), None, str(path))


def page_template(path: Path) -> Template:
    """A template that escapes everything and fails on an unknown name; filters `percent`, `decimal` and `number`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(path.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, decimal=decimal, number=_number)
    return environment.get_template(path.name)


def _number(value: float) -> str:
    """A coordinate for SVG, without needless digits."""
    return f"{value:.1f}".removesuffix(".0")
