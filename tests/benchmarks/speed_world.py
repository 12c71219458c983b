"""Writes a nuScenes-format folder that the devkit opens too: random boxes and points round a real-looking rig.

One 1600x900 JPEG serves as every image. The lidar is a 32-beam one with 1,084 columns; a part of its points is moved
into the boxes and carries their class.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

VERSION = "v1.0-trainval"
IMAGE_SIZE_PX = (1600, 900)
BEAMS, COLUMNS = 32, 1084
FRAMES_PER_SCENE = 40
MAP_FILE = "maps/mask.png"
GROUND_LABEL, WALL_LABEL = 24, 28
ALONE = {"prev": "", "next": ""}  # no row before or after it in time
Row = dict[str, Any]

# channel -> yaw to the left of ahead in degrees, position (m) ahead, left, up, and focal length (px); 0: the lidar
RIG = {
    "CAM_FRONT": (0.3, (1.70, 0.02, 1.51), 1266.0),
    "CAM_FRONT_LEFT": (55.4, (1.52, 0.49, 1.51), 1272.0),
    "CAM_FRONT_RIGHT": (-55.9, (1.55, -0.50, 1.49), 1260.0),
    "CAM_BACK": (179.7, (0.03, 0.00, 1.56), 809.0),
    "CAM_BACK_LEFT": (108.4, (1.04, 0.48, 1.56), 1257.0),
    "CAM_BACK_RIGHT": (-110.2, (1.01, -0.48, 1.57), 1254.0),
    "LIDAR_TOP": (-90.0, (0.94, 0.00, 1.84), 0.0),
}
# category -> lidarseg label, (width, length, height) in metres, share of the boxes
CATEGORIES = {
    "human.pedestrian.adult": (2, (0.67, 0.73, 1.77), 0.24),
    "movable_object.barrier": (9, (2.50, 0.50, 1.00), 0.12),
    "movable_object.trafficcone": (12, (0.40, 0.40, 1.00), 0.09),
    "vehicle.car": (17, (1.95, 4.62, 1.73), 0.43),
    "vehicle.motorcycle": (21, (0.77, 2.11, 1.47), 0.03),
    "vehicle.truck": (23, (2.51, 6.93, 2.84), 0.09),
    "flat.driveable_surface": (GROUND_LABEL, (0.0, 0.0, 0.0), 0.0),
    "static.manmade": (WALL_LABEL, (0.0, 0.0, 0.0), 0.0),
}


def write_speed_world(root: Path, key_frames: int, boxes: int, seed: int = 0) -> None:
    """Write `key_frames` key frames with `boxes` boxes each under `root`, which must not exist yet."""
    rng = np.random.default_rng(seed)
    for folder in (VERSION, "maps", f"lidarseg/{VERSION}", *(f"samples/{channel}" for channel in RIG)):
        (root / folder).mkdir(parents=True)
    picture = root / "picture.jpg"
    Image.effect_noise(IMAGE_SIZE_PX, 40).convert("RGB").save(picture, quality=90)
    Image.new("L", (100, 100)).save(root / MAP_FILE)
    tables = _fixed_tables(math.ceil(key_frames / FRAMES_PER_SCENE))
    for frame in range(key_frames):
        _add_frame(root, tables, rng, frame, boxes)
    for row in tables["sample_data"]:
        if row["fileformat"] == "jpg":
            os.link(picture, root / row["filename"])
    for name, rows in tables.items():
        (root / VERSION / f"{name}.json").write_text(json.dumps(rows, indent=0))


def quaternion(yaw_rad: float, pitch_rad: float = 0.0) -> np.ndarray:
    """(w, x, y, z) of a turn about z after one about y."""
    w, z, half_pitch = math.cos(yaw_rad / 2), math.sin(yaw_rad / 2), pitch_rad / 2
    return np.array([w, 0, 0, z]) * math.cos(half_pitch) + np.array([0, -z, w, 0]) * math.sin(half_pitch)


def calibration_rows() -> list[Row]:
    """calibrated_sensor.json of the rig."""
    rows = []
    for channel, (yaw_deg, position_m, focal_px) in RIG.items():
        w, _, _, z = quaternion(math.radians(yaw_deg))
        half = np.array([0.5, -0.5, 0.5, -0.5])  # a camera's z ahead, x to the right
        camera = np.array([w * 0.5 - z * half[3], w * half[1] - z * half[2], w * half[2] + z * half[1],
                           w * half[3] + z * 0.5])  # fmt: skip
        matrix = [[focal_px, 0.0, 812.0], [0.0, focal_px, 487.0], [0.0, 0.0, 1.0]]
        rotation = camera if focal_px else np.array([w, 0, 0, z])
        rows.append({
            "token": f"calibration {channel}", "sensor_token": channel, "translation": list(position_m),
            "rotation": rotation.tolist(), "camera_intrinsic": matrix if focal_px else [],
        })  # fmt: skip
    return rows


def _fixed_tables(scenes: int) -> dict[str, list[Row]]:
    """Everything that does not grow with the key frames."""
    empty: dict[str, list[Row]] = {
        name: [] for name in ("sample", "sample_data", "ego_pose", "instance", "sample_annotation", "lidarseg")
    }
    return {
        "attribute": [], "visibility": [{"token": "4", "level": "v80-100", "description": ""}],
        "sensor": [{"token": name, "channel": name, "modality": "camera" if name[0] == "C" else "lidar"}
                   for name in RIG],
        "calibrated_sensor": calibration_rows(),
        "category": [{"token": name, "name": name, "description": "", "index": label}
                     for name, (label, _, _) in CATEGORIES.items()],
        "log": [{"token": "log", "logfile": "", "vehicle": "", "date_captured": "", "location": ""}],
        "map": [{"token": "map", "category": "semantic_prior", "filename": MAP_FILE, "log_tokens": ["log"]}],
        "scene": [{"token": f"scene {i}", "log_token": "log", "nbr_samples": FRAMES_PER_SCENE, "name": f"speed-{i:04d}",
                   "first_sample_token": "", "last_sample_token": "", "description": ""} for i in range(scenes)],
        **empty,
    }  # fmt: skip


def _add_frame(root: Path, tables: dict[str, list[Row]], rng: np.random.Generator, frame: int, boxes: int) -> None:
    """One key frame: sensors with ego poses of their own, boxes, lidar points and their labels."""
    sample, time_us = f"sample {frame}", 1_500_000_000_000_000 + 500_000 * frame
    tables["sample"].append({
        "token": sample, "timestamp": time_us, "scene_token": f"scene {frame // FRAMES_PER_SCENE}", **ALONE,
    })  # fmt: skip
    yaw_rad, place_m = rng.uniform(-math.pi, math.pi), np.array([*rng.uniform(300, 1800, 2), 0.0])
    for channel, (_, _, focal_px) in RIG.items():
        late_s = 0.0 if channel == "LIDAR_TOP" else rng.uniform(-0.05, 0.0)
        moved_m = place_m + 8 * late_s * np.array([math.cos(yaw_rad), math.sin(yaw_rad), 0])
        rotation = quaternion(yaw_rad + 0.1 * late_s, 0.005 * late_s)
        token, suffix = f"{channel} {frame}", "jpg" if focal_px else "pcd.bin"
        width, height = IMAGE_SIZE_PX if focal_px else (0, 0)
        tables["ego_pose"].append(
            {"token": token, "timestamp": time_us, "rotation": rotation.tolist(), "translation": moved_m.tolist()}
        )
        tables["sample_data"].append({
            "token": token, "sample_token": sample, "ego_pose_token": token, "timestamp": time_us, **ALONE,
            "calibrated_sensor_token": f"calibration {channel}", "fileformat": suffix[:3], "is_key_frame": True,
            "width": width, "height": height, "filename": f"samples/{channel}/{frame:06d}.{suffix}",
        })  # fmt: skip
    rows = [_box_row(rng, f"{frame} {i}", yaw_rad, place_m) for i in range(boxes)]
    tables["instance"] += [{"token": row["instance_token"], "category_token": row.pop("category_token"),
                            "nbr_annotations": 1} for row in rows]  # fmt: skip
    points, labels = _lidar(rng, rows, tables["instance"][-boxes:], yaw_rad, place_m)
    label_file = f"lidarseg/{VERSION}/{frame:06d}_lidarseg.bin"
    points.tofile(root / f"samples/LIDAR_TOP/{frame:06d}.pcd.bin")
    labels.tofile(root / label_file)
    tables["lidarseg"].append(
        {"token": f"LIDAR_TOP {frame}", "sample_data_token": f"LIDAR_TOP {frame}", "filename": label_file}
    )
    tables["sample_annotation"] += [{**row, "sample_token": sample} for row in rows]


def _box_row(rng: np.random.Generator, name: str, yaw_rad: float, place_m: np.ndarray) -> Row:
    """A box of a random category 3 to 60 m away, most of them along or against the road."""
    categories = list(CATEGORIES)
    category = categories[rng.choice(len(categories), p=[share for _, _, share in CATEGORIES.values()])]
    size_wlh_m = np.array(CATEGORIES[category][1]) * rng.uniform(0.85, 1.15, 3)
    azimuth_rad, range_m = rng.uniform(-math.pi, math.pi), rng.uniform(3, 60)
    centre_m = place_m + np.array([range_m * math.cos(azimuth_rad), range_m * math.sin(azimuth_rad), size_wlh_m[2] / 2])
    heading_rad = yaw_rad + rng.choice([0, math.pi, rng.uniform(-math.pi, math.pi)]) + rng.normal(0, 0.05)
    return {
        "token": f"box {name}", "instance_token": f"object {name}", "category_token": category, "visibility_token": "4",
        "attribute_tokens": [], "translation": centre_m.tolist(), "size": size_wlh_m.tolist(), **ALONE,
        "rotation": quaternion(heading_rad).tolist(), "num_lidar_pts": int(min(1500, 1500 / range_m)),
        "num_radar_pts": 0,
    }  # fmt: skip


def _lidar(
    rng: np.random.Generator, boxes: list[Row], instances: list[Row], yaw_rad: float, place_m: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Points (P, 5) in the lidar's frame and their labels (P,): ground and walls, then those moved into boxes."""
    points = np.zeros((BEAMS * COLUMNS, 5), dtype=np.float32)
    elevation_rad = np.radians(np.linspace(-30.7, 10.7, BEAMS)).repeat(COLUMNS)
    azimuth_rad = np.tile(np.linspace(-math.pi, math.pi, COLUMNS), BEAMS)
    mount_m = np.array(RIG["LIDAR_TOP"][1])
    ground_m = np.where(elevation_rad < 0, mount_m[2] / np.maximum(np.sin(-elevation_rad), 1e-3), np.inf)
    range_m = np.minimum(ground_m, rng.uniform(10, 80, len(points)))
    level_m = range_m * np.cos(elevation_rad)
    points[:, 0], points[:, 1] = level_m * np.cos(azimuth_rad), level_m * np.sin(azimuth_rad)
    points[:, 2], points[:, 4] = range_m * np.sin(elevation_rad), np.arange(len(points)) // COLUMNS
    labels = np.where(ground_m <= range_m, GROUND_LABEL, WALL_LABEL).astype(np.uint8)
    free = rng.permutation(len(points))
    for box, instance in zip(boxes, instances, strict=True):
        chosen, free = free[: box["num_lidar_pts"]], free[box["num_lidar_pts"] :]
        width_m, length_m, height_m = box["size"]
        local_m = rng.uniform(-0.5, 0.5, (len(chosen), 3)) * [length_m, width_m, height_m]
        heading_rad = 2 * math.atan2(box["rotation"][3], box["rotation"][0])
        in_vehicle_m = (local_m @ _turn(heading_rad).T + box["translation"] - place_m) @ _turn(yaw_rad)
        points[chosen, :3] = (in_vehicle_m - mount_m) @ _turn(math.radians(RIG["LIDAR_TOP"][0]))
        labels[chosen] = CATEGORIES[instance["category_token"]][0]
    return points, labels


def _turn(yaw_rad: float) -> np.ndarray:
    """Rotation matrix of a turn about z."""
    cosine, sine = math.cos(yaw_rad), math.sin(yaw_rad)
    return np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
