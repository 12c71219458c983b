"""A key frame -> its CAM_FRONT image with the objects that DriveMLLM may ask about, and why the others may not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data_gen.drivemllm.filters import FrontThresholds, geometric_reasons
from data_gen.drivemllm.records import DriveMLLMImage, box_in_image
from data_gen.nuscenes_tables import WorldError
from data_gen.records import QuestionObject
from data_gen.scene_builder import UNCOUNTED, JudgedImage, JudgedView, judged_image
from data_gen.scene_records import DroppedObject, SceneImage, SceneObject
from data_gen.views import views_of
from data_gen.world import KeyFrame

CAMERA = "CAM_FRONT"
NOT_LISTED = "image_not_in_keep_list"


def front_image(frame: KeyFrame, thresholds: FrontThresholds) -> JudgedImage:
    """The front camera's image, judged by what the tables tell. Raises WorldError when the key frame has none."""
    if CAMERA not in frame.cameras.channels:
        raise WorldError(f"key frame {frame.sample_token} has no {CAMERA} in sample_data.json")
    view = views_of(frame)[frame.cameras.channels.index(CAMERA)]
    judged = JudgedView(view, geometric_reasons(view, thresholds), np.full(len(view), UNCOUNTED))
    return judged_image(frame, judged)


def without_unlisted(image: JudgedImage) -> JudgedImage:
    """An image that is not in the keep list: all of its objects are dropped."""
    dropped = tuple(
        DroppedObject(item.category, item.box_xyxy_px, item.xyz_m, NOT_LISTED, item.annotation_token)
        for item in image.scene.objects
    )
    drops = replace(image.drops, objects=image.drops.objects + dropped)
    return JudgedImage(replace(image.scene, objects=()), drops)


def record_of(scene: SceneImage) -> DriveMLLMImage:
    """The record of an image with described objects."""
    return DriveMLLMImage(
        file_name=scene.file_name,
        objects=tuple(_object(item, (scene.width, scene.height)) for item in scene.objects),
        width=scene.width,
        height=scene.height,
        camera=scene.camera,
        scene=scene.scene,
        sample_token=scene.sample_token,
        split=scene.split,
        annotation_tokens=tuple(item.annotation_token for item in scene.objects),
    )


def _object(item: SceneObject, size_px: tuple[int, int]) -> QuestionObject:
    x1, y1, x2, y2 = box_in_image(item.box_xyxy_px, size_px)
    return QuestionObject(
        name=item.description,
        bbox=(x1, y1, x2, y2),
        pixel=(round((x1 + x2) / 2), round((y1 + y2) / 2)),
        xyz_m=item.xyz_m,
        category=item.category,
    )
