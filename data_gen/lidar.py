"""Lidar points per object: of its own class in its 2D box, or, without labels, inside its 3D box."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats, points_in_image_boxes, points_in_solid_boxes, project
from data_gen.lidar_files import read_point_labels, read_values
from data_gen.world import Annotations, Cameras, Ints, KeyFrame, LidarSweep

MIN_DEPTH_M = 1.0  # nearer points are returns from the car itself; the devkit cuts there too


@dataclass(frozen=True)
class ImageBoxes:
    """M 2D boxes in the images of one key frame, each with the lidarseg class whose points count."""

    cameras: Ints  # (M,) places among the cameras of the key frame
    boxes_xyxy_px: Floats  # (M, 4)
    labels: Ints  # (M,)


def count_own_class_points(root: Path, frame: KeyFrame, cameras: Ints, indices: Ints, boxes_xyxy_px: Floats) -> Ints:
    """How many lidar points of its own class lie in each of M objects' 2D boxes, in any cameras of the key frame.

    cameras (M,) and indices (M,) point into the cameras and the annotations of the key frame; boxes_xyxy_px (M, 4).
    The lidar file is read once, and points of classes that no object has, nine out of ten, are left out before
    anything is computed. Raises WorldError as `read_labels` does.
    """
    labels = frame.annotations.labels[indices]
    values = read_values(root / frame.lidar.file_name)
    point_labels = read_labels(root, frame.lidar, len(values))
    is_wanted = np.zeros(256, dtype=bool)
    is_wanted[labels] = True
    wanted = np.flatnonzero(is_wanted.take(point_labels))
    points_m = values.take(wanted, axis=0)[:, :3]
    return count_in_image_boxes(points_m, point_labels.take(wanted), frame, ImageBoxes(cameras, boxes_xyxy_px, labels))


def count_in_image_boxes(
    points_m: NDArray[np.float32], point_labels: NDArray[np.uint8], frame: KeyFrame, boxes: ImageBoxes
) -> Ints:
    """How many points (P, 3), in the lidar's frame and with labels (P,), lie in each 2D box and have its label."""
    counts = np.zeros(len(boxes.cameras), dtype=np.int64)
    columns_m = points_m.T.astype(np.float64, order="C")
    matrices, offsets = _lidar_to_images(frame)
    for camera in np.unique(boxes.cameras):
        rows = np.flatnonzero(boxes.cameras == camera)
        points = matrices[camera] @ columns_m
        points += offsets[camera]
        counts[rows] = _count_in_one_image(points, point_labels, boxes.boxes_xyxy_px[rows], boxes.labels[rows])
    return counts


def _lidar_to_images(frame: KeyFrame) -> tuple[Floats, Floats]:
    """Matrices (C, 3, 3) and offsets (C, 3, 1) from lidar points to homogeneous image coordinates of each camera."""
    cameras, lidar = frame.cameras, frame.lidar
    moved_m = cameras.rotations @ lidar.translation_m + cameras.translations_m
    return cameras.intrinsics @ cameras.rotations @ lidar.rotation, cameras.intrinsics @ moved_m[..., None]


def _count_in_one_image(
    points: Floats, point_labels: NDArray[np.uint8], boxes_xyxy_px: Floats, labels: Ints
) -> NDArray[np.intp]:
    """As `count_in_image_boxes`, for points (3, P) in homogeneous image coordinates (u z, v z, z) of one camera."""
    x, y, depth_m = points
    left, top = boxes_xyxy_px[:, :2].min(axis=0)
    right, bottom = boxes_xyxy_px[:, 2:].max(axis=0)
    # Only what lies between the outermost borders of the boxes is divided and compared with each of them.
    across = (x >= left * depth_m) & (x <= right * depth_m) & (depth_m > MIN_DEPTH_M)
    near_boxes = np.flatnonzero(across & (y >= top * depth_m) & (y <= bottom * depth_m))
    depth_m = depth_m.take(near_boxes)
    x_px, y_px = x.take(near_boxes) / depth_m, y.take(near_boxes) / depth_m
    x1, y1, x2, y2 = boxes_xyxy_px.T[..., None]
    own = point_labels.take(near_boxes) == labels[:, None]
    return np.count_nonzero((x_px >= x1) & (x_px <= x2) & (y_px >= y1) & (y_px <= y2) & own, axis=1)


def read_points(root: Path, sweep: LidarSweep) -> Floats:
    """The points (P, 3) of a sweep in the global frame. Raises WorldError when the file was cut short."""
    return _in_global(read_values(root / sweep.file_name), sweep)


def read_points_of(root: Path, sweep: LidarSweep, classes: Ints) -> tuple[Floats, NDArray[np.uint8]]:
    """The points (P, 3) of some lidarseg classes in the global frame, and their labels (P,).

    Others, nine out of ten, are left out before anything is computed. Raises WorldError as `read_labels` does.
    """
    values = read_values(root / sweep.file_name)
    labels = read_labels(root, sweep, len(values))
    is_wanted = np.zeros(256, dtype=bool)
    is_wanted[classes] = True
    wanted = is_wanted[labels]
    return _in_global(values[wanted], sweep), labels[wanted]


def _in_global(values: NDArray[np.float32], sweep: LidarSweep) -> Floats:
    moved: Floats = values[:, :3].astype(np.float64) @ sweep.rotation.T + sweep.translation_m
    return moved


def read_labels(root: Path, sweep: LidarSweep, points: int) -> NDArray[np.uint8]:
    """One lidarseg class per point. Raises WorldError when the file does not have one for each."""
    return read_point_labels(root / sweep.label_file_name, points)


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
