"""Writes a nuScenes-format folder of one key frame and one camera from a list of boxes.

The global frame is the vehicle's at lidar time; the camera looks along x from (1, 0, 1.5), with an ego pose of its own
1 m further on. Every box holds `points` lidar points of its class.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

VERSION = "v1.0-trainval"
CATEGORIES = (
    "animal", "human.pedestrian.adult", "human.pedestrian.child", "vehicle.bus.bendy", "vehicle.bus.rigid",
    "vehicle.car", "vehicle.truck",
)  # fmt: skip
FOCAL_PX = 1000.0
IMAGE = "samples/CAM_FRONT/a.jpg"
CAMERA_ROTATION = [0.5, -0.5, 0.5, -0.5]  # camera z = vehicle x, camera x = vehicle -y
NO_TURN = [1.0, 0.0, 0.0, 0.0]


@dataclass(frozen=True)
class BoxSpec:
    """One box: centre ahead and right of the camera in metres, size, heading clockwise from the camera's axis."""

    category: str
    ahead_m: float
    right_m: float = 0.0
    size_wlh_m: tuple[float, float, float] = (2.0, 2.0, 2.0)
    heading_rad: float = 0.0
    points: int = 20
    colour: tuple[int, int, int] = (200, 30, 30)


def write_folder(root: Path, boxes: list[BoxSpec], lidarseg: bool = True, scene: str = "scene-0001") -> Path:
    """Write the folder and return its root."""
    tables = _tables(boxes, scene)
    points, labels = _lidar(boxes)
    _save(root, "samples/LIDAR_TOP/a.bin", points.astype(np.float32))
    if lidarseg:
        _save(root, "lidarseg/a.bin", labels.astype(np.uint8))
    else:
        del tables["lidarseg"]
        for row in tables["category"]:
            del row["index"]
    (root / VERSION).mkdir(parents=True)
    for name, rows in tables.items():
        (root / VERSION / f"{name}.json").write_text(json.dumps(rows))
    (root / IMAGE).parent.mkdir(parents=True)
    _image(boxes).save(root / IMAGE)
    return root


def edit_table(root: Path, name: str, change: Any) -> None:
    """Rewrite a table with what `change(rows)` returns."""
    path = root / VERSION / f"{name}.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def _save(root: Path, name: str, values: np.ndarray) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    values.tofile(root / name)


def _image(boxes: list[BoxSpec]) -> Image.Image:
    """A grey picture with each box's front as a patch of its colour, the farthest first."""
    image = Image.new("RGB", (1600, 900), (120, 120, 120))
    for box in sorted(boxes, key=lambda item: -item.ahead_m):
        if box.ahead_m < 2:
            continue
        half_px = FOCAL_PX * box.size_wlh_m[0] / 2 / box.ahead_m
        x, y = 800 + FOCAL_PX * box.right_m / box.ahead_m, 450.0
        image.paste(box.colour, tuple(round(v) for v in (x - half_px, y - half_px, x + half_px, y + half_px)))
    return image


def _lidar(boxes: list[BoxSpec]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    points, labels = [np.array([[500.0, 500.0, 50.0, 0.0, 0.0]])], [np.zeros(1)]
    for box in boxes:
        inner = rng.uniform(-0.3, 0.3, (box.points, 3)) + np.array([box.ahead_m + 2, -box.right_m, 1.5])
        points.append(np.hstack([inner, np.zeros((box.points, 2))]))
        labels.append(np.full(box.points, CATEGORIES.index(box.category) + 1))
    return np.concatenate(points), np.concatenate(labels)


def _tables(boxes: list[BoxSpec], scene: str) -> dict[str, list[dict[str, Any]]]:
    key = {"sample_token": "s", "is_key_frame": True}
    matrix = [[FOCAL_PX, 0.0, 800.0], [0.0, FOCAL_PX, 450.0], [0.0, 0.0, 1.0]]
    return {
        "sensor": [{"token": "cam", "channel": "CAM_FRONT"}, {"token": "lid", "channel": "LIDAR_TOP"}],
        "calibrated_sensor": [
            {"token": "c-cam", "sensor_token": "cam", "translation": [1.0, 0.0, 1.5], "rotation": CAMERA_ROTATION,
             "camera_intrinsic": matrix},
            {"token": "c-lid", "sensor_token": "lid", "translation": [0.0, 0.0, 0.0], "rotation": NO_TURN,
             "camera_intrinsic": []},
        ],
        "ego_pose": [
            {"token": "e-cam", "translation": [1.0, 0.0, 0.0], "rotation": NO_TURN},
            {"token": "e-lid", "translation": [0.0, 0.0, 0.0], "rotation": NO_TURN},
        ],
        "scene": [{"token": "sc", "name": scene}],
        "sample": [{"token": "s", "timestamp": 1, "scene_token": "sc"}],
        "sample_data": [
            {"token": "d-cam", "ego_pose_token": "e-cam", "calibrated_sensor_token": "c-cam", "filename": IMAGE,
             "width": 1600, "height": 900, **key},
            {"token": "d-lid", "ego_pose_token": "e-lid", "calibrated_sensor_token": "c-lid",
             "filename": "samples/LIDAR_TOP/a.bin", "width": 0, "height": 0, **key},
        ],
        "category": [{"token": f"k-{name}", "name": name, "index": i + 1} for i, name in enumerate(CATEGORIES)],
        "instance": [{"token": f"i{i}", "category_token": f"k-{box.category}"} for i, box in enumerate(boxes)],
        "sample_annotation": [_annotation(i, box) for i, box in enumerate(boxes)],
        "lidarseg": [{"token": "d-lid", "sample_data_token": "d-lid", "filename": "lidarseg/a.bin"}],
    }  # fmt: skip


def _annotation(place: int, box: BoxSpec) -> dict[str, Any]:
    """Global z is up and y left: a heading clockwise from ahead is a negative turn about z."""
    half_turn = -box.heading_rad / 2
    return {
        "token": f"a{place}", "sample_token": "s", "instance_token": f"i{place}",
        "translation": [box.ahead_m + 2, -box.right_m, 1.5], "size": list(box.size_wlh_m),
        "rotation": [math.cos(half_turn), 0.0, 0.0, math.sin(half_turn)],
    }  # fmt: skip
