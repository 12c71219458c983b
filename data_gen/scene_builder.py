"""A key frame -> for each camera the objects that may be asked about, and why the others may not.

Only tables and lidar are read here, no image: descriptions come later (`data_gen/describe_scenes.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_gen.compass import direction_of
from data_gen.filters import Thresholds, geometric_reasons
from data_gen.lidar import count_inside, count_own_class_points, read_points
from data_gen.records import Metres3
from data_gen.scene_records import DroppedObject, DroppedObjects, SceneImage, SceneObject
from data_gen.views import METRE_DECIMALS, PIXEL_DECIMALS, View, views_of
from data_gen.world import Ints, KeyFrame, World

UNCOUNTED = -1
PIXELS = ("centre", "box-centre")


@dataclass(frozen=True)
class JudgedView:
    """A view with, per object, the reason why it is dropped (empty: kept) and its lidar points.

    Lidar points are UNCOUNTED for objects that an earlier check had dropped, or where lidar is not looked at.
    """

    view: View
    reasons: NDArray[np.str_]
    lidar_points: Ints


@dataclass(frozen=True)
class JudgedImage:
    """One image as records: what may be asked about, not yet described, and what was dropped. Either may be empty."""

    scene: SceneImage
    drops: DroppedObjects

    @property
    def centres_m(self) -> list[Metres3]:
        """Where all objects are, kept or dropped, in camera metres."""
        return [item.xyz_m for item in self.scene.objects] + [item.xyz_m for item in self.drops.objects]


def judge_frame(world: World, frame: KeyFrame, thresholds: Thresholds) -> list[JudgedView]:
    """All views of a key frame, judged. The lidar file is read only when some object gets that far."""
    views = views_of(frame)
    reasons = [geometric_reasons(view, thresholds) for view in views]
    counts = count_lidar_points(world, frame, views, reasons)
    for reason, count in zip(reasons, counts, strict=True):
        reason[(reason == "") & (count < thresholds.min_lidar_points)] = "few_lidar_points"
    return [JudgedView(*item) for item in zip(views, reasons, counts, strict=True)]


def judged_image(frame: KeyFrame, judged: JudgedView, pixel: str = "centre") -> JudgedImage:
    """The records of a view. The scene's `extra` holds the camera's 3x3 matrix.

    pixel: where an object is in the image, its projected centre (`centre`) or the centre of its 2D box (`box-centre`).
    """
    camera = judged.view.camera
    width, height = judged.view.size_px
    objects = _objects(frame, judged, pixel)
    drops = _dropped_objects(frame, judged)
    about = (
        width, height, frame.cameras.channels[camera], frame.scene, frame.sample_token, frame.split,
    )  # fmt: skip
    file_name = frame.cameras.file_names[camera]
    extra = {"intrinsics": frame.cameras.intrinsics[camera].tolist()}
    return JudgedImage(SceneImage(file_name, objects, *about, extra), DroppedObjects(file_name, drops, *about))


def count_lidar_points(world: World, frame: KeyFrame, views: list[View], reasons: list[NDArray[np.str_]]) -> list[Ints]:
    """Lidar points per object of each view, UNCOUNTED where a reason to drop it is known already."""
    counts = [np.full(len(view), UNCOUNTED) for view in views]
    left = [np.flatnonzero(reason == "") for reason in reasons]
    indices = [view.indices[places] for view, places in zip(views, left, strict=True)]
    if not any(map(len, indices)):
        return counts
    if world.has_lidarseg:
        cameras = np.repeat([view.camera for view in views], [len(chosen) for chosen in indices])
        boxes_px = np.concatenate([view.boxes_xyxy_px[places] for view, places in zip(views, left, strict=True)])
        counted = count_own_class_points(world.root, frame, cameras, np.concatenate(indices), boxes_px)
    else:
        counted = count_inside(read_points(world.root, frame.lidar), frame.annotations, np.concatenate(indices))
    ends = np.cumsum([len(chosen) for chosen in indices])[:-1]
    for count, places, part in zip(counts, left, np.split(counted, ends), strict=True):
        count[places] = part
    return counts


def _objects(frame: KeyFrame, judged: JudgedView, pixel: str) -> tuple[SceneObject, ...]:
    kept = judged.reasons == ""
    view, points = judged.view.subset(kept), judged.lidar_points[kept].tolist()
    centres_px = view.pixels
    if pixel == "box-centre":
        centres_px = ((view.boxes_xyxy_px[:, :2] + view.boxes_xyxy_px[:, 2:]) / 2).round(PIXEL_DECIMALS)
    columns = (view.boxes_xyxy_px.tolist(), centres_px.tolist(), view.centres_m.tolist(), view.yaws_rad.tolist())
    return tuple(
        SceneObject(
            description="",
            box_xyxy_px=tuple(box),
            pixel_xy=tuple(centre_px),
            xyz_m=tuple(centre_m),
            depth_m=centre_m[2],
            distance_m=round(math.hypot(*centre_m), METRE_DECIMALS),
            heading=direction_of(yaw_rad),
            yaw_rad=yaw_rad,
            category=str(category),
            annotation_token=frame.annotations.tokens[index],
            lidar_points=None if count == UNCOUNTED else count,
        )
        for box, centre_px, centre_m, yaw_rad, category, index, count in zip(
            *columns, view.categories, view.indices, points, strict=True
        )
    )


def _dropped_objects(frame: KeyFrame, judged: JudgedView) -> tuple[DroppedObject, ...]:
    dropped = judged.reasons != ""
    view, points = judged.view.subset(dropped), judged.lidar_points[dropped].tolist()
    columns = (view.categories.tolist(), view.boxes_xyxy_px.tolist(), view.centres_m.tolist(), view.indices.tolist())
    return tuple(
        DroppedObject(
            category=category,
            box_xyxy_px=tuple(box),
            xyz_m=tuple(centre_m),
            reason=reason,
            annotation_token=frame.annotations.tokens[index],
            lidar_points=None if count == UNCOUNTED else count,
        )
        for category, box, centre_m, index, reason, count in zip(
            *columns, judged.reasons[dropped].tolist(), points, strict=True
        )
    )
