"""Pure numpy geometry: rotations, box corners, projection, 2D boxes, headings, points in boxes.

Frames as in nuScenes: global z up; box x forward, y left, z up; camera x right, y down, z forward. Quaternions are
(w, x, y, z), box sizes (width, length, height), all lengths in metres.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NEAR_M = 0.1  # what lies nearer along the viewing axis, or behind, is cut off before projecting

# Four corners of the front face (x forward), then those of the rear, in the same order round the face.
_FACE = [(1, 1), (-1, 1), (-1, -1), (1, -1)]
_CORNER_SIGNS = np.array([(x, y, z) for x in (1, -1) for y, z in _FACE]) / 2
_RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
_EDGES = np.array(_RING + [(a + 4, b + 4) for a, b in _RING] + [(i, i + 4) for i in range(4)])


def quaternions_to_matrices(quaternions_wxyz: Floats) -> Floats:
    """Rotation matrices (..., 3, 3) of quaternions (..., 4), which need not be normalised."""
    quaternions = np.asarray(quaternions_wxyz, dtype=np.float64)
    w, x, y, z = np.moveaxis(quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def box_corners(centres_m: Floats, sizes_wlh_m: Floats, rotations: Floats) -> Floats:
    """The eight corners (N, 8, 3) of boxes with centres (N, 3), sizes (N, 3) and rotations (N, 3, 3)."""
    sizes_xyz_m = sizes_wlh_m[:, [1, 0, 2]]
    local_m = _CORNER_SIGNS * sizes_xyz_m[:, None, :]
    return local_m @ np.swapaxes(rotations, -1, -2) + centres_m[:, None, :]


def project(points_m: Floats, intrinsics: Floats) -> Floats:
    """Pixels (..., 2) of camera points (..., 3) that lie in front of the camera; intrinsics (..., 3, 3)."""
    homogeneous = (intrinsics @ points_m[..., None])[..., 0]
    return homogeneous[..., :2] / homogeneous[..., 2:]


def headings_rad(rotations_in_camera: Floats) -> Floats:
    """Heading over the ground of boxes with rotations (..., 3, 3) in the camera frame.

    atan2(v_x, v_z) of the forward axis: 0 along the optical axis, positive towards the image's right.
    """
    forward = rotations_in_camera[..., :, 0]
    return np.arctan2(forward[..., 0], forward[..., 2])


def image_boxes(corners_m: Floats, intrinsics: Floats, sizes_px: NDArray[np.int64]) -> Floats:
    """2D boxes (N, 4) of 3D boxes: bounds of the convex hull of the projected corners cut at the image.

    corners_m: (N, 8, 3) in the camera frame, in the order of `box_corners`; intrinsics (N, 3, 3); sizes_px (N, 2)
    width and height. Boxes that reach behind the camera are cut at NEAR_M along their edges. Rows of NaN where no
    part is in the image. For boxes wholly in front this is the devkit's `post_process_coords`.
    """
    boxes = np.full((len(corners_m), 4), np.nan)
    in_front = corners_m[..., 2] >= NEAR_M
    whole = in_front.all(axis=1)
    cut = in_front.any(axis=1) & ~whole
    for rows, vertices_m in ((whole, corners_m[whole]), (cut, _cut_at_near_plane(corners_m[cut]))):
        points_px = project(vertices_m, intrinsics[rows][:, None])
        boxes[rows] = _hull_bounds_in_image(points_px, sizes_px[rows])
    return boxes


def _cut_at_near_plane(corners_m: Floats) -> Floats:
    """Vertices (N, 20, 3) of what is left of each box beyond the near plane; unused places repeat a vertex."""
    start, end = corners_m[:, _EDGES[:, 0]], corners_m[:, _EDGES[:, 1]]
    depth_start, depth_end = start[..., 2], end[..., 2]
    crossing = (depth_start >= NEAR_M) != (depth_end >= NEAR_M)
    share = (NEAR_M - depth_start) / np.where(crossing, depth_end - depth_start, 1.0)
    vertices = np.concatenate([corners_m, start + share[..., None] * (end - start)], axis=1)
    used = np.concatenate([corners_m[..., 2] >= NEAR_M, crossing], axis=1)
    first_used = vertices[np.arange(len(vertices)), used.argmax(axis=1)]
    return np.where(used[..., None], vertices, first_used[:, None])


def _hull_bounds_in_image(points_px: Floats, sizes_px: NDArray[np.int64]) -> Floats:
    """Bounds (N, 4) of the convex hull of points (N, P, 2) cut at images (N, 2); NaN where they do not meet."""
    low, high = points_px.min(axis=1), points_px.max(axis=1)
    bounds = np.concatenate([low, high], axis=1)
    inside = (low >= 0).all(axis=1) & (high <= sizes_px).all(axis=1)
    apart = (high < 0).any(axis=1) | (low > sizes_px).any(axis=1)
    bounds[apart] = np.nan
    partly = ~inside & ~apart
    bounds[partly] = _cut_hull_bounds(points_px[partly], sizes_px[partly])
    return bounds


def _cut_hull_bounds(points_px: Floats, sizes_px: NDArray[np.int64]) -> Floats:
    """As `_hull_bounds_in_image`, for hulls that cross an image border.

    The vertices of hull and image cut with each other are the points inside the image and, for each border, the ends
    of the stretch of it that lies in the hull. All segments between two points lie in the hull and its edges are
    among them, so that this stretch runs from the lowest to the highest crossing.
    """
    inside = np.logical_and.reduce((points_px >= 0) & (points_px <= sizes_px[:, None]), axis=2)
    candidates = [np.where(inside[..., None], points_px, np.nan)]
    for axis in (0, 1):
        for border in (np.zeros(len(points_px)), sizes_px[:, axis].astype(np.float64)):
            candidates.append(_border_stretch(points_px, sizes_px[:, 1 - axis], axis, border))
    vertices = np.concatenate(candidates, axis=1)
    low = np.fmin.reduce(vertices, axis=1)  # unlike nanmin silent where all are NaN
    return np.concatenate([low, np.fmax.reduce(vertices, axis=1)], axis=1)


def _border_stretch(points_px: Floats, side_px: NDArray[np.int64], axis: int, border: Floats) -> Floats:
    """Both ends (N, 2, 2) of the part of an image border that lies in the hull of points (N, P, 2), or NaN.

    The border is the line where coordinate `axis` equals `border` (N,); the other coordinate runs from 0 to `side_px`.
    """
    first, second = np.triu_indices(points_px.shape[1], k=1)
    start, end = points_px[:, first], points_px[:, second]
    before, after = start[..., axis] - border[:, None], end[..., axis] - border[:, None]
    crossing = (before * after <= 0) & (before != after)
    share = before / np.where(crossing, before - after, 1.0)
    other = start[..., 1 - axis] + share * (end[..., 1 - axis] - start[..., 1 - axis])
    lowest = np.maximum(np.where(crossing, other, np.inf).min(axis=1), 0)
    highest = np.minimum(np.where(crossing, other, -np.inf).max(axis=1), side_px)
    ends = np.empty((len(points_px), 2, 2))
    ends[..., axis] = border[:, None]
    ends[..., 1 - axis] = np.stack([lowest, highest], axis=1)
    ends[lowest > highest] = np.nan
    return ends


def points_in_image_boxes(points_px: Floats, boxes_xyxy_px: Floats) -> Bools:
    """(N, P): which of the points (P, 2) lie in which of the boxes (N, 4), edges included."""
    low, high = boxes_xyxy_px[:, None, :2], boxes_xyxy_px[:, None, 2:]
    inside: Bools = np.logical_and.reduce((points_px >= low) & (points_px <= high), axis=2)
    return inside


def points_in_solid_boxes(points_m: Floats, centres_m: Floats, sizes_wlh_m: Floats, rotations: Floats) -> Bools:
    """(N, P): which of the points (P, 3) lie in which of the 3D boxes, all in one frame."""
    local_m = (points_m - centres_m[:, None]) @ rotations
    inside: Bools = np.logical_and.reduce(np.abs(local_m) <= sizes_wlh_m[:, None, [1, 0, 2]] / 2, axis=2)
    return inside
