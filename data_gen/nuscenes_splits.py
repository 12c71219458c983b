"""Which scenes are for training and which for validation."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec

from data_gen.nuscenes_tables import WorldError

SPLITS = ("train", "val", "test")


@cache
def official_scenes() -> dict[str, frozenset[str]]:
    """Scene names per official split, as nuscenes-devkit lists them; also mini_train and mini_val.

    The two mini splits cut across the large ones: two scenes of mini_train are in val.
    """
    stored = json.loads(Path(__file__).with_name("nuscenes_splits.json").read_text(encoding="utf-8"))
    return {split: frozenset(_names(ranges)) for split, ranges in stored.items()}


def _names(ranges: str) -> list[str]:
    """Scene names from text like `1-2 4-11 222`."""
    ends = [part.split("-") for part in ranges.split()]
    return [f"scene-{number:04d}" for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]


def split_of_scenes(folder: Path) -> dict[str, str]:
    """Scene name -> train, val or test for a version folder.

    A `splits.json` with those keys in the folder decides alone; otherwise the official lists do.
    """
    own = folder / "splits.json"
    if own.is_file():
        try:
            named = msgspec.json.decode(own.read_bytes(), type=dict[str, list[str]])
        except msgspec.DecodeError as error:
            raise WorldError(f"{own} does not list scene names by split: {error}") from error
        if named.keys() & set(SPLITS):
            return {scene: split for split in SPLITS for scene in named.get(split, [])}
    prefix = "mini_" if folder.name == "v1.0-mini" else ""
    official = official_scenes()
    return {scene: split for split in SPLITS for scene in official.get(prefix + split, ())}
