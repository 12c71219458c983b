"""The public DriveMLLM data set from a local folder: `metadata.jsonl` and the images that it names.

Its columns are `file_name`, `descriptions`, `bboxes2D`, `location2D` and `location3D`; sizes come from the images,
where they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from data_gen.drivemllm.records import DriveMLLMImage, read_images
from data_gen.images import upright_size
from data_gen.records import RecordError

NUSCENES_SIZE_PX = (1600, 900)


def read_public(metadata: Path) -> list[DriveMLLMImage]:
    """All images of the metadata in the order of their names, in which the published run read them.

    Raises RecordError for a bad line, a repeated file name, an image that cannot be read or is of another size than its
    line says, or a box that is not in its image.
    """
    root = metadata.parent
    images = sorted(read_images(metadata), key=lambda image: image.file_name)
    for before, image in pairwise(images):
        if before.file_name == image.file_name:
            raise RecordError(f"{metadata} has two lines for {image.file_name}")
    return [_sized(image, root) for image in images]


def count_missing(images: Sequence[DriveMLLMImage], root: Path) -> int:
    """How many of the image files are not there."""
    return sum(not (root / image.file_name).is_file() for image in images)


def _sized(image: DriveMLLMImage, root: Path) -> DriveMLLMImage:
    """The image with the size of its file, or of its record, or nuScenes' own."""
    path = root / image.file_name
    recorded = NUSCENES_SIZE_PX if image.image_size == (0, 0) else image.image_size
    width, height = upright_size(path) if path.is_file() else recorded
    if image.image_size not in ((0, 0), (width, height)):
        raise RecordError(f"the image {path} is {width}x{height} pixels, its record says {image.width}x{image.height}")
    try:
        return replace(image, width=width, height=height)
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error
