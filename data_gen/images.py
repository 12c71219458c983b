"""The images of a question file: where they lie, whether they are there, and their pixels."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

from PIL import Image, ImageOps

from data_gen.records import RecordError
from rewards.boxes import LARGEST_ASPECT, Size

MANIFEST = "manifest.json"
_EXIF_ORIENTATION = 0x0112
_EIGHT_BIT_MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
_JPEG_TAIL_BYTES = 512
# What Pillow's decoders raise on broken content; OSError is also its UnidentifiedImageError.
_BROKEN_IMAGE = (OSError, ValueError, SyntaxError, TypeError, Image.DecompressionBombError)


class UnreadableImageError(RecordError):
    """An image file that is there and cannot be read."""


def image_root(questions_path: Path, images: Path | None = None) -> Path:
    """The folder that image names are relative to: `images` if given, else `image_root` of the manifest beside.

    A relative `image_root` is taken from the manifest's folder. Raises FileNotFoundError when there is no manifest,
    RecordError when it names no root.
    """
    if images is not None:
        return images
    manifest_path = questions_path.parent / MANIFEST
    if not manifest_path.is_file():
        raise FileNotFoundError(f"no {manifest_path} to say where the images lie; give their folder with --images")
    try:
        root = json.loads(manifest_path.read_text(encoding="utf-8")).get("image_root")
    except (ValueError, AttributeError) as error:
        raise RecordError(f"{manifest_path} is no manifest ({error}); give the images' folder with --images") from error
    if not isinstance(root, str):
        raise RecordError(f"{manifest_path} has no image_root; give the images' folder with --images")
    return manifest_path.parent / root


class Pictured(Protocol):
    """A question of any benchmark about one image of a known size."""

    @property
    def image(self) -> str:
        """Name of the image file."""
        ...

    @property
    def image_size(self) -> Size:
        """Its width and height in pixels."""
        ...


def check_images(questions: Iterable[Pictured], root: Path) -> None:
    """Check that every image is there and of the size its questions are about, from file headers alone.

    Raises FileNotFoundError and RecordError as `checked_sizes`, and RecordError for an image of another size.
    """
    recorded = {question.image: question.image_size for question in questions}
    for name, size in checked_sizes(recorded, root).items():
        _check_size(root / name, size, recorded[name])


def checked_sizes(names: Collection[str], root: Path) -> dict[str, Size]:
    """(width, height) of every image, from file headers alone.

    Raises FileNotFoundError naming the first missing image and how many are missing, RecordError for an image that
    cannot be read, is cut off, has more than 8 bits a channel, or is too long for its width.
    """
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"image {missing[0]} is missing under {root} ({len(missing)} of {len(names)} images); give the folder that "
            "holds them with --images"
        )
    sizes = {}
    for name in names:
        _check_whole(root / name)
        sizes[name] = upright_size(root / name)
        check_shape(root / name, sizes[name])
    return sizes


def check_shape(path: Path, size: Size) -> None:
    """Raise RecordError for an image that is too long for its width: no processor takes it."""
    if max(size) > LARGEST_ASPECT * min(size):
        raise UnreadableImageError(
            f"the image {path} is {size[0]}x{size[1]} pixels, longer than {LARGEST_ASPECT} times its width; crop it"
        )


def _check_whole(path: Path) -> None:
    """Raise RecordError for a JPEG file that is cut off; a training would meet it hours later."""
    with path.open("rb") as file:
        if file.read(2) != b"\xff\xd8":
            return
        file.seek(-min(path.stat().st_size, _JPEG_TAIL_BYTES), 2)
        ended = b"\xff\xd9" in file.read()
    if not ended:
        open_rgb(path, upright_size(path))


def upright_size(path: Path) -> Size:
    """(width, height) of an image as it is shown, turned as its EXIF data say. Raises RecordError."""
    try:
        with Image.open(path) as image:
            if image.mode not in _EIGHT_BIT_MODES:
                raise UnreadableImageError(f"the image {path} has mode {image.mode}; convert it to 8 bits a channel")
            turned = image.getexif().get(_EXIF_ORIENTATION, 1) >= 5
            return (image.height, image.width) if turned else image.size
    except RecordError:
        raise
    except _BROKEN_IMAGE as error:
        raise _told(path, error) from error


def open_rgb(path: Path, size: Size | None = None) -> Image.Image:
    """An image as RGB, turned upright. Raises RecordError when it cannot be read or is not of `size`, if given."""
    try:
        with Image.open(path) as file:
            if file.mode not in _EIGHT_BIT_MODES:
                raise UnreadableImageError(f"the image {path} has mode {file.mode}; convert it to 8 bits a channel")
            file.load()
            ImageOps.exif_transpose(file, in_place=True)  # this and the next line copy only where there is need
            image = file if file.mode == "RGB" else file.convert("RGB")
    except RecordError:
        raise
    except _BROKEN_IMAGE as error:
        raise _told(path, error) from error
    if size is not None:
        _check_size(path, image.size, size)
    return image


def _told(path: Path, error: Exception) -> RecordError:
    """What is wrong with a file: its content, or (where the system gave a number) the way to it."""
    reached = getattr(error, "errno", None) is None
    return (UnreadableImageError if reached else RecordError)(f"the image {path} cannot be read: {error}")


def _check_size(path: Path, found: Size, recorded: Size) -> None:
    if found != recorded:
        there, wanted = ("{}x{}".format(*size) for size in (found, recorded))
        raise RecordError(f"the image {path} is {there} pixels, its record says {wanted}")
