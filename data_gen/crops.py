"""The pixels of the objects that a describer is asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_gen.images import open_rgb
from data_gen.records import RecordError

if TYPE_CHECKING:
    from PIL.Image import Image

    from data_gen.describe import AskedImage


def read_image(image: AskedImage) -> Image | None:
    """The image as RGB, or None when its file cannot be read, for the caller to count.

    Raises RecordError for an image of another size than asked for: then tables and files do not belong together.
    """
    try:
        return open_rgb(image.path, image.size_px)
    except RecordError as error:
        if error.__cause__ is None:  # Pillow could read it, but it is not what the tables say
            raise
        return None
