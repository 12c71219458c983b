"""Lidar points per object: of its own class in its 2D box, or, without labels, inside its 3D box."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats, points_in_image_boxes, points_in_solid_boxes, project
from data_gen.nuscenes_tables import WorldError
from data_gen.world import Annotations, Cameras, Ints, LidarSweep

FLOATS_PER_POINT = 5  # x, y, z, intensity, ring
MIN_DEPTH_M = 1.0  # nearer points are returns from the car itself; the devkit cuts there too


def read_points(root: Path, sweep: LidarSweep) -> Floats:
    """The points (P, 3) of a sweep in the global frame. Raises WorldError when the file was cut short."""
    return _in_global(_read_values(root, sweep), sweep)


def read_points_of(root: Path, sweep: LidarSweep, classes: Ints) -> tuple[Floats, NDArray[np.uint8]]:
    """The points (P, 3) of some lidarseg classes in the global frame, and their labels (P,).

    Others, nine out of ten, are left out before anything is computed. Raises WorldError as `read_labels` does.
    """
    values = _read_values(root, sweep)
    labels = read_labels(root, sweep, len(values))
    is_wanted = np.zeros(256, dtype=bool)
    is_wanted[classes] = True
    wanted = is_wanted[labels]
    return _in_global(values[wanted], sweep), labels[wanted]


def _read_values(root: Path, sweep: LidarSweep) -> NDArray[np.float32]:
    path = root / sweep.file_name
    values = np.fromfile(path, dtype=np.float32)
    if values.size == 0 or values.size % FLOATS_PER_POINT or path.stat().st_size % 4:
        raise WorldError(f"the lidar file {path} is cut short: {path.stat().st_size} bytes are no whole points")
    return values.reshape(-1, FLOATS_PER_POINT)


def _in_global(values: NDArray[np.float32], sweep: LidarSweep) -> Floats:
    moved: Floats = values[:, :3].astype(np.float64) @ sweep.rotation.T + sweep.translation_m
    return moved


def read_labels(root: Path, sweep: LidarSweep, point_count: int) -> NDArray[np.uint8]:
    """One lidarseg class per point. Raises WorldError when the file does not have one for each."""
    path = root / sweep.label_file_name
    labels = np.fromfile(path, dtype=np.uint8)
    if len(labels) != point_count:
        raise WorldError(f"the label file {path} has {len(labels)} labels for {point_count} lidar points")
    return labels


def count_own_class(
    points_m: Floats, point_labels: NDArray[np.uint8], cameras: Cameras, camera: int, boxes_px: Floats, labels: Ints
) -> Ints:
    """How many points (P, 3) of its own class lie in each 2D box (N, 4) of one camera of the key frame."""
    in_camera_m = points_m @ cameras.rotations[camera].T + cameras.translations_m[camera]
    ahead = in_camera_m[:, 2] > MIN_DEPTH_M
    points_px = project(in_camera_m[ahead], cameras.intrinsics[camera])
    own = point_labels[ahead] == labels[:, None]
    return (points_in_image_boxes(points_px, boxes_px) & own).sum(axis=1)


def count_inside(points_m: Floats, annotations: Annotations, indices: Ints) -> Ints:
    """How many points (P, 3) lie inside the 3D box of each of the chosen annotations."""
    boxes = annotations.centres_m[indices], annotations.sizes_wlh_m[indices], annotations.rotations[indices]
    return points_in_solid_boxes(points_m, *boxes).sum(axis=1)
