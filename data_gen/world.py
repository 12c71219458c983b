"""A nuScenes-format folder as arrays: key frames with cameras, lidar sweep and annotated boxes.

Key frames are cut out of arrays that hold all of them (`data_gen/world_arrays.py`, `data_gen/world_sensors.py`), so a
world can be handed to forked processes at no cost. No image and no lidar file is opened here.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats
from data_gen.lidar_files import check_label_count, point_count
from data_gen.nuscenes_tables import Lidarseg, WorldError, has_table, table_files, version_folder
from data_gen.world_arrays import NO_LABEL, BoxRows, Ints, KeyFrameRows, Texts, read_boxes, read_key_frames
from data_gen.world_sensors import CameraRows, LidarRows, read_label_files, read_sensor_files

SYNTHETIC_VERSION = "v1.0-synthetic"
LARGEST_LABEL = 255  # labels are stored as one byte per point


@dataclass(frozen=True)
class Cameras:
    """The C camera images of a key frame; `rotations` and `translations_m` bring global points into each camera."""

    channels: tuple[str, ...]
    file_names: tuple[str, ...]
    sizes_px: Ints  # (C, 2) width, height
    intrinsics: Floats  # (C, 3, 3)
    rotations: Floats  # (C, 3, 3)
    translations_m: Floats  # (C, 3)


@dataclass(frozen=True)
class LidarSweep:
    """The lidar file of a key frame, its label file if there is one, and its pose (lidar to global)."""

    file_name: str
    label_file_name: str
    rotation: Floats  # (3, 3)
    translation_m: Floats  # (3,)


@dataclass(frozen=True)
class Annotations:
    """N annotated 3D boxes in the global frame; `labels` are their lidarseg classes, NO_LABEL where unknown."""

    tokens: tuple[str, ...]
    categories: NDArray[np.str_]
    labels: Ints
    centres_m: Floats  # (N, 3)
    sizes_wlh_m: Floats  # (N, 3)
    rotations: Floats  # (N, 3, 3)


@dataclass(frozen=True)
class KeyFrame:
    """One annotated moment of a scene."""

    sample_token: str
    scene: str
    split: str
    cameras: Cameras
    lidar: LidarSweep
    annotations: Annotations


@dataclass(frozen=True)
class World:
    """All key frames of a folder, by scene name and time; indexable like a sequence of KeyFrame."""

    root: Path
    version: str
    has_lidarseg: bool
    key_frames: KeyFrameRows
    cameras: CameraRows
    lidars: LidarRows
    boxes: BoxRows

    @property
    def source(self) -> str:
        """`synthetic` or `real`, as results must say."""
        return "synthetic" if self.version == SYNTHETIC_VERSION else "real"

    @property
    def scenes(self) -> tuple[str, ...]:
        """The scene of each key frame."""
        return tuple(self.key_frames.scene_names[code] for code in self.key_frames.scenes)

    @property
    def splits(self) -> tuple[str, ...]:
        """The split of each key frame, empty for scenes of none."""
        return tuple(self.key_frames.scene_splits[code] for code in self.key_frames.scenes)

    def __len__(self) -> int:
        return len(self.key_frames.tokens)

    def __getitem__(self, frame: int) -> KeyFrame:
        rows = self.key_frames
        scene = rows.scenes[frame]
        return KeyFrame(
            rows.tokens[frame].decode(), rows.scene_names[scene], rows.scene_splits[scene], self._cameras(frame),
            self._lidar(frame), self._annotations(frame),
        )  # fmt: skip

    def __iter__(self) -> Iterator[KeyFrame]:
        return (self[frame] for frame in range(len(self)))

    def _cameras(self, frame: int) -> Cameras:
        rows = self.cameras
        cut = slice(*rows.starts[frame : frame + 2])
        return Cameras(
            tuple(rows.channel_names[code] for code in rows.channels[cut].tolist()), decoded(rows.file_names[cut]),
            rows.sizes_px[cut], rows.intrinsics[cut], rows.rotations[cut], rows.translations_m[cut],
        )  # fmt: skip

    def _lidar(self, frame: int) -> LidarSweep:
        rows = self.lidars
        names = rows.file_names[frame].decode(), rows.label_file_names[frame].decode()
        return LidarSweep(*names, rows.rotations[frame], rows.translations_m[frame])

    def _annotations(self, frame: int) -> Annotations:
        rows = self.boxes
        cut = slice(*rows.starts[frame : frame + 2])
        codes = rows.categories[cut]
        return Annotations(
            decoded(rows.tokens[cut]), rows.category_names[codes], rows.category_labels[codes],
            rows.centres_m[cut], rows.sizes_wlh_m[cut], rows.rotations[cut],
        )  # fmt: skip


def decoded(values: Texts) -> tuple[str, ...]:
    """Tokens or file names as text."""
    return tuple(value.decode() for value in values.tolist())


def load_world(root: Path, version: str) -> World:
    """Read the tables of `root/version`.

    Raises WorldError for a version that is not there (listing those that are), a missing or broken table (named), a
    reference to nothing, a row that cannot be right (named), or a folder without annotations.
    """
    folder = version_folder(root, version)
    key_frames, frame_of = read_key_frames(folder)
    label_files = read_label_files(folder) if has_lidarseg(root, version) else {}
    boxes = read_boxes(folder, frame_of)
    if label_files:
        _check_labels(folder, boxes)
    cameras, lidars = read_sensor_files(folder, frame_of, label_files)
    return World(root, version, bool(label_files), key_frames, cameras, lidars, boxes)


def has_lidarseg(root: Path, version: str) -> bool:
    """Whether the labels of lidar points were unpacked too: their table and their files."""
    return has_table(version_folder(root, version), Lidarseg) and (root / "lidarseg").is_dir()


def tables_checksum(root: Path, version: str) -> str:
    """One number for the content of all tables that are read, by which another state of a folder is noticed."""
    checksum = 0
    for path in table_files(version_folder(root, version)):
        with path.open("rb") as file:
            while chunk := file.read(1 << 24):
                checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"


def _check_labels(folder: Path, boxes: BoxRows) -> None:
    labels = boxes.category_labels[np.unique(boxes.categories)]
    if NO_LABEL in labels:
        raise WorldError(f"{folder / 'category.json'} has no `index`; unpack the lidarseg metadata after the others")
    if labels.min() < 0 or labels.max() > LARGEST_LABEL:
        raise WorldError(f"{folder / 'category.json'} has an `index` outside 0 to {LARGEST_LABEL}, which no label has")


def select_frames(world: World, split: str = "all", limit: int | None = None) -> list[int]:
    """Indices of the key frames of a split (`all`, `train`, `val`, `test`), at most the first `limit`.

    Raises WorldError naming the splits that are there when none is left.
    """
    splits = world.splits
    chosen = [frame for frame in range(len(world)) if split in ("all", splits[frame])]
    if not chosen:
        found = sorted({name or "(none)" for name in splits})
        raise WorldError(f"{world.root} has no key frame of split {split!r}; splits there: {', '.join(found)}")
    return chosen[:limit]


def check_files(world: World, frames: Sequence[int]) -> None:
    """Whether images, lidar and label files of key frames exist, and lidar and label files are whole by their sizes.

    No file is opened, and folders are listed once, which is fast on network disks too. Raises FileNotFoundError naming
    the first that is missing and how many are, and WorldError naming the first that was cut short.
    """
    sweeps = decoded(world.lidars.file_names[list(frames)])
    labels = _label_names(world, frames) if world.has_lidarseg else ()
    starts = world.cameras.starts
    images = [name for frame in frames for name in world.cameras.file_names[slice(*starts[frame : frame + 2])].tolist()]
    names = [*(name.decode() for name in images), *sweeps, *labels]
    listing = _list_folders(world.root, names)
    missing = [name for name in names if name not in listing]
    if missing:
        raise FileNotFoundError(
            f"{missing[0]} is missing under {world.root} ({len(missing)} of {len(names)} files that are needed)"
        )
    points = [point_count(world.root / name, listing[name].stat().st_size) for name in sweeps]
    for name, count in zip(labels, points, strict=bool(labels)):
        check_label_count(world.root / name, listing[name].stat().st_size, count)


def _label_names(world: World, frames: Sequence[int]) -> tuple[str, ...]:
    names = decoded(world.lidars.label_file_names[list(frames)])
    if "" in names:
        token = world.key_frames.tokens[frames[names.index("")]].decode()
        raise WorldError(f"lidarseg.json has no labels for the key frame {token}")
    return names


def _list_folders(root: Path, names: Sequence[str]) -> dict[str, os.DirEntry[str]]:
    """The files in the folders of all names, by their names from the root."""
    listing: dict[str, os.DirEntry[str]] = {}
    for folder in sorted({name[: name.rfind("/") + 1] for name in names}):  # with its slash
        if (root / folder).is_dir():
            with os.scandir(root / folder) as entries:
                listing |= {folder + entry.name: entry for entry in entries if entry.is_file()}
    return listing
