"""Writes nuScenes tables of the size of v1.0-trainval, in the layout of the published files, with made-up content."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from speed_world import CATEGORIES, IMAGE_SIZE_PX, RIG, VERSION, Row, calibration_rows

RADARS = tuple(f"RADAR_{side}" for side in ("FRONT", "FRONT_LEFT", "FRONT_RIGHT", "BACK_LEFT", "BACK_RIGHT"))
CHANNELS = (*RIG, *RADARS)


@dataclass(frozen=True)
class Size:
    """Rows of the tables that grow; of `files`, one per key frame and channel is a key frame's."""

    scenes: int = 850
    key_frames: int = 34_149
    files: int = 2_631_083
    boxes: int = 1_166_187
    instances: int = 64_386


def write_tables(root: Path, size: Size) -> int:
    """Write the tables under `root` and return their bytes."""
    folder = root / VERSION
    folder.mkdir(parents=True)
    calibrations = [*calibration_rows(), *(radar_calibration(channel) for channel in RADARS)]
    small: dict[str, list[Row]] = {
        "sensor": [{"token": channel, "channel": channel} for channel in CHANNELS],
        "calibrated_sensor": calibrations,
        "category": [{"token": name, "name": name} for name in CATEGORIES],
        "scene": [{"token": token("scene", i), "name": f"scene-{i:04d}"} for i in range(size.scenes)],
        "sample": [{"token": token("sample", i), "timestamp": i, "scene_token": token("scene", i * size.scenes //
                    size.key_frames)} for i in range(size.key_frames)],
        "instance": [{"token": token("instance", i), "category_token": list(CATEGORIES)[i % 6]}
                     for i in range(size.instances)],
    }  # fmt: skip
    for name, rows in small.items():
        (folder / f"{name}.json").write_text(json.dumps(rows, indent=0))
    write_large(folder / "sample_data.json", size.files, lambda i: file_row(i, size))
    write_large(folder / "ego_pose.json", size.files, pose_row)
    write_large(folder / "sample_annotation.json", size.boxes, lambda i: box_row(i, size))
    return sum(path.stat().st_size for path in folder.iterdir())


def token(kind: str, place: int) -> str:
    """32 hexadecimal digits, as nuScenes has."""
    return f"{sum(kind.encode()):08x}{place:024x}"


def radar_calibration(channel: str) -> Row:
    """Radars are not read, but their rows are there."""
    return {"token": f"calibration {channel}", "sensor_token": channel, "translation": [3.4, 0.0, 0.5],
            "rotation": [1.0, 0.0, 0.0, 0.0], "camera_intrinsic": []}  # fmt: skip


def write_large(path: Path, count: int, row: Callable[[int], str]) -> None:
    """An array of `count` rows, a line each."""
    with path.open("w") as file:
        file.write("[\n")
        rows = (row(place) for place in range(count))
        first = next(rows)
        file.write(first)
        while block := list(islice(rows, 10_000)):
            file.write(",\n" + ",\n".join(block))
        file.write("\n]")


def file_row(place: int, size: Size) -> str:
    """A row of sample_data.json; the key frames' files are spread over the table."""
    wanted = size.key_frames * len(CHANNELS)
    key = place * wanted // size.files
    frame, channel = divmod(key, len(CHANNELS))
    name, is_key = CHANNELS[channel], place == 0 or key != (place - 1) * wanted // size.files
    width, height = IMAGE_SIZE_PX if name.startswith("CAM") else (0, 0)
    folder = "samples" if is_key else "sweeps"
    fields = {
        "token": token("file", place), "sample_token": token("sample", frame), "ego_pose_token": token("pose", place),
        "calibrated_sensor_token": f"calibration {name}", "timestamp": 1_532_402_927_647_951 + place,
        "fileformat": "jpg" if width else "pcd", "is_key_frame": is_key, "height": height, "width": width,
        "filename": f"{folder}/{name}/n015-2018-07-24-11-22-45+0800__{name}__{1_532_402_927_647_951 + place}.jpg",
        "prev": token("file", max(place - 1, 0)), "next": token("file", place + 1),
    }  # fmt: skip
    return written(fields)


def pose_row(place: int) -> str:
    """A row of ego_pose.json."""
    half_turn = place * 1e-4 % math.pi
    return written({
        "token": token("pose", place), "timestamp": 1_532_402_927_647_951 + place,
        "rotation": [math.cos(half_turn), 1e-3 * math.sin(place), 1e-3 * math.cos(place), math.sin(half_turn)],
        "translation": [place * math.e % 2000, place * math.pi % 2000, 0.0],
    })  # fmt: skip


def box_row(place: int, size: Size) -> str:
    """A row of sample_annotation.json."""
    half_turn = place * 1e-3 % math.pi
    return written({
        "token": token("box", place), "sample_token": token("sample", place * 7919 % size.key_frames),
        "instance_token": token("instance", place % size.instances), "visibility_token": "4",
        "attribute_tokens": [token("attribute", place % 8)],
        "translation": [place * math.e % 2000, place * math.pi % 2000, 1.0], "size": [1.951, 4.62, 1.73],
        "rotation": [math.cos(half_turn), 0.0, 0.0, math.sin(half_turn)], "prev": token("box", max(place - 1, 0)),
        "next": token("box", place + 1), "num_lidar_pts": place % 500, "num_radar_pts": place % 9,
    })  # fmt: skip


def written(fields: Row) -> str:
    """JSON of one row."""
    return json.dumps(fields)
