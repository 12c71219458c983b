"""The tables of a nuScenes-format folder as arrays, which forked processes share.

Looking at a Python object writes to it (its reference count), and then every process has a copy of its own of that part
of memory; reading an array does not. So tokens and file names are bytes of one width and names are codes into short
tuples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Bools, Floats, quaternions_to_matrices
from data_gen.nuscenes_splits import split_of_scenes
from data_gen.nuscenes_tables import (
    Annotation,
    Category,
    Instance,
    Sample,
    Scene,
    WorldError,
    index_of,
    positions,
    read_batches,
    read_table,
)

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Texts = NDArray[np.bytes_]
NO_LABEL = -1


@dataclass(frozen=True)
class KeyFrameRows:
    """The F key frames, by scene name and time."""

    tokens: Texts  # (F,)
    scenes: Codes  # (F,) into the two tuples
    scene_names: tuple[str, ...]
    scene_splits: tuple[str, ...]


@dataclass(frozen=True)
class BoxRows:
    """The A annotated 3D boxes in the global frame, key frame by key frame (`starts`)."""

    starts: Ints  # (F + 1,)
    tokens: Texts  # (A,)
    categories: Codes  # (A,) into the two arrays
    category_names: NDArray[np.str_]
    category_labels: Ints  # lidarseg classes, NO_LABEL where unknown
    centres_m: Floats  # (A, 3)
    sizes_wlh_m: Floats  # (A, 3)
    rotations: Floats  # (A, 3, 3)


def read_key_frames(folder: Path) -> tuple[KeyFrameRows, dict[str, int]]:
    """sample.json with the scenes and their splits, and the place of each token. Raises WorldError without any."""
    scenes, samples = read_table(folder, Scene), read_table(folder, Sample)
    if not samples:
        raise WorldError(f"{folder} has no key frames: sample.json is empty")
    names, codes = np.unique([row.name for row in scenes], return_inverse=True)
    scene = codes[positions((row.scene_token for row in samples), index_of(scenes), "scene")]
    order = np.lexsort((np.array([row.timestamp for row in samples]), scene))
    samples = [samples[place] for place in order]
    split_of = split_of_scenes(folder)
    rows = KeyFrameRows(
        tokens=texts([row.token for row in samples]),
        scenes=scene[order].astype(np.int32),
        scene_names=tuple(names.tolist()),
        scene_splits=tuple(split_of.get(name, "") for name in names.tolist()),
    )
    return rows, index_of(samples)


def read_boxes(folder: Path, frame_of: dict[str, int]) -> BoxRows:
    """sample_annotation.json with the categories; `frame_of` says which key frame a sample token is.

    Raises WorldError when there are none, or naming a box whose numbers no box can have.
    """
    categories, instances = read_table(folder, Category), read_table(folder, Instance)
    category_of = positions((row.category_token for row in instances), index_of(categories), "category")
    instance_of = index_of(instances)
    if odd := [row.name for row in categories if not re.fullmatch(r"[A-Za-z0-9_.]+", row.name)]:
        raise WorldError(f"category.json has the name {odd[0]!r}; names are letters, digits, `_` and dots")
    columns = [_box_columns(rows, frame_of, instance_of) for rows in read_batches(folder, Annotation) if rows]
    if not columns:
        raise WorldError(f"{folder} has no annotations; the test split comes without: choose another version")
    frame, instance, tokens, numbers = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(frame, kind="stable")
    tokens, numbers = tokens[order], numbers[order]
    _check_boxes(tokens, numbers)
    return BoxRows(
        starts=np.searchsorted(frame[order], np.arange(len(frame_of) + 1)),
        tokens=tokens,
        categories=category_of[instance[order]],
        category_names=np.array([row.name for row in categories]),
        category_labels=np.array([NO_LABEL if row.index is None else row.index for row in categories]),
        centres_m=np.ascontiguousarray(numbers[:, :3]),
        sizes_wlh_m=np.ascontiguousarray(numbers[:, 3:6]),
        rotations=quaternions_to_matrices(numbers[:, 6:]),
    )


def texts(values: Sequence[str]) -> Texts:
    """Tokens or file names as bytes of one width."""
    return np.array([value.encode() for value in values], dtype=np.bytes_)


def check_rotations(quaternions_wxyz: Floats, tokens: Texts, table: str) -> None:
    """Raise WorldError naming the first row (R,) of a table whose quaternion (R, 4) is no rotation."""
    broken = ~np.logical_or.reduce(quaternions_wxyz != 0, axis=1)
    _check(broken, tokens, quaternions_wxyz, f"the rotation of {table}", "a quaternion (w, x, y, z) that is not zero")


def _box_columns(
    rows: list[Annotation], frame_of: dict[str, int], instance_of: dict[str, int]
) -> tuple[Codes, Codes, Texts, Floats]:
    """Key frame, instance, token and translation, size and rotation (R, 10) of some rows."""
    return (
        positions((row.sample_token for row in rows), frame_of, "sample"),
        positions((row.instance_token for row in rows), instance_of, "instance"),
        texts([row.token for row in rows]),
        np.array([row.translation + row.size + row.rotation for row in rows]),
    )


def _check_boxes(tokens: Texts, numbers: Floats) -> None:
    """Raise WorldError naming the first box with a side that is not longer than nothing, or no rotation."""
    sizes_m = numbers[:, 3:6]
    broken = ~np.logical_and.reduce(sizes_m > 0, axis=1)
    _check(broken, tokens, sizes_m, "the size of sample_annotation.json", "three lengths above 0")
    check_rotations(numbers[:, 6:], tokens, "sample_annotation.json")


def _check(broken: Bools, tokens: Texts, numbers: Floats, what: str, allowed: str) -> None:
    if broken.any():
        place = int(broken.argmax())
        token, got = tokens[place].decode(), numbers[place].tolist()
        raise WorldError(
            f"{what} row {token!r} is {got}; needed: {allowed} ({broken.sum()} rows like this; correct or remove them)"
        )
