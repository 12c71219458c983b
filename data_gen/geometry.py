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
# What a cut leaves has the eight corners and a point on each edge; its own edges are among all pairs of these.
_CUT_EDGES = np.stack(np.triu_indices(8 + len(_EDGES), k=1), axis=1)


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


def meet_image(corners: Floats, sizes_px: NDArray[np.int64]) -> Bools:
    """False (..., N) for boxes of which certainly no part is in the image: a quick look before `image_boxes`.

    corners: (3, ..., 8, N) homogeneous image coordinates, as for `image_boxes`; sizes_px (2, ..., 1). A box is out when
    all its corners are beyond one border of the image, seen as a plane through the camera, or nearer than NEAR_M.
    """
    x, y, depth_m = corners
    width_px, height_px = sizes_px[:, ..., None]
    within = (x >= 0, y >= 0, x <= width_px * depth_m, y <= height_px * depth_m, depth_m >= NEAR_M)
    meets: Bools = np.logical_and.reduce([np.logical_or.reduce(side, axis=-2) for side in within])
    return meets


def image_boxes(corners: Floats, sizes_px: NDArray[np.int64]) -> Floats:
    """2D boxes (N, 4) of 3D boxes: bounds of the convex hull of the projected corners cut at the image.

    corners: (3, 8, N) homogeneous image coordinates (u z, v z, z), that is the intrinsics times camera coordinates, in
    the order of `box_corners`; sizes_px: (2, N) width and height. Boxes that reach behind the camera are cut at NEAR_M
    along their edges. Rows of NaN where no part is in the image. For boxes wholly in front this is the devkit's
    `post_process_coords`. Boxes come last, as arrays are fastest along their last axis.
    """
    bounds = np.full((4, corners.shape[-1]), np.nan)
    in_front = np.add.reduce(corners[2] >= NEAR_M)
    whole, cut = np.flatnonzero(in_front == 8), np.flatnonzero((in_front > 0) & (in_front < 8))
    if len(whole):
        vertices = corners.take(whole, axis=2)
        bounds[:, whole] = _hull_bounds_in_image(vertices, _EDGES, sizes_px.take(whole, axis=1))
    if len(cut):
        vertices = _cut_at_near_plane(corners.take(cut, axis=2))
        bounds[:, cut] = _hull_bounds_in_image(vertices, _CUT_EDGES, sizes_px.take(cut, axis=1))
    return bounds.T


def _cut_at_near_plane(corners: Floats) -> Floats:
    """Vertices (3, 20, N) of what is left of each box beyond the near plane; unused places repeat a vertex."""
    start, end = corners[:, _EDGES[:, 0]], corners[:, _EDGES[:, 1]]
    crossing = (start[2] >= NEAR_M) != (end[2] >= NEAR_M)
    share = (NEAR_M - start[2]) / np.where(crossing, end[2] - start[2], 1.0)
    vertices = np.concatenate([corners, start + share * (end - start)], axis=1)
    used = np.concatenate([corners[2] >= NEAR_M, crossing])
    first_used = vertices[:, used.argmax(axis=0), np.arange(used.shape[1])]
    return np.where(used, vertices, first_used[:, None])


def _hull_bounds_in_image(vertices: Floats, edges: NDArray[np.int64], sizes_px: NDArray[np.int64]) -> Floats:
    """Bounds (4, N) of the convex hulls of vertices (3, P, N), projected and cut at images (2, N).

    edges: (E, 2) pairs of vertices among which are all edges of every hull. NaN where hull and image do not meet.

    What two opposite borders leave of a hull is convex, and its vertices are ends of hull edges cut at these borders.
    The range of these ends along the borders, cut at the other two, is therefore that of the hull in the image.
    """
    points_px = vertices[:2] / vertices[2]
    start = points_px[:, edges[:, 0]]
    run = points_px[:, edges[:, 1]] - start  # (2, E, N)
    with np.errstate(divide="ignore", invalid="ignore"):  # edges that run along a border: infinite shares
        at_low, at_high = -start / run, (sizes_px[:, None] - start) / run
        enter, leave = np.maximum(np.fmin(at_low, at_high), 0), np.minimum(np.fmax(at_low, at_high), 1)
        ends = start[::-1] + np.stack([enter, leave]) * run[::-1]  # the coordinate along the borders
    left = enter <= leave
    low = np.where(left, np.minimum.reduce(ends), np.inf).min(axis=1)[::-1]
    high = np.where(left, np.maximum.reduce(ends), -np.inf).max(axis=1)[::-1]
    bounds = np.concatenate([np.maximum(low, 0), np.minimum(high, sizes_px)])
    bounds[:, np.logical_or.reduce(bounds[:2] > bounds[2:])] = np.nan
    return bounds
