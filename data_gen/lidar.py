"""Lidar points per object: of its own class in its 2D box, or, without labels, inside its 3D box."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Floats
from data_gen.lidar_files import read_point_labels, read_values
from data_gen.world import Annotations, Ints, KeyFrame, LidarSweep

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
    places, points_px, point_ends = _points_in_images(points_m, frame)
    point_labels = point_labels.take(places)
    order = np.argsort(boxes.cameras, kind="stable")
    borders_px = boxes.boxes_xyxy_px[order].T[..., None]
    labels = boxes.labels[order].astype(np.uint8)[:, None]  # of one byte, as the points': no conversion per pair
    box_ends = np.searchsorted(boxes.cameras[order], np.arange(len(point_ends))).tolist()
    for camera, (start, end) in enumerate(pairwise(point_ends)):
        rows = slice(box_ends[camera], box_ends[camera + 1])
        x1, y1, x2, y2 = borders_px[:, rows]
        x_px, y_px = points_px[:, start:end]
        inside = (x_px >= x1) & (x_px <= x2) & (y_px >= y1) & (y_px <= y2)
        counts[order[rows]] = np.add.reduce(inside & (point_labels[start:end] == labels[rows]), axis=1)
    return counts


def _points_in_images(points_m: NDArray[np.float32], frame: KeyFrame) -> tuple[Ints, Floats, list[int]]:
    """Which of P points are in images, camera by camera: places (Q,), pixels (2, Q), and where each camera's begin.

    All cameras are computed in one product of two matrices. Borders are compared before dividing by the depth, as few
    points are in any one image. The last of the C + 1 places where cameras begin is Q.
    """
    matrices, offsets = _lidar_to_images(frame)
    homogeneous = matrices.reshape(-1, 3) @ points_m.T.astype(np.float64, order="C")
    homogeneous += offsets.reshape(-1, 1)  # in place: a second array of this size would cost more than the product
    homogeneous = homogeneous.reshape(*offsets.shape, len(points_m))
    x, y, depth_m = homogeneous
    width_px, height_px = frame.cameras.sizes_px.T[..., None]
    ahead = (depth_m > MIN_DEPTH_M) & (x >= 0) & (y >= 0)
    flat = np.flatnonzero(ahead & (x <= width_px * depth_m) & (y <= height_px * depth_m))
    x, y, depth_m = homogeneous.reshape(3, -1).take(flat, axis=1)
    ends = np.searchsorted(flat, np.arange(offsets.shape[1] + 1) * len(points_m))
    return flat % len(points_m), np.stack([x / depth_m, y / depth_m]), ends.tolist()


def _lidar_to_images(frame: KeyFrame) -> tuple[Floats, Floats]:
    """Matrices (3, C, 3) and offsets (3, C) from lidar points to homogeneous image coordinates (u z, v z, z)."""
    cameras, lidar = frame.cameras, frame.lidar
    moved_m = cameras.rotations @ lidar.translation_m + cameras.translations_m
    matrices = cameras.intrinsics @ cameras.rotations @ lidar.rotation
    return np.moveaxis(matrices, 1, 0), (cameras.intrinsics @ moved_m[..., None])[..., 0].T


def read_points(root: Path, sweep: LidarSweep) -> Floats:
    """The points (P, 3) of a sweep in the global frame. Raises WorldError when the file was cut short."""
    values = read_values(root / sweep.file_name)
    moved: Floats = values[:, :3].astype(np.float64) @ sweep.rotation.T + sweep.translation_m
    return moved


def read_labels(root: Path, sweep: LidarSweep, points: int) -> NDArray[np.uint8]:
    """One lidarseg class per point. Raises WorldError when the file does not have one for each."""
    return read_point_labels(root / sweep.label_file_name, points)


def count_inside(points_m: Floats, annotations: Annotations, indices: Ints) -> Ints:
    """How many points (P, 3), in the global frame, lie inside the 3D box of each of the chosen annotations."""
    x_m, y_m = np.ascontiguousarray(points_m.T[:2])
    counts = np.zeros(len(indices), dtype=np.int64)
    for place, index in enumerate(indices.tolist()):
        centre_m, size_wlh_m = annotations.centres_m[index], annotations.sizes_wlh_m[index]
        reach_m = np.linalg.norm(size_wlh_m) / 2  # no point of the box is farther off, however it is turned
        near = np.flatnonzero((np.abs(x_m - centre_m[0]) <= reach_m) & (np.abs(y_m - centre_m[1]) <= reach_m))
        local_m = (points_m.take(near, axis=0) - centre_m) @ annotations.rotations[index]
        counts[place] = np.logical_and.reduce(np.abs(local_m) <= size_wlh_m[[1, 0, 2]] / 2, axis=1).sum()
    return counts
