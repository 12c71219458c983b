"""What every camera sees of every box, and the lidar points in it: by a plain loop over the devkit, and by ours.

Both give the same table: (sample_data token of the camera, annotation token) -> box x1, y1, x2, y2 (px), depth and
distance (m), heading (rad), lidar points in the box. Boxes and points count as the devkit has it: a box is visible when
some corner is in the image, more than 1 m away, and all corners are more than 0.1 m ahead; a point when it is more than
1 m away and more than one pixel inside the image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from data_gen.geometry import box_corners
from data_gen.lidar import ImageBoxes, count_in_image_boxes, count_own_class_points
from data_gen.lidar_files import read_values
from data_gen.views import seen_objects, views_of
from data_gen.world import KeyFrame, World

Seen = dict[tuple[str, str], list[float]]
BoxRule = Callable[[np.ndarray], Any]  # projected corners (8, 2) -> x1, y1, x2, y2
WIDTH_PX, HEIGHT_PX = 1600, 900


def clipped_bounds(corners_px: np.ndarray) -> tuple[float, float, float, float]:
    """Bounds of the corners, clipped to the image: the cheapest 2D box."""
    (x1, y1), (x2, y2) = corners_px.min(axis=0), corners_px.max(axis=0)
    return max(x1, 0), max(y1, 0), min(x2, WIDTH_PX), min(y2, HEIGHT_PX)


def hull_in_image(corners_px: np.ndarray) -> tuple[float, float, float, float]:
    """The devkit's own 2D box: bounds of the convex hull cut at the image."""
    from nuscenes.scripts.export_2d_annotations_as_json import post_process_coords

    return post_process_coords(corners_px.tolist(), (WIDTH_PX, HEIGHT_PX))  # type: ignore[no-any-return]


def devkit_frame(nusc: Any, sample: dict[str, Any], box_rule: BoxRule) -> Seen:
    """One key frame by the devkit's functions, camera by camera and box by box."""
    from nuscenes.utils.geometry_utils import BoxVisibility, view_points

    seen: Seen = {}
    for channel, camera in sample["data"].items():
        if not channel.startswith("CAM_"):
            continue
        _, boxes, matrix = nusc.get_sample_data(camera, box_vis_level=BoxVisibility.ANY)
        (x, y, _), _, _ = nusc.explorer.map_pointcloud_to_image(sample["data"]["LIDAR_TOP"], camera)
        for box in boxes:
            x1, y1, x2, y2 = box_rule(view_points(box.corners(), matrix, normalize=True)[:2].T)
            forward = box.orientation.rotation_matrix[:, 0]
            points = ((x >= x1) & (x <= x2) & (y >= y1) & (y <= y2)).sum()
            distance_m, yaw_rad = np.linalg.norm(box.center), np.arctan2(forward[0], forward[2])
            seen[camera, box.token] = [x1, y1, x2, y2, box.center[2], distance_m, yaw_rad, points]
    return seen


def our_frame(world: World, frame: KeyFrame) -> tuple[list[tuple[int, str]], np.ndarray]:
    """The same work by ours: (camera, annotation token) of each row, and the rows (M, 8) of the table."""
    seen = seen_objects(frame)
    visible = devkit_visible(frame, seen.cameras, seen.indices)
    cameras, indices, boxes_px = seen.cameras[visible], seen.indices[visible], seen.boxes_xyxy_px[visible]
    values = read_values(world.root / frame.lidar.file_name)
    sizes_px = frame.cameras.sizes_px[cameras]
    inner_px = np.hstack([np.maximum(boxes_px[:, :2], 1), np.minimum(boxes_px[:, 2:], sizes_px - 1)])
    any_class = ImageBoxes(cameras, inner_px, np.zeros(len(cameras), dtype=np.int64))
    points = count_in_image_boxes(values[:, :3], np.zeros(len(values), dtype=np.uint8), frame, any_class)
    centres_m = seen.centres_m[visible]
    columns = (centres_m[:, 2], np.linalg.norm(centres_m, axis=1), seen.yaws_rad[visible], points)
    tokens = [frame.annotations.tokens[index] for index in indices.tolist()]
    return list(zip(cameras.tolist(), tokens, strict=True)), np.column_stack([boxes_px, *columns])


def devkit_visible(frame: KeyFrame, cameras: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Which of M objects seen by ours, in `cameras` (M,) and with annotations `indices` (M,), the devkit shows too."""
    boxes, rig = frame.annotations, frame.cameras
    corners_m = box_corners(boxes.centres_m, boxes.sizes_wlh_m, boxes.rotations)[indices]
    matrices, offsets = rig.intrinsics @ rig.rotations, rig.intrinsics @ rig.translations_m[..., None]
    x, y, depth_m = np.moveaxis(corners_m @ np.swapaxes(matrices, 1, 2)[cameras] + offsets[cameras, None, :, 0], 2, 0)
    width_px, height_px = rig.sizes_px[cameras].T[..., None]
    inside = (depth_m > 1) & (x > 0) & (y > 0) & (x < width_px * depth_m) & (y < height_px * depth_m)
    return inside.any(axis=1) & (depth_m > 0.1).all(axis=1)


def our_class_filtered_frame(world: World, frame: KeyFrame) -> np.ndarray:
    """The builder's work: every view, and for each object the points of its own class."""
    views = views_of(frame)
    return count_own_class_points(
        world.root,
        frame,
        np.repeat([view.camera for view in views], [len(view) for view in views]),
        np.concatenate([view.indices for view in views]),
        np.concatenate([view.boxes_xyxy_px for view in views]),
    )
