"""The public DriveMLLM data set from a local folder: `metadata.jsonl` and the images that it names.

Its columns are `file_name`, `descriptions`, `bboxes2D`, `location2D` and `location3D`; sizes come from the images.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from data_gen.drivemllm.records import DriveMLLMImage, read_images
from data_gen.images import upright_size
from data_gen.records import RecordError

METADATA = "metadata.jsonl"
_PLACES = (METADATA, f"validation/{METADATA}")


def find_metadata(path: Path) -> Path:
    """The metadata file that a path names: itself, or the one in the folder. Raises FileNotFoundError."""
    found = [place for place in (path, *(path / name for name in _PLACES)) if place.is_file()]
    if not found:
        raise FileNotFoundError(f"no {METADATA} at {path}, nor {' nor '.join(_PLACES)} in it")
    return found[0]


def read_public(metadata: Path) -> list[DriveMLLMImage]:
    """All images of the metadata in the order of their names, in which the published run read them.

    Raises FileNotFoundError naming the first missing image and how many are missing, RecordError for a bad line, a
    repeated file name, an image that cannot be read, or a box that is not in its image.
    """
    root = metadata.parent
    images = sorted(read_images(metadata), key=lambda image: image.file_name)
    for before, image in pairwise(images):
        if before.file_name == image.file_name:
            raise RecordError(f"{metadata} has two lines for {image.file_name}")
    missing = [image.file_name for image in images if not (root / image.file_name).is_file()]
    if missing:
        raise FileNotFoundError(f"image {missing[0]} is missing under {root} ({len(missing)} of {len(images)} images)")
    return [_sized(image, root) for image in images]


def _sized(image: DriveMLLMImage, root: Path) -> DriveMLLMImage:
    """The image with the size of its file."""
    path = root / image.file_name
    width, height = upright_size(path)
    if image.image_size not in ((0, 0), (width, height)):
        raise RecordError(f"the image {path} is {width}x{height} pixels, its record says {image.width}x{image.height}")
    try:
        return replace(image, width=width, height=height)
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error
