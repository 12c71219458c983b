"""nuScenes folders as arrays, and the geometry on them, against the devkit and against dense sampling."""

from __future__ import annotations

import math
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
from nuscenes_folder import VERSION, BoxSpec, edit_table, write_folder
from plain_projection import boxes_in_images
from shared import need

from data_gen.geometry import (
    NEAR_M,
    box_corners,
    headings_rad,
    image_boxes,
    meet_image,
    project,
    quaternions_to_matrices,
)
from data_gen.nuscenes_splits import official_scenes, split_of_scenes
from data_gen.nuscenes_tables import WorldError
from data_gen.views import views_of
from data_gen.world import KeyFrame, World, check_files, load_world, select_frames

REAL = "nuscenes_real2"
MATRIX = np.array([[1266.0, 0, 816], [0, 1266, 491], [0, 0, 1]])
SIZE = np.array([1600, 900])
CAR = BoxSpec("vehicle.car", 10.0)


def small_world(tmp_path: Path, *boxes: BoxSpec) -> World:
    return load_world(write_folder(tmp_path / "world", list(boxes or [CAR])), VERSION)


def random_boxes(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.uniform([-20, -3, 0], [20, 3, 40], (count, 3))
    return centres, rng.uniform(0.3, 8, (count, 3)), quaternions_to_matrices(rng.normal(size=(count, 4)))


def boxes_of(corners: np.ndarray) -> np.ndarray:
    """2D boxes (N, 4) of corners (N, 8, 3) in the camera frame."""
    sizes = np.broadcast_to(SIZE[:, None], (2, len(corners)))
    return image_boxes((corners @ MATRIX.T).T, sizes)


# --- splits ---


def test_official_splits_equal_the_devkits() -> None:
    splits = pytest.importorskip("nuscenes.utils.splits").create_splits_scenes()
    assert {name: set(scenes) for name, scenes in official_scenes().items()} == {
        name: set(splits[name]) for name in official_scenes()
    }


def test_official_splits_are_disjoint_and_complete() -> None:
    train, val, test = (official_scenes()[name] for name in ("train", "val", "test"))
    assert (len(train), len(val), len(test), len(train | val | test)) == (700, 150, 150, 1000)


def test_the_mini_version_has_its_own_split(tmp_path: Path) -> None:
    assert split_of_scenes(tmp_path / "v1.0-mini") == {
        scene: split for split in ("train", "val") for scene in official_scenes()[f"mini_{split}"]
    }
    assert split_of_scenes(tmp_path / VERSION)["scene-0553"] == "val"
    assert split_of_scenes(tmp_path / "v1.0-mini")["scene-0553"] == "train"


def test_a_worlds_own_splits_decide(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [CAR], scene="drive-1")
    assert load_world(root, VERSION).splits == ("",)
    (root / VERSION / "splits.json").write_text('{"train": [], "val": ["drive-1"]}')
    world = load_world(root, VERSION)
    assert world.splits == ("val",)
    assert select_frames(world, "val") == [0]
    with pytest.raises(WorldError, match=r"no key frame of split 'train'; splits there: val"):
        select_frames(world, "train")


# --- key frames ---


def test_key_frames_come_by_scene_name_and_time(tmp_path: Path) -> None:
    """Each with its own files, in whatever order the tables list them."""
    root = write_folder(tmp_path / "world", [CAR])
    added = {"late": ("sc", 9), "first": ("sc-0", 5), "early": ("sc", 0)}
    edit_table(root, "scene", lambda rows: [*rows, {"token": "sc-0", "name": "scene-0000"}])
    edit_table(root, "sample", lambda rows: [
        *rows, *({"token": name, "scene_token": scene, "timestamp": us} for name, (scene, us) in added.items())
    ])  # fmt: skip
    edit_table(root, "sample_data", lambda rows: rows + [
        row | {"token": f"{row['token']}-{name}", "sample_token": name, "filename": f"{row['filename']}.{name}"}
        for name in added for row in rows
    ])  # fmt: skip
    world = load_world(root, VERSION)
    assert [frame.sample_token for frame in world] == ["first", "early", "s", "late"]
    assert [frame.lidar.file_name.split(".")[-1] for frame in world] == ["first", "early", "bin", "late"]
    assert [len(frame.annotations.tokens) for frame in world] == [0, 0, 1, 0]


# --- sharing ---


def describe(frame: KeyFrame) -> list[object]:
    """What a process has to see of a key frame."""
    boxes, cameras, lidar = frame.annotations, frame.cameras, frame.lidar
    views = [(view.indices.tolist(), view.boxes_xyxy_px.tolist(), view.yaws_rad.tolist()) for view in views_of(frame)]
    texts = [frame.sample_token, frame.scene, frame.split, boxes.tokens, boxes.categories.tolist(), cameras.channels]
    return [*texts, boxes.labels.tolist(), cameras.file_names, lidar.file_name, lidar.label_file_name, views]


_WORLD: list[World] = []


def test_a_world_survives_pickling_and_is_read_in_forked_processes(tmp_path: Path) -> None:
    world = small_world(tmp_path, CAR, BoxSpec("human.pedestrian.child", 20.0, right_m=2.0))
    expected = [describe(frame) for frame in world]
    assert expected[0][:6] == ["s", "scene-0001", "train", ("a0", "a1"), ["vehicle.car", "human.pedestrian.child"],
                               ("CAM_FRONT",)]  # fmt: skip
    assert [describe(frame) for frame in pickle.loads(pickle.dumps(world))] == expected
    _WORLD[:] = [world]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(describe_all) == expected


def describe_all() -> list[list[object]]:
    """Runs in the forked process, which has the world from before the fork."""
    return [describe(frame) for frame in _WORLD[0]]


def test_no_table_is_held_as_python_objects(tmp_path: Path) -> None:
    """What grows with the folder must be arrays of plain numbers and bytes, or every process would copy it."""
    root = write_folder(tmp_path / "world", [CAR])
    edit_table(root, "instance", lambda rows: [{**rows[0], "token": f"i{i}"} for i in range(200)])
    change = [{"token": f"a{i}", "instance_token": f"i{i}"} for i in range(200)]
    edit_table(root, "sample_annotation", lambda rows: [{**rows[0], **item} for item in change])
    world = load_world(root, VERSION)
    for table in (world.key_frames, world.cameras, world.lidars, world.boxes):
        for value in vars(table).values():
            assert len(value) < 10 or (isinstance(value, np.ndarray) and value.dtype != object)


# --- geometry ---


def test_boxes_equal_the_devkits_convex_hull_cut_at_the_image() -> None:
    post_process_coords = pytest.importorskip("nuscenes.scripts.export_2d_annotations_as_json").post_process_coords
    corners = box_corners(*random_boxes(1500))
    ahead = (corners[..., 2] >= NEAR_M).all(axis=1)
    compared = 0
    for row, box in zip(corners[ahead], boxes_of(corners[ahead]), strict=True):
        expected = post_process_coords(project(row, MATRIX).tolist())
        assert np.isnan(box).all() if expected is None else np.abs(box - expected).max() < 1e-6
        compared += expected is not None
    assert compared > 500


def straddling_corners() -> np.ndarray:
    corners = box_corners(*random_boxes(4000))
    ahead = corners[..., 2] >= NEAR_M
    return corners[ahead.any(axis=1) & ~ahead.all(axis=1)]


def test_boxes_that_reach_behind_the_camera_equal_the_hull_of_fine_samples_of_their_edges() -> None:
    coords = pytest.importorskip("nuscenes.scripts.export_2d_annotations_as_json").post_process_coords
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    edges = [*ring, *((a + 4, b + 4) for a, b in ring), *((a, a + 4) for a in range(4))]
    share = np.linspace(0, 1, 801)[:, None]
    seen = 0
    chosen = straddling_corners()[:80]
    for corners, box in zip(chosen, boxes_of(chosen), strict=True):
        points = np.concatenate([corners[a] + share * (corners[b] - corners[a]) for a, b in edges])
        expected = coords(project(points[points[:, 2] >= NEAR_M], MATRIX).tolist())
        assert (expected is None) == bool(np.isnan(box).all())
        if expected is not None:
            seen += 1
            assert np.abs(box - expected).max() < 5
    assert seen > 15


def test_leaving_out_the_corners_behind_the_camera_would_be_wrong() -> None:
    """What the devkit's export does: it must differ, or the test above shows nothing."""
    coords = pytest.importorskip("nuscenes.scripts.export_2d_annotations_as_json").post_process_coords
    worst = 0.0
    for corners, box in zip(straddling_corners(), boxes_of(straddling_corners()), strict=True):
        expected = (
            coords(project(corners[corners[:, 2] > 0], MATRIX).tolist()) if (corners[:, 2] > 0).sum() > 2 else None
        )
        if expected is not None and not np.isnan(box).any():
            worst = max(worst, float(np.abs(box - expected).max()))
    assert worst > 100


@pytest.mark.parametrize(
    ("centre", "size_wlh", "expected"),
    [
        ((0, 0, 5), (20, 2, 20), [0, 0, 1600, 900]),  # its front face covers the whole image
        ((0, 0, 0), (4, 4, 4), [0, 0, 1600, 900]),  # the camera is inside
        ((0, 0, -5), (2, 2, 2), [math.nan] * 4),  # behind
        ((50, 0, 5), (2, 2, 2), [math.nan] * 4),  # beside
    ],
)
def test_boxes_at_the_limits(centre: tuple[float, ...], size_wlh: tuple[float, ...], expected: list[float]) -> None:
    corners = box_corners(np.array([centre], dtype=float), np.array([size_wlh], dtype=float), np.eye(3)[None])
    np.testing.assert_allclose(boxes_of(corners)[0], expected)


@pytest.mark.parametrize(("heading_deg", "sign"), [(0, 0), (90, 1), (-90, -1), (179, 1), (30, 1)])
def test_heading_is_clockwise_from_the_optical_axis(tmp_path: Path, heading_deg: float, sign: int) -> None:
    view = views_of(small_world(tmp_path, BoxSpec("vehicle.car", 10.0, heading_rad=math.radians(heading_deg)))[0])[0]
    assert view.yaws_rad[0] == pytest.approx(math.radians(heading_deg), abs=1e-5)
    assert np.sign(round(math.sin(view.yaws_rad[0]), 6)) == sign  # positive: to the image's right


def test_the_camera_uses_its_own_ego_pose(tmp_path: Path) -> None:
    view = views_of(small_world(tmp_path, BoxSpec("vehicle.car", 10.0, right_m=1.0))[0])[0]
    assert view.centres_m[0].tolist() == [1.0, 0.0, 10.0]  # 11 with the lidar's
    assert view.pixels[0].tolist() == [900.0, 450.0]


def test_the_quick_look_misses_no_box_and_spares_most_of_those_outside() -> None:
    corners = box_corners(*random_boxes(4000))
    meets = meet_image((corners @ MATRIX.T).T, SIZE[:, None])
    in_image = ~np.isnan(boxes_of(corners)[:, 0])
    assert not (in_image & ~meets).any()
    assert (meets & ~in_image).sum() < 0.1 * (~meets).sum()


# --- real key frames ---


def test_real_boxes_equal_an_independent_projection() -> None:
    root = need(REAL)
    frame = next(frame for frame in load_world(root, VERSION) if frame.scene == "scene-0061")
    expected = boxes_in_images(root / VERSION, frame.sample_token)
    found = {
        (frame.cameras.channels[view.camera], frame.annotations.tokens[index]): box.tolist()
        for view in views_of(frame)
        for index, box in zip(view.indices, view.boxes_xyxy_px, strict=True)
    }
    assert found.keys() == expected.keys() and len(found) > 70
    for key, box in expected.items():
        assert found[key] == pytest.approx(box, abs=0.01)


def test_real_boxes_headings_and_depths_equal_the_devkits() -> None:
    nuscenes = pytest.importorskip("nuscenes.nuscenes")
    coords = pytest.importorskip("nuscenes.scripts.export_2d_annotations_as_json").post_process_coords
    root = need(REAL)
    oracle = nuscenes.NuScenes(VERSION, dataroot=str(root), verbose=False)
    compared = 0
    for frame in load_world(root, VERSION):
        data = oracle.get("sample", frame.sample_token)["data"]
        for view, channel in zip(views_of(frame), frame.cameras.channels, strict=True):
            _, boxes, matrix = oracle.get_sample_data(data[channel], box_vis_level=nuscenes.BoxVisibility.NONE)
            by_token = {box.token: box for box in boxes}
            for place, index in enumerate(view.indices):
                box = by_token[frame.annotations.tokens[index]]
                np.testing.assert_allclose(view.centres_m[place], box.center, atol=1e-4)
                heading = headings_rad(box.orientation.rotation_matrix)
                assert math.cos(view.yaws_rad[place] - heading) == pytest.approx(1)
                corners = box.corners().T
                if (corners[:, 2] >= NEAR_M).all():
                    expected = coords(project(corners, np.array(matrix)).tolist())
                    np.testing.assert_allclose(view.boxes_xyxy_px[place], expected, atol=0.01)
                    compared += 1
    assert compared > 100


def test_the_real_key_frames_are_train_and_val() -> None:
    world = load_world(need(REAL), VERSION)
    assert dict(zip(world.scenes, world.splits, strict=True)) == {"scene-0003": "val", "scene-0061": "train"}
    assert [len(frame.annotations.tokens) for frame in world] == [37, 69]
    check_files(world, select_frames(world))
