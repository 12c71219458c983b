"""Which annotated objects each camera of a key frame sees, and where: the input of the filters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Bools, Floats, box_corners, headings_rad, image_boxes, meet_image, project
from data_gen.world import Ints, KeyFrame

PIXEL_DECIMALS, METRE_DECIMALS, RADIAN_DECIMALS = 2, 4, 6


@dataclass(frozen=True)
class View:
    """The N objects of which some part is in one camera's image, rounded as the records store them.

    `indices` point into the annotations of the key frame. Centres are in the camera frame; `pixels` are their
    projections and NaN for a centre that is not ahead of the camera.
    """

    camera: int
    size_px: tuple[int, int]
    indices: Ints
    categories: NDArray[np.str_]
    boxes_xyxy_px: Floats  # (N, 4)
    pixels: Floats  # (N, 2)
    centres_m: Floats  # (N, 3)
    yaws_rad: Floats  # (N,)

    def __len__(self) -> int:
        return len(self.indices)

    def subset(self, chosen: Bools) -> View:
        """The chosen objects only."""
        return View(
            self.camera, self.size_px, self.indices[chosen], self.categories[chosen], self.boxes_xyxy_px[chosen],
            self.pixels[chosen], self.centres_m[chosen], self.yaws_rad[chosen],
        )  # fmt: skip


@dataclass(frozen=True)
class SeenObjects:
    """The M objects of which some part is in an image of a key frame, camera by camera, exact.

    `cameras` and `indices` point into the cameras and the annotations of the key frame. Centres are in the camera
    frame; `pixels` are their projections and NaN for a centre that is not ahead of the camera.
    """

    cameras: Ints  # (M,)
    indices: Ints  # (M,)
    boxes_xyxy_px: Floats  # (M, 4)
    pixels: Floats  # (M, 2)
    centres_m: Floats  # (M, 3)
    yaws_rad: Floats  # (M,)


def views_of(frame: KeyFrame) -> list[View]:
    """One view per camera of a key frame."""
    seen = seen_objects(frame)
    categories = frame.annotations.categories[seen.indices]
    boxes_px, pixels = seen.boxes_xyxy_px.round(PIXEL_DECIMALS), seen.pixels.round(PIXEL_DECIMALS)
    centres_m, yaws_rad = seen.centres_m.round(METRE_DECIMALS), seen.yaws_rad.round(RADIAN_DECIMALS)
    sizes_px = frame.cameras.sizes_px.tolist()
    ends = np.searchsorted(seen.cameras, np.arange(len(sizes_px) + 1)).tolist()
    return [
        View(
            camera, (size_px[0], size_px[1]), seen.indices[start:end], categories[start:end], boxes_px[start:end],
            pixels[start:end], centres_m[start:end], yaws_rad[start:end],
        )
        for camera, (size_px, start, end) in enumerate(zip(sizes_px, ends, ends[1:], strict=False))
    ]  # fmt: skip


def seen_objects(frame: KeyFrame) -> SeenObjects:
    """What the cameras of a key frame see of its annotations."""
    sizes_px = frame.cameras.sizes_px.T
    corners = _corners_in_images(frame)
    cameras, indices = np.nonzero(meet_image(corners, sizes_px[..., None]))
    boxes_px = image_boxes(np.moveaxis(corners[:, cameras, :, indices], 0, -1), sizes_px[:, cameras])
    seen = np.flatnonzero(~np.isnan(boxes_px[:, 0]))
    cameras, indices, boxes_px = cameras[seen], indices[seen], boxes_px[seen]
    rotations, boxes = frame.cameras.rotations[cameras], frame.annotations
    centres_m = (rotations @ boxes.centres_m[indices, :, None])[..., 0] + frame.cameras.translations_m[cameras]
    ahead_m = np.where(centres_m[:, 2:] > 0, centres_m, np.nan)
    return SeenObjects(
        cameras, indices, boxes_px,
        pixels=project(ahead_m, frame.cameras.intrinsics[cameras]),
        centres_m=centres_m,
        yaws_rad=headings_rad(rotations @ boxes.rotations[indices]),
    )  # fmt: skip


def _corners_in_images(frame: KeyFrame) -> Floats:
    """Homogeneous image coordinates (3, C, 8, N) of the corners of all annotations in all cameras."""
    cameras, boxes = frame.cameras, frame.annotations
    corners_m = box_corners(boxes.centres_m, boxes.sizes_wlh_m, boxes.rotations).T  # (3, 8, N)
    matrices = np.moveaxis(cameras.intrinsics @ cameras.rotations, 1, 0)  # (3, C, 3)
    offsets = (cameras.intrinsics @ cameras.translations_m[..., None])[..., 0].T  # (3, C)
    # One product of two matrices instead of one per camera and box.
    corners = matrices.reshape(-1, 3) @ corners_m.reshape(3, -1) + offsets.reshape(-1, 1)
    return corners.reshape(3, len(cameras.channels), 8, -1)
