"""The camera and lidar files of the key frames of a nuScenes-format folder as arrays, with poses and camera matrices.

Every sensor has its own ego pose: sensors of one key frame fire up to 50 ms apart, and using another's shifts boxes by
the distance driven meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats, quaternions_to_matrices
from data_gen.nuscenes_tables import (
    CalibratedSensor,
    EgoPose,
    Lidarseg,
    SampleData,
    Sensor,
    WorldError,
    index_of,
    positions,
    read_batches,
    read_table,
)
from data_gen.world_arrays import Codes, Ints, Texts, check_rotations, texts

LIDAR = "LIDAR_TOP"
CAMERA_PREFIX = "CAM_"
UNUSED = -1


@dataclass(frozen=True)
class CameraRows:
    """The S camera images, key frame by key frame (`starts`) and by channel; poses are global to camera."""

    starts: Ints  # (F + 1,)
    channels: Codes  # (S,) into the tuple
    channel_names: tuple[str, ...]
    file_names: Texts  # (S,)
    sizes_px: Ints  # (S, 2) width, height
    intrinsics: Floats  # (S, 3, 3)
    rotations: Floats  # (S, 3, 3)
    translations_m: Floats  # (S, 3)


@dataclass(frozen=True)
class LidarRows:
    """One lidar sweep per key frame, with its labels where there are any; poses are lidar to global."""

    file_names: Texts  # (F,)
    label_file_names: Texts  # (F,)
    rotations: Floats  # (F, 3, 3)
    translations_m: Floats  # (F, 3)


@dataclass(frozen=True)
class _Mounts:
    """calibrated_sensor.json: the M mounted sensors. Channels are codes into the used ones, UNUSED for others."""

    place_of: dict[str, int]
    channels: Codes  # (M,)
    channel_names: tuple[str, ...]  # sorted
    intrinsics: Floats  # (M, 3, 3)
    rotations: Floats  # (M, 3, 3) sensor to vehicle
    translations_m: Floats  # (M, 3)


@dataclass(frozen=True)
class _Files:
    """Some rows of sample_data.json with their key frames, channels and places among the mounts."""

    rows: list[SampleData]
    frames: Codes
    channels: Codes
    mounts: Codes

    def chosen(self, places: NDArray[np.intp]) -> _Files:
        """Some of the files, in an order."""
        rows = [self.rows[place] for place in places]
        return _Files(rows, self.frames[places], self.channels[places], self.mounts[places])


def read_label_files(folder: Path) -> dict[str, str]:
    """Label file of each lidar file by token."""
    return {row.sample_data_token: row.filename for row in read_table(folder, Lidarseg)}


def read_sensor_files(
    folder: Path, frame_of: dict[str, int], label_files: dict[str, str]
) -> tuple[CameraRows, LidarRows]:
    """The files of the key frames; `frame_of` says which key frame a sample token is.

    Raises WorldError naming a key frame that lacks cameras or lidar or has two files of one channel, and a row whose
    numbers cannot be right.
    """
    mounts = _read_mounts(folder)
    files = _key_frame_files(folder, mounts, frame_of)
    is_lidar = np.array(mounts.channel_names)[files.channels] == LIDAR
    sweeps, images = files.chosen(np.flatnonzero(is_lidar)), files.chosen(np.flatnonzero(~is_lidar))
    _check_complete(sweeps, frame_of, LIDAR)
    _check_complete(images, frame_of, "camera")
    _check_names(images)
    rotations, translations_m = _poses(folder, files, mounts)
    lidars = LidarRows(
        file_names=texts([row.filename for row in sweeps.rows]),
        label_file_names=texts([label_files.get(row.token, "") for row in sweeps.rows]),
        rotations=rotations[is_lidar],
        translations_m=translations_m[is_lidar],
    )
    return _camera_rows(images, mounts, len(frame_of), rotations[~is_lidar], translations_m[~is_lidar]), lidars


def _camera_rows(
    images: _Files, mounts: _Mounts, frame_count: int, rotations: Floats, translations_m: Floats
) -> CameraRows:
    """The images with their poses (S, 3, 3) and (S, 3) from camera to global, which are turned round here."""
    sizes_px = np.array([(row.width, row.height) for row in images.rows])
    if (sizes_px <= 0).any():
        row = images.rows[int((sizes_px <= 0).any(axis=1).argmax())]
        raise WorldError(f"sample_data.json says that {row.filename} is {row.width}x{row.height} pixels")
    inverse = np.ascontiguousarray(np.swapaxes(rotations, -1, -2))
    return CameraRows(
        starts=np.searchsorted(images.frames, np.arange(frame_count + 1)),
        channels=images.channels,
        channel_names=mounts.channel_names,
        file_names=texts([row.filename for row in images.rows]),
        sizes_px=sizes_px,
        intrinsics=mounts.intrinsics[images.mounts],
        rotations=inverse,
        translations_m=-(inverse @ translations_m[..., None])[..., 0],
    )


def _read_mounts(folder: Path) -> _Mounts:
    channel_of = {row.token: row.channel for row in read_table(folder, Sensor)}
    rows = read_table(folder, CalibratedSensor)
    channels = [channel_of.get(row.sensor_token, "") for row in rows]
    used = sorted({channel for channel in channels if channel == LIDAR or channel.startswith(CAMERA_PREFIX)})
    tokens = texts([row.token for row in rows])
    quaternions = np.array([row.rotation for row in rows]).reshape(-1, 4)
    check_rotations(quaternions, tokens, "calibrated_sensor.json")
    return _Mounts(
        place_of=index_of(rows),
        channels=np.array([used.index(channel) if channel in used else UNUSED for channel in channels], dtype=np.int32),
        channel_names=tuple(used),
        intrinsics=np.array([_camera_matrix(*item) for item in zip(rows, channels, strict=True)]).reshape(-1, 3, 3),
        rotations=quaternions_to_matrices(quaternions),
        translations_m=np.array([row.translation for row in rows]).reshape(-1, 3),
    )


def _camera_matrix(row: CalibratedSensor, channel: str) -> list[list[float]]:
    """The 3x3 matrix of a camera, of anything else the identity. Raises WorldError when it is no camera matrix."""
    matrix = row.camera_intrinsic
    if not channel.startswith(CAMERA_PREFIX):
        return np.eye(3).tolist()
    if [len(line) for line in matrix] == [3, 3, 3] and matrix[2] == [0, 0, 1] and min(matrix[0][0], matrix[1][1]) > 0:
        return matrix
    raise WorldError(
        f"the camera_intrinsic of calibrated_sensor.json row {row.token!r} ({channel}) is {matrix}; needed: three rows "
        "of three, focal lengths above 0, the last row 0 0 1"
    )


def _key_frame_files(folder: Path, mounts: _Mounts, frame_of: dict[str, int]) -> _Files:
    """The files of cameras and lidar, by key frame and channel."""
    files = [_used(rows, mounts, frame_of) for rows in read_batches(folder, SampleData)]
    rows = [row for part in files for row in part.rows]
    if not rows:
        raise WorldError(f"{folder} has no key-frame file of a camera or of {LIDAR}")
    frames, channels, places = (
        np.concatenate(columns)
        for columns in zip(*((part.frames, part.channels, part.mounts) for part in files), strict=True)
    )
    sorted_files = _Files(rows, frames, channels, places).chosen(np.lexsort((channels, frames)))
    _check_distinct(sorted_files)
    return sorted_files


def _used(rows: list[SampleData], mounts: _Mounts, frame_of: dict[str, int]) -> _Files:
    """Those of some rows that are of a key frame and a used channel."""
    rows = [row for row in rows if row.is_key_frame]
    places = positions((row.calibrated_sensor_token for row in rows), mounts.place_of, "calibrated_sensor")
    used = np.flatnonzero(mounts.channels[places] != UNUSED)
    rows, places = [rows[place] for place in used], places[used]
    frames = positions((row.sample_token for row in rows), frame_of, "sample")
    return _Files(rows, frames, mounts.channels[places], places)


def _check_distinct(files: _Files) -> None:
    """Raise WorldError naming a key frame with two files of one channel."""
    same = (np.diff(files.frames) == 0) & (np.diff(files.channels) == 0)
    if same.any():
        first, second = files.rows[int(same.argmax())], files.rows[int(same.argmax()) + 1]
        raise WorldError(
            f"sample_data.json has two key-frame files of one channel for the key frame {first.sample_token}: "
            f"{first.filename} and {second.filename}; only one of them can be right"
        )


def _check_names(files: _Files) -> None:
    """Raise WorldError naming a file that two rows claim."""
    names, counts = np.unique([row.filename for row in files.rows], return_counts=True)
    if len(names) < len(files.rows):
        raise WorldError(f"sample_data.json names the file {names[counts.argmax()]} for two key-frame rows")


def _check_complete(files: _Files, frame_of: dict[str, int], what: str) -> None:
    """Raise WorldError naming a key frame that none of the files is of."""
    lacking = np.setdiff1d(np.arange(len(frame_of)), files.frames)
    if len(lacking):
        token = list(frame_of)[int(lacking[0])]
        raise WorldError(f"key frame {token} has no {what} in sample_data.json ({len(lacking)} key frames like this)")


def _poses(folder: Path, files: _Files, mounts: _Mounts) -> tuple[Floats, Floats]:
    """Rotations (S, 3, 3) and translations (S, 3), sensor to global: each file's own ego pose after its calibration."""
    numbers = _read_ego_poses(folder, [row.ego_pose_token for row in files.rows])
    ego_rotations = quaternions_to_matrices(numbers[:, 3:])
    turned_m = (ego_rotations @ mounts.translations_m[files.mounts][..., None])[..., 0]
    return ego_rotations @ mounts.rotations[files.mounts], turned_m + numbers[:, :3]


def _read_ego_poses(folder: Path, tokens: list[str]) -> Floats:
    """Translation and rotation (S, 7) of each of the ego poses; those of other moments are left out while reading."""
    place_of = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
    numbers = np.full((len(place_of), 7), np.nan)
    for rows in read_batches(folder, EgoPose):
        rows = [row for row in rows if row.token in place_of]
        if rows:
            places = [place_of[row.token] for row in rows]
            numbers[places] = [row.translation + row.rotation for row in rows]
    if np.isnan(numbers[:, 0]).any():
        lacking = list(place_of)[int(np.isnan(numbers[:, 0]).argmax())]
        raise WorldError(f"ego_pose.json lacks the token {lacking!r}, which another table refers to")
    check_rotations(numbers[:, 3:], texts(list(place_of)), "ego_pose.json")
    return numbers[[place_of[token] for token in tokens]]
