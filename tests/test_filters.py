"""Every reason to drop an object, each with a near miss that is kept."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from nuscenes_folder import VERSION, BoxSpec, write_folder

from data_gen.filters import Thresholds, geometric_reasons, overlap_shares
from data_gen.scene_builder import JudgedView, judge_frame, judged_image
from data_gen.views import View
from data_gen.world import load_world

BOX = (100.0, 100.0, 200.0, 200.0)
Row = tuple[str, tuple[float, float, float, float], float]  # category, box, distance


def view_of(
    rows: list[Row], size: tuple[int, int] = (1600, 900), pixels: list[tuple[float, float]] | None = None
) -> View:
    boxes = np.array([box for _, box, _ in rows])
    return View(
        camera=0,
        size_px=size,
        indices=np.arange(len(rows)),
        categories=np.array([category for category, _, _ in rows]),
        boxes_xyxy_px=boxes,
        pixels=np.array(pixels) if pixels else (boxes[:, :2] + boxes[:, 2:]) / 2,
        centres_m=np.array([(0.0, 0.0, distance) for _, _, distance in rows]),
        yaws_rad=np.zeros(len(rows)),
    )


def reasons(rows: list[Row], size: tuple[int, int] = (1600, 900), **thresholds: object) -> list[str]:
    return geometric_reasons(view_of(rows, size), Thresholds(**thresholds)).tolist()  # type: ignore[arg-type]


# --- tables only ---


@pytest.mark.parametrize(
    ("category", "reason"),
    [
        ("vehicle.car", ""),
        ("human.pedestrian.police_officer", ""),
        ("movable_object.barrier", "other_category"),
        ("static.manmade", "other_category"),
        ("animal", "other_category"),
    ],
)
def test_only_vehicles_and_pedestrians_are_asked_about(category: str, reason: str) -> None:
    assert reasons([(category, BOX, 10)]) == [reason]


@pytest.mark.parametrize(
    ("pixel", "reason"),
    [
        ((50.0, 150.0), ""),
        ((0.6, 150.0), ""),  # one whole pixel from the edge of image and box
        ((0.4, 150.0), "centre_outside"),  # would be asked for as [0, 150]: on the edge of its box
        ((-1.0, 150.0), "centre_outside"),
        ((math.nan, math.nan), "centre_outside"),  # not ahead of the camera
    ],
)
def test_the_centre_must_be_in_the_image_as_whole_pixels(pixel: tuple[float, float], reason: str) -> None:
    view = view_of([("vehicle.car", (0.0, 100.0, 120.0, 200.0), 10)], pixels=[pixel])
    assert geometric_reasons(view, Thresholds()).tolist() == [reason]


@pytest.mark.parametrize("pixel_x", [1599.4, 1599.6])
def test_a_centre_that_rounds_to_the_width_is_outside(pixel_x: float) -> None:
    view = view_of([("vehicle.car", (1500.0, 100.0, 1600.0, 200.0), 10)], pixels=[(pixel_x, 150.0)])
    assert geometric_reasons(view, Thresholds()).tolist() == ["" if pixel_x < 1599.5 else "centre_outside"]


@pytest.mark.parametrize(
    ("side", "size", "reason"),
    [
        (44.8, (1600, 900), ""),  # 2,007 px
        (44.6, (1600, 900), "too_small"),  # 1,989 px
        (22.4, (800, 450), ""),  # a quarter of the area counts in an image a quarter as large
        (22.3, (800, 450), "too_small"),
    ],
)
def test_the_least_area_scales_with_the_image(side: float, size: tuple[int, int], reason: str) -> None:
    assert reasons([("vehicle.car", (100.0, 100.0, 100.0 + side, 100.0 + side), 10)], size) == [reason]


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (19.0, ["", "occluded"]),  # 81 % of the smaller box
        (20.0, ["", ""]),  # 80 %: not more than the limit
    ],
)
def test_the_farther_of_two_overlapping_boxes_goes(shift: float, expected: list[str]) -> None:
    near = ("vehicle.car", BOX, 10.0)
    far = ("vehicle.truck", (BOX[0] + shift, BOX[1], BOX[2] + shift + 300, BOX[3]), 20.0)
    assert reasons([near, far]) == expected
    assert reasons([far, near]) == expected[::-1]


def test_an_object_that_is_occluded_itself_still_occludes() -> None:
    rows: list[Row] = [("vehicle.car", BOX, 10), ("vehicle.truck", BOX, 20), ("vehicle.bus.rigid", BOX, 30)]
    assert reasons(rows) == ["", "occluded", "occluded"]


def test_overlap_is_the_share_of_the_smaller_box() -> None:
    shares = overlap_shares(np.array([[0, 0, 100, 100], [90, 90, 110, 110], [200, 0, 300, 100]], dtype=float))
    np.testing.assert_allclose(shares, [[1, 0.25, 0], [0.25, 1, 0], [0, 0, 1]])


ROW_OF_CLASSES = ["vehicle.car", "vehicle.car", "vehicle.bus.rigid", "vehicle.bus.bendy", "human.pedestrian.child"]
REPEATED, WITH_REPEATED = "class_repeated", "image_has_repeated_class"


@pytest.mark.parametrize(
    ("ambiguity", "class_level", "expected"),
    [
        ("image", "category", [REPEATED, REPEATED, WITH_REPEATED, WITH_REPEATED, WITH_REPEATED]),
        ("objects", "category", [REPEATED, REPEATED, "", "", ""]),
        ("image", "group", [REPEATED, REPEATED, REPEATED, REPEATED, WITH_REPEATED]),
        ("objects", "group", [REPEATED, REPEATED, REPEATED, REPEATED, ""]),
    ],
)
def test_repeated_classes(ambiguity: str, class_level: str, expected: list[str]) -> None:
    rows: list[Row] = [
        (category, (150.0 * place, 100.0, 150.0 * place + 100, 200.0), 10.0)
        for place, category in enumerate(ROW_OF_CLASSES)
    ]
    assert reasons(rows, ambiguity=ambiguity, class_level=class_level) == expected
    assert reasons(rows[2:], ambiguity="image") == ["", "", ""]


def test_an_object_that_was_dropped_before_makes_no_class_ambiguous() -> None:
    small: Row = ("vehicle.car", (300.0, 100.0, 310.0, 110.0), 10)
    assert reasons([("vehicle.car", BOX, 10), small]) == ["", "too_small"]


def test_a_view_without_objects_is_fine() -> None:
    empty = view_of([("vehicle.car", BOX, 10)]).subset(np.array([False]))
    assert geometric_reasons(empty, Thresholds()).tolist() == []


# --- lidar ---


def judge(tmp_path: Path, boxes: list[BoxSpec], lidarseg: bool = True, **thresholds: object) -> JudgedView:
    world = load_world(write_folder(tmp_path / "world", boxes, lidarseg), VERSION)
    (judged_view,) = judge_frame(world, world[0], Thresholds(**thresholds))  # type: ignore[arg-type]
    return judged_view


@pytest.mark.parametrize("lidarseg", [True, False])
@pytest.mark.parametrize(("points", "reason"), [(5, ""), (4, "few_lidar_points"), (0, "few_lidar_points")])
def test_too_few_lidar_points(tmp_path: Path, lidarseg: bool, points: int, reason: str) -> None:
    result = judge(tmp_path, [BoxSpec("vehicle.car", 10.0, points=points)], lidarseg)
    assert result.lidar_points.tolist() == [points]
    assert result.reasons.tolist() == [reason]


def test_points_of_another_class_do_not_count_in_the_2d_box(tmp_path: Path) -> None:
    """The truck stands behind the car, in the same pixels; without labels its own 3D box decides."""
    boxes = [BoxSpec("vehicle.car", 10.0, points=3), BoxSpec("vehicle.truck", 30.0, points=50)]
    result = judge(tmp_path / "with", boxes, max_overlap=1.0)
    assert result.lidar_points.tolist() == [3, 50]
    assert result.reasons.tolist() == ["few_lidar_points", ""]


def test_a_world_without_lidarseg_counts_points_inside_the_3d_box(tmp_path: Path) -> None:
    boxes = [BoxSpec("vehicle.car", 10.0, points=7), BoxSpec("vehicle.truck", 30.0, points=50)]
    assert judge(tmp_path, boxes, lidarseg=False, max_overlap=1.0).lidar_points.tolist() == [7, 50]


def test_a_box_across_the_camera_plane_is_a_counted_drop(tmp_path: Path) -> None:
    beside = BoxSpec("vehicle.truck", 0.5, right_m=3.0, size_wlh_m=(4.0, 12.0, 3.0))
    result = judge(tmp_path, [beside, BoxSpec("vehicle.car", 10.0)])
    assert result.reasons.tolist() == ["centre_outside", ""]
    assert not np.isnan(result.view.boxes_xyxy_px).any()


def test_a_scene_record_holds_what_the_filters_saw(tmp_path: Path) -> None:
    world = load_world(
        write_folder(tmp_path / "world", [BoxSpec("vehicle.car", 10.0, 1.0, heading_rad=math.pi / 2)]), VERSION
    )
    (judged_view,) = judge_frame(world, world[0], Thresholds())
    scene = judged_image(world[0], judged_view).scene
    (item,) = scene.objects
    assert (item.heading, item.depth_m, item.lidar_points) == ("East", 10.0, 20)
    assert item.distance_m == pytest.approx(math.sqrt(101), abs=1e-4)
    assert item.pixel_xy == (900.0, 450.0)
    assert (scene.split, scene.camera, scene.scene) == ("train", "CAM_FRONT", "scene-0001")
    assert scene.extra["intrinsics"][0] == [1000.0, 0.0, 800.0]


def test_a_pixel_is_the_projected_centre_or_the_centre_of_the_2d_box(tmp_path: Path) -> None:
    """They differ for an object that the image's edge cuts."""
    world = load_world(write_folder(tmp_path / "world", [BoxSpec("vehicle.car", 10.0, 7.5)]), VERSION)
    (judged_view,) = judge_frame(world, world[0], Thresholds())
    (centre,) = judged_image(world[0], judged_view).scene.objects
    (box_centre,) = judged_image(world[0], judged_view, "box-centre").scene.objects
    x1, y1, x2, y2 = centre.box_xyxy_px
    assert centre.pixel_xy == (1550.0, 450.0) and x2 == 1600
    assert box_centre.pixel_xy == (pytest.approx((x1 + x2) / 2, abs=0.01), pytest.approx((y1 + y2) / 2, abs=0.01))
    assert box_centre.pixel_xy[0] < centre.pixel_xy[0] - 40


def test_dropped_objects_are_recorded_with_reason_and_points_where_counted(tmp_path: Path) -> None:
    boxes = [BoxSpec("animal", 10.0), BoxSpec("vehicle.car", 12.0, 5.0, points=2), BoxSpec("vehicle.truck", 20.0, -5.0)]
    world = load_world(write_folder(tmp_path / "world", boxes), VERSION)
    (judged_view,) = judge_frame(world, world[0], Thresholds())
    image = judged_image(world[0], judged_view)
    assert [(item.category, item.reason, item.lidar_points) for item in image.drops.objects] == [
        ("animal", "other_category", None),
        ("vehicle.car", "few_lidar_points", 2),
    ]
    assert image.drops.objects[1].xyz_m == (5.0, 0.0, 12.0) and image.drops.objects[1].annotation_token == "a1"
    assert [item.category for item in image.scene.objects] == ["vehicle.truck"]
    assert (image.drops.file_name, image.drops.camera) == (image.scene.file_name, "CAM_FRONT")
