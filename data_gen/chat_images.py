"""Images for a chat server: a file as a data URI, read when it is sent."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from pathlib import Path

from PIL import Image

from data_gen.images import open_rgb, upright_size

MAX_PIXELS = 1600 * 900  # what nuScenes' cameras give
JPEG_QUALITY = 92
_EXIF_ORIENTATION = 0x0112


def jpeg_uri(jpeg: bytes) -> str:
    """A JPEG file's content as a data URI."""
    return f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"


def file_uri(path: Path, max_pixels: int = MAX_PIXELS) -> str:
    """An image file as a data URI of a JPEG with at most `max_pixels` pixels.

    An upright RGB JPEG within the budget goes as it is; anything else is turned upright, made smaller with its aspect
    kept (what a model then says of pixels is in the smaller frame), and written as JPEG. Raises RecordError when it
    cannot be read.
    """
    width, height = upright_size(path)
    if width * height <= max_pixels and _is_plain_jpeg(path):
        return jpeg_uri(path.read_bytes())
    image = open_rgb(path, (width, height))
    if width * height > max_pixels:
        scale = (max_pixels / (width * height)) ** 0.5
        image = image.resize((max(1, int(width * scale)), max(1, int(height * scale))), Image.Resampling.LANCZOS)
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return jpeg_uri(buffer.getvalue())


def _is_plain_jpeg(path: Path) -> bool:
    with Image.open(path) as image:
        upright = image.getexif().get(_EXIF_ORIENTATION, 1) == 1
        return image.format == "JPEG" and image.mode == "RGB" and upright
