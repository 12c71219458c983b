"""A nuScenes-format folder as arrays: key frames with cameras, lidar sweep and annotated boxes.

Every sensor has its own ego pose: sensors of one key frame fire up to 50 ms apart, and using another's shifts boxes by
the distance driven meanwhile. No image and no lidar file is opened here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats, quaternions_to_matrices
from data_gen.nuscenes_splits import split_of_scenes
from data_gen.nuscenes_tables import (
    Annotation,
    CalibratedSensor,
    Category,
    EgoPose,
    Instance,
    Lidarseg,
    Sample,
    SampleData,
    Scene,
    Sensor,
    WorldError,
    has_table,
    index_of,
    positions,
    read_table,
    version_folder,
)

Ints = NDArray[np.int64]
SYNTHETIC_VERSION = "v1.0-synthetic"
LIDAR = "LIDAR_TOP"
NO_LABEL = -1


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

    def slice(self, start: int, end: int) -> Annotations:
        """The boxes from `start` up to, without, `end`."""
        return Annotations(
            self.tokens[start:end], self.categories[start:end],
            self.labels[start:end], self.centres_m[start:end], self.sizes_wlh_m[start:end], self.rotations[start:end],
        )  # fmt: skip


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
class _Files:
    """The S sensor files of all key frames, key frame by key frame (`starts`), with poses sensor to global."""

    starts: Ints  # (F + 1,)
    channels: tuple[str, ...]
    names: tuple[str, ...]
    label_names: tuple[str, ...]
    sizes_px: Ints  # (S, 2)
    intrinsics: Floats  # (S, 3, 3)
    rotations: Floats  # (S, 3, 3)
    translations_m: Floats  # (S, 3)


@dataclass(frozen=True)
class World:
    """All key frames of a folder, by scene name and time; indexable like a sequence of KeyFrame."""

    root: Path
    version: str
    has_lidarseg: bool
    sample_tokens: tuple[str, ...]
    scenes: tuple[str, ...]
    splits: tuple[str, ...]
    files: _Files
    annotations: Annotations
    annotation_starts: Ints  # (F + 1,)

    @property
    def source(self) -> str:
        """`synthetic` or `real`, as results must say."""
        return "synthetic" if self.version == SYNTHETIC_VERSION else "real"

    def __len__(self) -> int:
        return len(self.sample_tokens)

    def __getitem__(self, frame: int) -> KeyFrame:
        start, end = self.annotation_starts[frame], self.annotation_starts[frame + 1]
        return KeyFrame(
            self.sample_tokens[frame], self.scenes[frame], self.splits[frame], self._cameras(frame),
            self._lidar(frame), self.annotations.slice(start, end),
        )  # fmt: skip

    def __iter__(self) -> Iterator[KeyFrame]:
        return (self[frame] for frame in range(len(self)))

    def _cameras(self, frame: int) -> Cameras:
        files = self.files
        rows = [row for row in range(*files.starts[frame : frame + 2]) if files.channels[row] != LIDAR]
        rotations = np.swapaxes(files.rotations[rows], -1, -2)
        translations_m = -(rotations @ files.translations_m[rows][..., None])[..., 0]
        return Cameras(
            tuple(files.channels[row] for row in rows), tuple(files.names[row] for row in rows),
            files.sizes_px[rows], files.intrinsics[rows], rotations, translations_m,
        )  # fmt: skip

    def _lidar(self, frame: int) -> LidarSweep:
        files = self.files
        rows = [row for row in range(*files.starts[frame : frame + 2]) if files.channels[row] == LIDAR]
        if not rows:
            raise WorldError(f"key frame {self.sample_tokens[frame]} has no {LIDAR} in sample_data.json")
        row = rows[0]
        return LidarSweep(files.names[row], files.label_names[row], files.rotations[row], files.translations_m[row])


def load_world(root: Path, version: str) -> World:
    """Read the tables of `root/version`.

    Raises WorldError for a version that is not there (listing those that are), a missing or broken table (named), a
    reference to nothing, or a folder without annotations.
    """
    folder = version_folder(root, version)
    scene_names = {row.token: row.name for row in read_table(folder, Scene)}
    samples = read_table(folder, Sample)
    if not samples:
        raise WorldError(f"{folder} has no key frames: sample.json is empty")
    if unknown := [row.token for row in samples if row.scene_token not in scene_names]:
        raise WorldError(f"scene.json lacks the scene of the key frame {unknown[0]}")
    samples.sort(key=lambda row: (scene_names[row.scene_token], row.timestamp))
    frame_of = index_of(samples)
    label_files = _label_files(root, folder)
    annotations, annotation_starts = _read_annotations(folder, frame_of)
    if label_files and NO_LABEL in annotations.labels:
        raise WorldError(f"{folder / 'category.json'} has no `index`; unpack the lidarseg metadata after the others")
    split_of = split_of_scenes(folder)
    scenes = tuple(scene_names[row.scene_token] for row in samples)
    return World(
        root, version, bool(label_files), tuple(row.token for row in samples), scenes,
        tuple(split_of.get(scene, "") for scene in scenes), _read_files(folder, frame_of, label_files), annotations,
        annotation_starts,
    )  # fmt: skip


def select_frames(world: World, split: str = "all", limit: int | None = None) -> list[int]:
    """Indices of the key frames of a split (`all`, `train`, `val`), at most the first `limit`.

    Raises WorldError naming the splits that are there when none is left.
    """
    chosen = [frame for frame in range(len(world)) if split in ("all", world.splits[frame])]
    if not chosen:
        found = sorted({name or "(none)" for name in world.splits})
        raise WorldError(f"{world.root} has no key frame of split {split!r}; splits there: {', '.join(found)}")
    return chosen[:limit]


def check_files(world: World, frames: Sequence[int]) -> None:
    """Whether images, lidar and label files of key frames exist, without opening them.

    Folders are listed once, which is fast on network disks too. Raises FileNotFoundError naming the first that is
    missing and how many are.
    """
    names = [name for frame in frames for name in _file_names(world, frame)]
    by_folder: dict[Path, list[str]] = defaultdict(list)
    for name in names:
        by_folder[(world.root / name).parent].append(name)
    missing: list[str] = []
    for folder, wanted in by_folder.items():
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        missing += [name for name in wanted if Path(name).name not in there]
    if missing:
        raise FileNotFoundError(
            f"{missing[0]} is missing under {world.root} ({len(missing)} of {len(names)} files that are needed)"
        )


def _file_names(world: World, frame: int) -> Iterator[str]:
    """Camera, lidar and, where the world has lidarseg, label files of a key frame."""
    files = world.files
    for row in range(*files.starts[frame : frame + 2]):
        yield files.names[row]
        if world.has_lidarseg and files.channels[row] == LIDAR:
            if not files.label_names[row]:
                raise WorldError(f"lidarseg.json has no labels for the key frame {world.sample_tokens[frame]}")
            yield files.label_names[row]


def _label_files(root: Path, folder: Path) -> dict[str, str]:
    """Label file of each lidar file by token; empty when lidarseg was not unpacked here."""
    if not has_table(folder, Lidarseg) or not (root / "lidarseg").is_dir():
        return {}
    return {row.sample_data_token: row.filename for row in read_table(folder, Lidarseg)}


def _read_annotations(folder: Path, frame_of: dict[str, int]) -> tuple[Annotations, Ints]:
    """All boxes, key frame by key frame, and where each key frame's begin."""
    rows = read_table(folder, Annotation)
    if not rows:
        raise WorldError(f"{folder} has no annotations; the test split comes without: choose another version")
    instances, categories = read_table(folder, Instance), read_table(folder, Category)
    frame = positions((row.sample_token for row in rows), frame_of, "sample")
    instance = positions((row.instance_token for row in rows), index_of(instances), "instance")
    category = positions((row.category_token for row in instances), index_of(categories), "category")[instance]
    order = np.argsort(frame, kind="stable")
    names = np.array([row.name for row in categories])
    labels = np.array([NO_LABEL if row.index is None else row.index for row in categories])
    annotations = Annotations(
        tokens=tuple(rows[place].token for place in order),
        categories=names[category[order]],
        labels=labels[category[order]],
        centres_m=np.array([row.translation for row in rows])[order],
        sizes_wlh_m=np.array([row.size for row in rows])[order],
        rotations=quaternions_to_matrices(np.array([row.rotation for row in rows])[order]),
    )
    return annotations, np.searchsorted(frame[order], np.arange(len(frame_of) + 1))


