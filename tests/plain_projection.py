"""2D boxes of a nuScenes-format folder straight from its JSON tables, one object at a time: an oracle.

Nothing of the project is imported. Boxes that reach behind the camera are cut 0.1 m in front of it.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

NEAR_M = 0.1
Point = tuple[float, float]


def boxes_in_images(tables: Path, sample_token: str) -> dict[tuple[str, str], list[float]]:
    """(camera channel, annotation token) -> x1, y1, x2, y2 of the objects of a key frame that some image shows."""
    rows = {
        name: {row["token"]: row for row in json.loads((tables / f"{name}.json").read_text())}
        for name in ("sensor", "calibrated_sensor", "ego_pose", "sample_data", "sample_annotation")
    }
    boxes = {}
    for file in rows["sample_data"].values():
        mount = rows["calibrated_sensor"][file["calibrated_sensor_token"]]
        channel = rows["sensor"][mount["sensor_token"]]["channel"]
        if file["sample_token"] != sample_token or not file["is_key_frame"] or not channel.startswith("CAM"):
            continue
        for box in rows["sample_annotation"].values():
            if box["sample_token"] == sample_token:
                poses = (rows["ego_pose"][file["ego_pose_token"]], mount)
                polygon = outline(vertices_ahead(box, poses), np.array(mount["camera_intrinsic"]))
                if shown := cut_at_image(polygon, file["width"], file["height"]):
                    boxes[channel, box["token"]] = [*np.min(shown, axis=0), *np.max(shown, axis=0)]
    return boxes


def rotated(quaternion: list[float], point: np.ndarray) -> np.ndarray:
    """A point turned by a quaternion (w, x, y, z)."""
    axis = np.array(quaternion[1:])
    twice = 2 * np.cross(axis, point)
    return point + quaternion[0] * twice + np.cross(axis, twice)


def vertices_ahead(box: dict[str, Any], poses: tuple[dict[str, Any], ...]) -> list[np.ndarray]:
    """Corners ahead of the near plane and the points where edges cross it, moved into each pose in turn."""
    width, length, height = box["size"]
    corners = {}
    for signs in itertools.product((-1, 1), repeat=3):
        point = rotated(box["rotation"], np.array(signs) * [length, width, height] / 2) + box["translation"]
        for pose in poses:
            w, x, y, z = pose["rotation"]
            point = rotated([w, -x, -y, -z], point - pose["translation"])
        corners[signs] = point
    vertices = [point for point in corners.values() if point[2] >= NEAR_M]
    for a, b in itertools.combinations(corners, 2):
        start, end = corners[a], corners[b]
        if sum(i != j for i, j in zip(a, b, strict=True)) == 1 and (start[2] < NEAR_M) != (end[2] < NEAR_M):
            vertices.append(start + (NEAR_M - start[2]) / (end[2] - start[2]) * (end - start))
    return vertices


def outline(vertices: list[np.ndarray], matrix: np.ndarray) -> list[Point]:
    """The convex hull of projected points, in order (Andrew's monotone chain)."""
    pixels = sorted((float(u / z), float(v / z)) for u, v, z in (matrix @ vertex for vertex in vertices))
    halves = []
    for points in (pixels, pixels[::-1]):
        chain: list[Point] = []
        for point in points:
            while len(chain) > 1 and turn(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        halves += chain[:-1]
    return halves


def turn(a: Point, b: Point, c: Point) -> float:
    """Positive when c lies to the left of the way from a to b."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def cut_at_image(polygon: list[Point], width: int, height: int) -> list[Point]:
    """A convex polygon cut at the four borders, one after the other (Sutherland and Hodgman)."""
    for axis, border, sign in ((0, 0, 1), (0, width, -1), (1, 0, 1), (1, height, -1)):
        kept: list[Point] = []
        for start, end in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            before, after = sign * (start[axis] - border), sign * (end[axis] - border)
            if before >= 0:
                kept.append(start)
            if before * after < 0:
                share = before / (before - after)
                kept.append((start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])))
        polygon = kept
    return polygon
