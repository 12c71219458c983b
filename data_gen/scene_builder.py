"""A key frame -> for each camera the objects that questions may ask about, and why the others may not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.compass import direction_of
from data_gen.describe import Asked, AskedImage, Describer, distinct
from data_gen.filters import Thresholds, geometric_reasons
from data_gen.lidar import count_inside, count_own_class, read_points, read_points_of
from data_gen.scene_records import SceneImage, SceneObject
from data_gen.views import METRE_DECIMALS, View, views_of
from data_gen.world import Ints, KeyFrame, World

UNCOUNTED = -1


@dataclass(frozen=True)
class JudgedView:
    """A view with, per object, the reason why it is dropped (empty: kept), its lidar points, and its description.

    Lidar points are UNCOUNTED and descriptions empty for objects that an earlier check had dropped.
    """

    view: View
    reasons: NDArray[np.str_]
    lidar_points: Ints
    descriptions: tuple[str, ...]


def judge_frame(world: World, frame: KeyFrame, thresholds: Thresholds, describer: Describer) -> list[JudgedView]:
    """All views of a key frame, judged. The lidar file is read only when some object gets that far."""
    views = views_of(frame)
    reasons = [geometric_reasons(view, thresholds) for view in views]
    counts = count_lidar_points(world, frame, views, reasons)
    judged = []
    for view, reason, count in zip(views, reasons, counts, strict=True):
        reason[(reason == "") & (count < thresholds.min_lidar_points)] = "few_lidar_points"
        image_path = world.root / frame.cameras.file_names[view.camera]
        judged.append(_judge(frame, view, reason, count, image_path, describer))
    return judged


def count_lidar_points(world: World, frame: KeyFrame, views: list[View], reasons: list[NDArray[np.str_]]) -> list[Ints]:
    """Lidar points per object of each view, UNCOUNTED where a reason to drop it is known already."""
    counts = [np.full(len(view), UNCOUNTED) for view in views]
    left = [np.flatnonzero(reason == "") for reason in reasons]
    indices = [view.indices[places] for view, places in zip(views, left, strict=True)]
    if not any(map(len, indices)):
        return counts
    boxes = frame.annotations
    if not world.has_lidarseg:
        points_m = read_points(world.root, frame.lidar)
        for count, places, chosen in zip(counts, left, indices, strict=True):
            count[places] = count_inside(points_m, boxes, chosen)
        return counts
    points_m, labels = read_points_of(world.root, frame.lidar, boxes.labels[np.concatenate(indices)])
    for view, count, places, chosen in zip(views, counts, left, indices, strict=True):
        boxes_px = view.boxes_xyxy_px[places]
        count[places] = count_own_class(points_m, labels, frame.cameras, view.camera, boxes_px, boxes.labels[chosen])
    return counts


def scene_of(frame: KeyFrame, judged: JudgedView) -> SceneImage | None:
    """The record of a view, or None when no object is kept. Its `extra` holds the camera's 3x3 matrix."""
    kept = np.flatnonzero(judged.reasons == "")
    if not len(kept):
        return None
    camera = judged.view.camera
    return SceneImage(
        file_name=frame.cameras.file_names[camera],
        objects=tuple(_object(frame, judged, int(place)) for place in kept),
        width=judged.view.size_px[0],
        height=judged.view.size_px[1],
        camera=frame.cameras.channels[camera],
        scene=frame.scene,
        sample_token=frame.sample_token,
        split=frame.split,
        extra={"intrinsics": frame.cameras.intrinsics[camera].tolist()},
    )


def _judge(
    frame: KeyFrame, view: View, reasons: NDArray[np.str_], counts: Ints, image_path: Path, describer: Describer
) -> JudgedView:
    """Add the descriptions of the objects that are left, or the reasons why there are none."""
    places = np.flatnonzero(reasons == "")
    texts = [""] * len(view)
    if len(places):
        asked = tuple(_asked(frame, view, int(place)) for place in places)
        descriptions = distinct(describer(AskedImage(image_path, view.size_px, asked)))
        for place, description in zip(places, descriptions, strict=True):
            reasons[place], texts[place] = description.problem, description.text
    return JudgedView(view, reasons, counts, tuple(texts))


def _asked(frame: KeyFrame, view: View, place: int) -> Asked:
    token = frame.annotations.tokens[view.indices[place]]
    return Asked(token, str(view.categories[place]), tuple(view.boxes_xyxy_px[place].tolist()))


def _object(frame: KeyFrame, judged: JudgedView, place: int) -> SceneObject:
    view = judged.view
    x_m, y_m, z_m = view.centres_m[place].tolist()
    yaw_rad = float(view.yaws_rad[place])
    x1, y1, x2, y2 = view.boxes_xyxy_px[place].tolist()
    u, v = view.pixels[place].tolist()
    return SceneObject(
        description=judged.descriptions[place],
        box_xyxy_px=(x1, y1, x2, y2),
        pixel_xy=(u, v),
        xyz_m=(x_m, y_m, z_m),
        depth_m=z_m,
        distance_m=round(math.hypot(x_m, y_m, z_m), METRE_DECIMALS),
        heading=direction_of(yaw_rad),
        yaw_rad=yaw_rad,
        category=str(view.categories[place]),
        annotation_token=frame.annotations.tokens[view.indices[place]],
        lidar_points=int(judged.lidar_points[place]),
    )