def _read_files(folder: Path, frame_of: dict[str, int], label_files: dict[str, str]) -> _Files:
    """The camera and lidar files of the key frames with their poses."""
    channel_of = {row.token: row.channel for row in read_table(folder, Sensor)}
    calibrations = read_table(folder, CalibratedSensor)
    calibration_of = index_of(calibrations)
    rows = [row for row in read_table(folder, SampleData) if row.is_key_frame]
    mounted = positions((row.calibrated_sensor_token for row in rows), calibration_of, "calibrated_sensor")
    channels = [channel_of.get(calibrations[place].sensor_token, "") for place in mounted]
    used = [place for place, channel in enumerate(channels) if channel == LIDAR or channel.startswith("CAM_")]
    if not used:
        raise WorldError(f"{folder} has no key-frame file of a camera or of {LIDAR}")
    frame = positions((rows[place].sample_token for place in used), frame_of, "sample")
    used = [used[place] for place in np.lexsort((np.array([channels[place] for place in used]), frame))]
    rows, channels, mounted = [rows[p] for p in used], [channels[p] for p in used], mounted[used]
    rotations, translations_m = _poses(folder, [row.ego_pose_token for row in rows], calibrations, mounted)
    matrices = np.array([row.camera_intrinsic or np.eye(3) for row in calibrations])
    return _Files(
        starts=np.searchsorted(np.sort(frame), np.arange(len(frame_of) + 1)),
        channels=tuple(channels),
        names=tuple(row.filename for row in rows),
        label_names=tuple(label_files.get(row.token, "") for row in rows),
        sizes_px=np.array([(row.width, row.height) for row in rows]),
        intrinsics=matrices[mounted],
        rotations=rotations,
        translations_m=translations_m,
    )


def _poses(
    folder: Path, ego_tokens: list[str], calibrations: list[CalibratedSensor], mounted: Ints
) -> tuple[Floats, Floats]:
    """Rotations (S, 3, 3) and translations (S, 3), sensor to global: each file's own ego pose after its calibration."""
    wanted = set(ego_tokens)
    egos = [row for row in read_table(folder, EgoPose) if row.token in wanted]
    ego = positions(ego_tokens, index_of(egos), "ego_pose")
    ego_rotations = quaternions_to_matrices(np.array([row.rotation for row in egos]))[ego]
    ego_translations_m = np.array([row.translation for row in egos])[ego]
    rotations = quaternions_to_matrices(np.array([row.rotation for row in calibrations]))[mounted]
    translations_m = np.array([row.translation for row in calibrations])[mounted]
    turned_m = (ego_rotations @ translations_m[..., None])[..., 0]
    return ego_rotations @ rotations, turned_m + ego_translations_m
