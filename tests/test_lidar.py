"""Lidar points per object: fast counting against one point and one box at a time, and the files they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nuscenes_folder import VERSION, BoxSpec, write_folder

from data_gen.geometry import quaternions_to_matrices
from data_gen.lidar import (
    ImageBoxes,
    count_in_image_boxes,
    count_inside,
    count_own_class_points,
    read_labels,
    read_points,
)
from data_gen.nuscenes_tables import WorldError
from data_gen.views import seen_objects
from data_gen.world import Annotations, Cameras, KeyFrame, LidarSweep, load_world

SIZE_PX = (640, 360)


def random_frame(rng: np.random.Generator, cameras: int) -> KeyFrame:
    """Cameras that look about in all directions, a turned and moved lidar, no boxes."""
    matrix = np.array([[400.0, 0, 320], [0, 390, 180], [0, 0, 1]])
    rig = Cameras(
        tuple(f"CAM_{i}" for i in range(cameras)), ("",) * cameras, np.tile(SIZE_PX, (cameras, 1)),
        np.tile(matrix, (cameras, 1, 1)), quaternions_to_matrices(rng.normal(size=(cameras, 4))),
        rng.uniform(-2, 2, (cameras, 3)),
    )  # fmt: skip
    lidar = LidarSweep("", "", quaternions_to_matrices(rng.normal(size=4)), rng.uniform(-2, 2, 3))
    nothing = Annotations((), np.array([], dtype=str), np.zeros(0, int), *(np.zeros((0, 3)),) * 2, np.zeros((0, 3, 3)))
    return KeyFrame("s", "scene", "train", rig, lidar, nothing)


def random_boxes(rng: np.random.Generator, count: int, cameras: int) -> ImageBoxes:
    """Boxes in no order of cameras; the camera with the last number has none."""
    ends = np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1) * SIZE_PX
    return ImageBoxes(rng.integers(0, cameras - 1, count), ends.reshape(count, 4), rng.integers(1, 4, count))


def one_by_one(points_m: np.ndarray, point_labels: np.ndarray, frame: KeyFrame, boxes: ImageBoxes) -> list[int]:
    """The same counts without any shortcut."""
    counts = []
    for camera, (x1, y1, x2, y2), label in zip(boxes.cameras, boxes.boxes_xyxy_px, boxes.labels, strict=True):
        count = 0
        for point_m, point_label in zip(points_m.astype(float), point_labels, strict=True):
            point_m = frame.lidar.rotation @ point_m + frame.lidar.translation_m
            point_m = frame.cameras.rotations[camera] @ point_m + frame.cameras.translations_m[camera]
            u, v, depth_m = frame.cameras.intrinsics[camera] @ point_m
            count += depth_m > 1 and x1 <= u / depth_m <= x2 and y1 <= v / depth_m <= y2 and point_label == label
        counts.append(int(count))
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_counts_equal_those_made_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame, boxes = random_frame(rng, 4), random_boxes(rng, 12, 4)
    points_m = rng.normal(0, 8, (1500, 3)).astype(np.float32)
    point_labels = rng.integers(0, 4, 1500).astype(np.uint8)
    counts = count_in_image_boxes(points_m, point_labels, frame, boxes)
    assert counts.tolist() == one_by_one(points_m, point_labels, frame, boxes)
    assert counts.sum() > 20


def test_no_points_and_no_boxes_count_nothing() -> None:
    rng = np.random.default_rng(0)
    frame, boxes = random_frame(rng, 4), random_boxes(rng, 5, 4)
    nothing = np.zeros((0, 3), dtype=np.float32), np.zeros(0, dtype=np.uint8)
    assert count_in_image_boxes(*nothing, frame, boxes).tolist() == [0] * 5
    empty = ImageBoxes(boxes.cameras[:0], boxes.boxes_xyxy_px[:0], boxes.labels[:0])
    assert count_in_image_boxes(*nothing, frame, empty).tolist() == []


def test_points_count_for_their_own_class_only_and_objects_without_points_have_none(tmp_path: Path) -> None:
    boxes = [
        BoxSpec("vehicle.car", 10.0, points=20),
        BoxSpec("human.pedestrian.adult", 6.0, right_m=0.2, size_wlh_m=(3.0, 3.0, 3.0), points=7),  # before the car
        BoxSpec("vehicle.truck", 30.0, right_m=9.0, points=0),
    ]
    world = load_world(write_folder(tmp_path / "world", boxes), VERSION)
    (frame,) = world
    seen = seen_objects(frame)
    counts = count_own_class_points(world.root, frame, seen.cameras, seen.indices, seen.boxes_xyxy_px)
    assert dict(zip(seen.indices.tolist(), counts.tolist(), strict=True)) == {0: 20, 1: 7, 2: 0}
    some = np.array([2, 0])
    counts = count_own_class_points(world.root, frame, seen.cameras[some], seen.indices[some], seen.boxes_xyxy_px[some])
    assert counts.tolist() == [0, 20]


def test_points_inside_solid_boxes_equal_those_in_the_turned_back_cloud() -> None:
    rng = np.random.default_rng(0)
    points_m = rng.uniform(-10, 10, (4000, 3))
    rotations = quaternions_to_matrices(rng.normal(size=(6, 4)))
    centres_m, sizes_wlh_m = rng.uniform(-8, 8, (6, 3)), rng.uniform(1, 8, (6, 3))
    boxes = Annotations(("",) * 6, np.array([""] * 6), np.zeros(6, int), centres_m, sizes_wlh_m, rotations)
    expected = []
    for centre_m, (width, length, height), rotation in zip(centres_m, sizes_wlh_m, rotations, strict=True):
        local_m = np.array([rotation.T @ (point_m - centre_m) for point_m in points_m])
        expected.append(int((np.abs(local_m) <= np.array([length, width, height]) / 2).all(axis=1).sum()))
    assert count_inside(points_m, boxes, np.arange(6)).tolist() == expected
    assert count_inside(points_m, boxes, np.array([4, 1, 4])).tolist() == [expected[i] for i in (4, 1, 4)]
    assert min(expected) > 0


def test_a_lidar_file_cut_short_and_labels_that_do_not_fit_are_named(tmp_path: Path) -> None:
    world = load_world(write_folder(tmp_path / "world", [BoxSpec("vehicle.car", 10.0)]), VERSION)
    sweep = world[0].lidar
    points = read_points(world.root, sweep)
    with pytest.raises(WorldError, match=rf"a\.bin has {len(points)} labels for {len(points) + 1} lidar points"):
        read_labels(world.root, sweep, len(points) + 1)
    path = world.root / sweep.file_name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(WorldError, match="is cut short"):
        read_points(world.root, sweep)
