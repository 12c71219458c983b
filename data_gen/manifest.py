"""The manifest beside a data file: where its images lie, and whether they are all there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from data_gen.records import Question

MANIFEST = "manifest.json"


def image_root(data: Path, images: Path | None = None) -> Path:
    """The folder that the image paths of a data file start from: `images`, or what the manifest beside it says.

    A relative path in the manifest starts from the manifest's folder. Raises FileNotFoundError with the remedy.
    """
    if images is not None:
        return images
    manifest = data.parent / MANIFEST
    if not manifest.is_file():
        raise FileNotFoundError(f"no {MANIFEST} beside {data}; name the folder of the images with --images")
    return data.parent / json.loads(manifest.read_text(encoding="utf-8"))["image_root"]


def check_images(questions: Iterable[Question], root: Path) -> None:
    """Raise FileNotFoundError naming the first image that is not under `root`, and how many are missing."""
    wanted = dict.fromkeys(question.image for question in questions)
    missing = [name for name in wanted if not (root / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of {len(wanted)} images are missing under {root}, first: {missing[0]}; "
            "name the folder of the images with --images"
        )
