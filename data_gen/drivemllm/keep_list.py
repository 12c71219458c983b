"""Lists of hand-picked images: read, and found among the images of a world.

The public DriveMLLM images are numbered, not called as in nuScenes; where a list is their metadata, an image is found
by the 3D centres of its objects; of key frames of a standing car that share them, it is the closest fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from data_gen.geometry import Floats
from data_gen.records import Metres3, RecordError, read_records

SAME_PLACE_M = 0.01  # the public centres are rounded to millimetres


@dataclass(frozen=True)
class Listed:
    """A wanted image: its name, and the 3D centres of some of its objects in camera metres where the list has them."""

    name: str
    centres_m: tuple[Metres3, ...] = ()

    @property
    def stem(self) -> str:
        """The name without folder and suffix, which differ between copies of an image."""
        return Path(self.name).stem


def keep_list_file(path: Path) -> Path:
    """The file of a list. Raises RecordError when there is none."""
    file = path / "metadata.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise RecordError(f"no keep list at {file}")
    return file


def read_keep_list(path: Path) -> list[Listed]:
    """The images of a list: one name a line, or JSON Lines with `file_name` and, if there, `location3D`.

    A folder stands for the metadata.jsonl in it.

    Repeated names count once. Raises RecordError for a file that cannot be read, a bad line, or when there is no name.
    """
    path = keep_list_file(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is no text in UTF-8: {error}") from error
    if text.lstrip().startswith("{"):
        listed = [item for _, item in read_records(path, _from_row)]
    else:
        listed = [Listed(line.strip()) for line in text.splitlines() if line.strip()]
    if not listed:
        raise RecordError(f"{path} names no image; one file name a line is wanted")
    return list({item.stem: item for item in listed}.values())


def _from_row(row: dict[str, object]) -> Listed:
    name = row["file_name"]
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a file_name is a text, got {name!r}")
    return Listed(name, msgspec.convert(row.get("location3D", []), tuple[Metres3, ...]))


@dataclass(frozen=True)
class Found:
    """Which image of a world each listed one is, by place in the list, and whether its name or its objects told."""

    images: dict[int, int]
    by_name: int
    by_centres: int


def find_listed(listed: Sequence[Listed], file_names: Sequence[str], centres_m: Sequence[Floats]) -> Found:
    """Find listed images among images with these names and 3D object centres, (N, 3) each, in camera metres."""
    place_of = {Path(name).stem: place for place, name in enumerate(file_names)}
    named = {index: place_of[item.stem] for index, item in enumerate(listed) if item.stem in place_of}
    owners = np.repeat(np.arange(len(centres_m)), [len(item) for item in centres_m])
    everywhere_m = np.concatenate([np.zeros((0, 3)), *centres_m])
    seen = {}
    for index, item in enumerate(listed):
        if index not in named and (image := _with_centres(item.centres_m, everywhere_m, owners)) is not None:
            seen[index] = image
    return Found(named | seen, len(named), len(seen))


def _with_centres(centres_m: Sequence[Metres3], everywhere_m: Floats, owners: np.ndarray) -> int | None:
    """The image that has an object at each of the centres, the closest fit if several have; None without centres.

    everywhere_m (M, 3): the centres of all objects; owners (M,): the image of each.
    """
    fits: dict[int, float] | None = None
    for centre_m in centres_m:
        gaps_m = np.linalg.norm(everywhere_m - np.array(centre_m), axis=1)
        near = sorted(np.flatnonzero(gaps_m <= SAME_PLACE_M), key=lambda place: -gaps_m[place])
        best = {int(owners[place]): float(gaps_m[place]) for place in near}
        fits = best if fits is None else {image: fits[image] + best[image] for image in fits.keys() & best.keys()}
    return min(fits, key=lambda image: (fits[image], image)) if fits else None
