"""Which annotated objects each camera of a key frame sees, and where: the input of the filters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_gen.geometry import Bools, Floats, box_corners, headings_rad, image_boxes, project
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


def views_of(frame: KeyFrame) -> list[View]:
    """One view per camera of a key frame."""
    cameras, boxes = frame.cameras, frame.annotations
    count, objects = len(cameras.channels), len(boxes.tokens)
    corners_m = box_corners(boxes.centres_m, boxes.sizes_wlh_m, boxes.rotations)
    rotations = cameras.rotations[:, None]
    offsets_m = cameras.translations_m[:, None]
    corners_in_cameras_m = corners_m @ np.swapaxes(rotations, -1, -2) + offsets_m[:, None]
    centres_m = (rotations @ boxes.centres_m[..., None])[..., 0] + offsets_m
    yaws_rad = headings_rad(rotations @ boxes.rotations)
    boxes_px = image_boxes(
        corners_in_cameras_m.reshape(-1, 8, 3),
        np.repeat(cameras.intrinsics, objects, axis=0),
        np.repeat(cameras.sizes_px, objects, axis=0),
    ).reshape(count, objects, 4)
    ahead = centres_m[..., 2:] > 0
    pixels = project(np.where(ahead, centres_m, np.nan), cameras.intrinsics[:, None])
    return [
        _view(frame, camera, boxes_px[camera], pixels[camera], centres_m[camera], yaws_rad[camera])
        for camera in range(count)
    ]


def _view(frame: KeyFrame, camera: int, boxes_px: Floats, pixels: Floats, centres_m: Floats, yaws_rad: Floats) -> View:
    seen = np.flatnonzero(~np.isnan(boxes_px[:, 0]))
    width, height = frame.cameras.sizes_px[camera]
    return View(
        camera=camera,
        size_px=(int(width), int(height)),
        indices=seen,
        categories=frame.annotations.categories[seen],
        boxes_xyxy_px=boxes_px[seen].round(PIXEL_DECIMALS),
        pixels=pixels[seen].round(PIXEL_DECIMALS),
        centres_m=centres_m[seen].round(METRE_DECIMALS),
        yaws_rad=yaws_rad[seen].round(RADIAN_DECIMALS),
    )
