"""The pixels of the objects that a describer is asked about."""

from __future__ import annotations

from PIL import Image

from data_gen.descriptions import AskedImage
from data_gen.images import UnreadableImageError, open_rgb
from rewards.boxes import Box

MARGIN = 0.1  # of the box's sides, on each side: enough to see what stands out from what
LEAST_SIDE_PX, LARGEST_SIDE_PX = 224, 672  # of the longer side: models see little in less and cost more for more


def read_image(image: AskedImage) -> Image.Image | None:
    """The image as RGB, or None when its file cannot be read, for the caller to count.

    Raises RecordError for an image of another size than asked for: then tables and files do not belong together.
    """
    try:
        return open_rgb(image.path, image.size_px)
    except UnreadableImageError:
        return None


def crop_of(image: Image.Image, box_xyxy_px: Box) -> Image.Image:
    """The box with a margin, cut at the image and scaled so that its longer side is what models are made for."""
    x1, y1, x2, y2 = box_xyxy_px
    margin_x, margin_y = MARGIN * (x2 - x1), MARGIN * (y2 - y1)
    left, top = max(0, int(x1 - margin_x)), max(0, int(y1 - margin_y))
    right, bottom = min(image.width, round(x2 + margin_x)), min(image.height, round(y2 + margin_y))
    crop = image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
    longer = max(crop.size)
    scale = min(max(longer, LEAST_SIDE_PX), LARGEST_SIDE_PX) / longer
    sides = (max(1, round(side * scale)) for side in crop.size)
    return crop if scale == 1 else crop.resize((next(sides), next(sides)), Image.Resampling.BICUBIC)
