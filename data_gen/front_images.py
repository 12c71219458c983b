"""A key frame -> its CAM_FRONT image with the objects that DriveMLLM may ask about, and why the others may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_gen.describe import Asked, AskedImage, Description
from data_gen.drivemllm import DriveMLLMImage, box_in_image
from data_gen.drivemllm_filters import FrontThresholds, geometric_reasons
from data_gen.nuscenes_tables import WorldError
from data_gen.records import QuestionObject
from data_gen.views import View, views_of
from data_gen.world import KeyFrame

CAMERA = "CAM_FRONT"


@dataclass(frozen=True)
class FrontImage:
    """The front camera's view of a key frame with, per object, the reason why it is dropped (empty: kept)."""

    frame: KeyFrame
    view: View
    reasons: NDArray[np.str_]

    @property
    def file_name(self) -> str:
        """The image file, relative to the nuScenes root."""
        return self.frame.cameras.file_names[self.view.camera]

    @property
    def kept(self) -> list[int]:
        """Places in the view of the objects that are left."""
        return [int(place) for place in np.flatnonzero(self.reasons == "")]

    def token(self, place: int) -> str:
        """The annotation token of an object of the view."""
        return self.frame.annotations.tokens[self.view.indices[place]]


def front_image(frame: KeyFrame, thresholds: FrontThresholds) -> FrontImage:
    """The front camera's view, judged by what the tables tell. Raises WorldError when the key frame has none."""
    if CAMERA not in frame.cameras.channels:
        raise WorldError(f"key frame {frame.sample_token} has no {CAMERA} in sample_data.json")
    view = views_of(frame)[frame.cameras.channels.index(CAMERA)]
    return FrontImage(frame, view, geometric_reasons(view, thresholds))


def asked_image(image: FrontImage, root: Path) -> AskedImage:
    """The objects that are left, to be described."""
    view = image.view
    asked = tuple(
        Asked(image.token(place), str(view.categories[place]), tuple(view.boxes_xyxy_px[place].tolist()))
        for place in image.kept
    )
    return AskedImage(root / image.file_name, view.size_px, asked)


def record_of(image: FrontImage, descriptions: Sequence[Description]) -> DriveMLLMImage:
    """The record of an image with those of the objects left that have a description, one given for each."""
    named = [(place, item.text) for place, item in zip(image.kept, descriptions, strict=True) if not item.problem]
    frame, view = image.frame, image.view
    return DriveMLLMImage(
        file_name=image.file_name,
        objects=tuple(_object(view, place, name) for place, name in named),
        width=view.size_px[0],
        height=view.size_px[1],
        camera=CAMERA,
        scene=frame.scene,
        sample_token=frame.sample_token,
        split=frame.split,
        annotation_tokens=tuple(image.token(place) for place, _ in named),
    )


def _object(view: View, place: int, name: str) -> QuestionObject:
    x1, y1, x2, y2 = box_in_image(view.boxes_xyxy_px[place].tolist(), view.size_px)
    x_m, y_m, z_m = view.centres_m[place].tolist()
    return QuestionObject(
        name=name,
        bbox=(x1, y1, x2, y2),
        pixel=(round((x1 + x2) / 2), round((y1 + y2) / 2)),
        xyz_m=(x_m, y_m, z_m),
        category=str(view.categories[place]),
    )
