"""Where the images of a question file lie, and whether they are there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from data_gen.records import Question, RecordError

MANIFEST = "manifest.json"


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
    root = json.loads(manifest_path.read_text(encoding="utf-8")).get("image_root")
    if not root:
        raise RecordError(f"{manifest_path} has no image_root; give the images' folder with --images")
    return manifest_path.parent / root


def check_images(questions: Iterable[Question], root: Path) -> None:
    """Raise FileNotFoundError naming the first missing image and how many are missing."""
    names = dict.fromkeys(question.image for question in questions)
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"image {missing[0]} is missing under {root} ({len(missing)} of {len(names)} images); give the folder that "
            "holds them with --images"
        )
