"""The synthetic world on disk: tables, lidar and pictures agree with each other and with nuscenes-devkit."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import BACKDROP, body_bounds_px, drawn
from PIL import Image
from shared import need

from data_gen.rendering.drives import WorldSpec, cameras_at, ego_pose, plan_scene, surroundings_of
from data_gen.rendering.palette import KINDS, describe
from data_gen.rendering.rig import CAMERAS, LIDAR_MOUNT, camera_in_world
from data_gen.rendering.tables import CATEGORIES, CATEGORY_INDEX, VERSION
from data_gen.rendering.traffic import glimpse
from data_gen.synthetic import is_finished, main, write_world

TINY = WorldSpec(scenes=4, frames_per_scene=2, seed=3)
SMALLEST = WorldSpec(scenes=1, frames_per_scene=1, width_px=64, height_px=36)
TABLES = (
    *("attribute", "calibrated_sensor", "category", "ego_pose", "instance", "log", "map", "sample"),
    *("sample_annotation", "sample_data", "scene", "sensor", "visibility", "lidarseg"),
)
GROUND_CLASSES = ("driveable_surface", "sidewalk", "terrain")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "synthetic"
    write_world(folder, TINY)
    return folder


@pytest.fixture(scope="module")
def tables(root: Path) -> dict[str, list[dict[str, Any]]]:
    names = [*TABLES, "descriptions"]
    return {name: json.loads((root / VERSION / f"{name}.json").read_text()) for name in names}


@pytest.fixture(scope="module")
def devkit(root: Path) -> Any:
    nuscenes = pytest.importorskip("nuscenes")
    return nuscenes.NuScenes(VERSION, str(root), verbose=False)


def by_token(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record["token"]: record for record in records}


def matrix(wxyz: list[float]) -> np.ndarray:
    """A rotation matrix from a quaternion by the vector formula, apart from the code under test."""
    w, v = wxyz[0], np.array(wxyz[1:])
    return np.array([e + 2 * w * np.cross(v, e) + 2 * np.cross(v, np.cross(v, e)) for e in np.eye(3)]).T


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# --- lidar


def test_lidar_points_of_an_annotation_lie_in_its_box_and_carry_its_class(
    root: Path, tables: dict[str, list[dict[str, Any]]]
) -> None:
    poses, mounts = by_token(tables["ego_pose"]), by_token(tables["calibrated_sensor"])
    instances, categories = by_token(tables["instance"]), by_token(tables["category"])
    labels_of = {record["sample_data_token"]: record["filename"] for record in tables["lidarseg"]}
    counted = 0
    for record in tables["sample_data"]:
        if record["fileformat"] != "pcd":
            continue
        points = np.fromfile(root / record["filename"], np.float32).reshape(-1, 5)
        labels = np.fromfile(root / labels_of[record["token"]], np.uint8)
        assert len(points) == len(labels)
        assert set(np.unique(points[:, 4])) <= set(range(32))
        pose, mount = poses[record["ego_pose_token"]], mounts[record["calibrated_sensor_token"]]
        in_car_m = points[:, :3] @ matrix(mount["rotation"]).T + np.array(mount["translation"])
        world_m = in_car_m @ matrix(pose["rotation"]).T + np.array(pose["translation"])
        taken = np.zeros(len(points), dtype=bool)
        for annotation in tables["sample_annotation"]:
            if annotation["sample_token"] != record["sample_token"]:
                continue
            width_m, length_m, height_m = annotation["size"]
            local_m = (world_m - np.array(annotation["translation"])) @ matrix(annotation["rotation"])
            inside = (np.abs(local_m) <= np.array([length_m, width_m, height_m]) / 2).all(axis=1)
            inside &= world_m[:, 2] > 0.005  # the ground below belongs to nobody
            category = categories[instances[annotation["instance_token"]]["category_token"]]
            assert (labels[inside] == category["index"]).all()
            assert inside.sum() == annotation["num_lidar_pts"]
            taken |= inside
            counted += int(inside.sum())
        road_users = np.isin(labels, [CATEGORY_INDEX[kind.category] for kind in KINDS.values()])
        assert (road_users == taken).all()
        ground = np.abs(world_m[:, 2]) < 0.005
        assert set(np.unique(labels[ground])) <= {CATEGORY_INDEX[f"flat.{name}"] for name in GROUND_CLASSES}
        assert set(np.unique(labels[~ground & ~taken])) <= {
            CATEGORY_INDEX["static.manmade"],
            CATEGORY_INDEX["static.vegetation"],
        }
    assert counted > 1000


# --- tables


def test_records_are_linked_as_in_nuscenes(root: Path, tables: dict[str, list[dict[str, Any]]]) -> None:
    samples, scenes = by_token(tables["sample"]), tables["scene"]
    assert [scene["name"] for scene in scenes] == [f"synthetic-{number:04d}" for number in range(1, 5)]
    for scene in scenes:
        walked, key = [], scene["first_sample_token"]
        while key:
            walked.append(key)
            assert samples[key]["scene_token"] == scene["token"]
            key = samples[key]["next"]
        assert walked[-1] == scene["last_sample_token"] and len(walked) == scene["nbr_samples"] == 2
        assert [samples[key]["prev"] for key in walked] == ["", *walked[:-1]]
    for name in ("sample_data", "sample_annotation"):
        records = by_token(tables[name])
        for record in records.values():
            assert record["next"] == "" or records[record["next"]]["prev"] == record["token"]
    assert set(tables["map"][0]["log_tokens"]) == {log["token"] for log in tables["log"]}
    for name in ("map", "sample_data", "lidarseg"):
        assert all((root / record["filename"]).is_file() for record in tables[name])


def test_instances_know_their_annotations(tables: dict[str, list[dict[str, Any]]]) -> None:
    annotations = by_token(tables["sample_annotation"])
    for instance in tables["instance"]:
        own = [record for record in annotations.values() if record["instance_token"] == instance["token"]]
        first, last = (annotations[instance[f"{end}_annotation_token"]] for end in ("first", "last"))
        assert len(own) == instance["nbr_annotations"]
        assert (first["prev"], last["next"]) == ("", "")
        assert len({tuple(record["size"]) for record in own}) == 1
    assert any(instance["nbr_annotations"] == 2 for instance in tables["instance"])


def test_every_sensor_has_its_own_ego_pose_on_the_ground(tables: dict[str, list[dict[str, Any]]]) -> None:
    poses = by_token(tables["ego_pose"])
    for sample in tables["sample"]:
        taken = [record for record in tables["sample_data"] if record["sample_token"] == sample["token"]]
        places = [tuple(poses[record["ego_pose_token"]]["translation"]) for record in taken]
        turns = [tuple(poses[record["ego_pose_token"]]["rotation"]) for record in taken]
        assert len(taken) == len(set(places)) == len(set(turns)) == 7
        assert all(place[2] == 0 for place in places)
        assert max(sample["timestamp"] - record["timestamp"] for record in taken) == 43_100


def test_categories_are_those_of_lidarseg(tables: dict[str, list[dict[str, Any]]]) -> None:
    assert len(CATEGORIES) == 32
    path = need("nuscenes_real2/v1.0-trainval/category.json")
    real = {record["name"]: record["index"] for record in json.loads(path.read_text())}
    assert {record["name"]: record["index"] for record in tables["category"]} == real


def test_descriptions_and_splits_cover_the_world(root: Path, tables: dict[str, list[dict[str, Any]]]) -> None:
    described = {record["sample_annotation_token"]: record for record in tables["descriptions"]}
    assert described.keys() == by_token(tables["sample_annotation"]).keys()
    assert all(record["colour"] in record["description"].split() for record in described.values())
    splits = json.loads((root / VERSION / "splits.json").read_text())
    train, val = ["synthetic-0001", "synthetic-0002", "synthetic-0003"], ["synthetic-0004"]
    assert splits == {"train": train, "val": val}


@pytest.mark.parametrize(
    ("kind", "colour", "text"),
    [
        ("car", "white", "white car"),
        ("truck", "red", "red truck"),
        ("bus", "yellow", "yellow bus"),
        ("cyclist", "green", "green bicycle"),
        ("pedestrian", "blue", "adult wearing a blue shirt"),
    ],
)
def test_descriptions_use_the_standard_wording(kind: str, colour: str, text: str) -> None:
    assert describe(kind, colour) == text


# --- nuscenes-devkit


def test_the_devkit_opens_the_world_and_finds_every_sensor(devkit: Any) -> None:
    assert len(devkit.scene) == 4 and len(devkit.sample) == 8
    for sample in devkit.sample:
        assert set(sample["data"]) == {camera.channel for camera in CAMERAS} | {"LIDAR_TOP"}
        path, _, intrinsic = devkit.get_sample_data(sample["data"]["CAM_BACK"])
        assert Image.open(path).size == (TINY.width_px, TINY.height_px)
        assert intrinsic[0, 0] == pytest.approx(809 * 224 / 1600)
    mask = devkit.map[0]["mask"].mask()
    assert mask.shape == (5000, 5000)
    place = devkit.get("ego_pose", devkit.sample_data[0]["ego_pose_token"])
    assert devkit.map[0]["mask"].is_on_mask(*place["translation"][:2])[0]


def test_the_devkit_projects_lidar_points_and_reads_their_labels(
    devkit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = devkit.sample[0]
    for camera in CAMERAS:
        points, depths_m, _ = devkit.explorer.map_pointcloud_to_image(
            sample["data"]["LIDAR_TOP"], sample["data"][camera.channel]
        )
        assert points.shape[1] > 300 and depths_m.min() > 1
    devkit.get_sample_lidarseg_stats(sample["token"])
    assert "flat.driveable_surface" in capsys.readouterr().out


def test_the_devkit_boxes_bound_the_drawn_bodies(devkit: Any) -> None:
    from nuscenes.utils.geometry_utils import BoxVisibility, view_points

    compared = 0
    for scene_index, scene in enumerate(devkit.scene):
        plan = plan_scene(TINY, scene_index)
        sample = devkit.get("sample", scene["first_sample_token"])
        users = dict(zip(sample["anns"], plan.traffic[0], strict=True))
        for mount, camera in zip(CAMERAS, cameras_at(TINY, plan.motion, 0), strict=True):
            _, boxes, intrinsic = devkit.get_sample_data(sample["data"][mount.channel], BoxVisibility.ALL)
            for item in boxes:
                corners_px = view_points(item.corners(), intrinsic, normalize=True)[:2]
                bounds_px = np.concatenate([corners_px.min(axis=1), corners_px.max(axis=1)])
                pixels_px = body_bounds_px(drawn(camera, [users[item.token].placed()]))
                assert (pixels_px[:2] >= bounds_px[:2] - 1).all() and (pixels_px[2:] <= bounds_px[2:] + 1).all()
                filled = np.prod(pixels_px[2:] - pixels_px[:2]) / np.prod(bounds_px[2:] - bounds_px[:2])
                assert filled >= (0.5 if users[item.token].kind in {"pedestrian", "cyclist"} else 0.85)
                compared += 1
    assert compared > 10


def test_boxes_seen_from_the_pose_of_another_sensor_miss_the_drawn_bodies() -> None:
    misses = 0
    for scene_index in range(TINY.scenes):
        plan = plan_scene(TINY, scene_index)
        lidar_pose = ego_pose(plan.motion, 0, LIDAR_MOUNT)
        for mount, camera in zip(CAMERAS, cameras_at(TINY, plan.motion, 0), strict=True):
            wrong = camera_in_world(mount, lidar_pose, TINY.width_px, TINY.height_px)
            for user in plan.traffic[0]:
                seen, mistaken = glimpse(camera, user), glimpse(wrong, user)
                if seen is not None and mistaken is not None and seen.centre_inside:
                    pixels_px = body_bounds_px(drawn(camera, [user.placed()]))
                    beyond_px = np.maximum(
                        mistaken.box_xyxy_px[:2] - pixels_px[:2], pixels_px[2:] - mistaken.box_xyxy_px[2:]
                    )
                    misses += bool(beyond_px.max() > 1.5)
    assert misses >= 3


def test_the_written_images_show_the_planned_bodies(root: Path, tables: dict[str, list[dict[str, Any]]]) -> None:
    plan, light = plan_scene(TINY, 0), surroundings_of(TINY, 0).light
    placed = [user.placed() for user in plan.traffic[0]]
    shown = 0
    for record, camera in zip(tables["sample_data"], cameras_at(TINY, plan.motion, 0), strict=False):
        alone = drawn(camera, placed, light=light)
        covered = (np.abs(alone - np.array(BACKDROP)).max(axis=2) > 60) & (alone.sum(axis=2) != sum(BACKDROP))
        if covered.sum() > 30:
            written = np.asarray(Image.open(root / record["filename"])).astype(int)
            assert np.median(np.abs(written - alone)[covered]) < 12
            assert np.median(np.abs(written[:, ::-1] - alone)[covered]) > 12
            shown += 1
    assert shown >= 3


# --- files on disk


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        write_world(tmp_path / name, WorldSpec(1, 1, 64, 36, seed))
    first, again, other = (digests(tmp_path / name) for name in ("first", "again", "other"))
    assert first == again
    assert not set(first.values()) & {digest for path, digest in other.items() if path.startswith("samples")}


def test_a_killed_run_is_unfinished_and_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    write_world(tmp_path / "world", SMALLEST)
    whole = digests(tmp_path / "world")
    images = sorted((tmp_path / "world" / "samples").rglob("*.jpg"))
    images[0].unlink()
    shutil.rmtree(tmp_path / "world" / VERSION)
    assert not is_finished(tmp_path / "world")
    untouched_ns = images[1].stat().st_mtime_ns
    write_world(tmp_path / "world", SMALLEST, resume=True)
    assert digests(tmp_path / "world") == whole
    assert images[1].stat().st_mtime_ns == untouched_ns
    with pytest.raises(ValueError, match="cannot resume"):
        write_world(tmp_path / "world", TINY, resume=True)


def test_options_that_are_not_given_leave_no_mark(tmp_path: Path) -> None:
    """A world that was begun before there were more options is gone on with."""
    write_world(tmp_path / "plain", SMALLEST)
    assert (tmp_path / "plain" / "world_spec.json").read_text() == (
        '{"scenes": 1, "frames_per_scene": 1, "width_px": 64, "height_px": 36, "seed": 0}'
    )
    depths = WorldSpec(2, 1, 64, 36, test_scenes=1, depths_m=(8.0, 22.0))
    write_world(tmp_path / "depths", depths)
    write_world(tmp_path / "depths", depths, resume=True)
    assert json.loads((tmp_path / "depths" / VERSION / "splits.json").read_text())["test"] == ["synthetic-0002"]
    with pytest.raises(ValueError, match="cannot resume"):
        write_world(tmp_path / "depths", WorldSpec(2, 1, 64, 36, test_scenes=1, depths_m=(8.0, 23.0)), resume=True)


@pytest.mark.slow
def test_workers_write_the_same_bytes(tmp_path: Path) -> None:
    spec = WorldSpec(2, 1, 64, 36)
    write_world(tmp_path / "one", spec)
    write_world(tmp_path / "two", spec, workers=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_a_folder_that_is_not_empty_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(SystemExit) as stop:
        main(["--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "--overwrite" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_overwrite_replaces_a_world(tmp_path: Path) -> None:
    options = [
        "--out",
        str(tmp_path / "world"),
        "--scenes",
        "1",
        "--frames-per-scene",
        "1",
        "--width",
        "64",
        "--height",
    ]
    main([*options, "36"])
    main([*options, "40", "--overwrite"])
    assert {Image.open(path).size for path in (tmp_path / "world").rglob("*.jpg")} == {(64, 40)}


@pytest.mark.parametrize("options", [["--scenes", "0"], ["--width", "8"], ["--seed", "-1"]])
def test_impossible_worlds_are_refused(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--out", str(tmp_path / "world"), *options])
    assert stop.value.code == 2
    assert "got" in capsys.readouterr().err
    assert not (tmp_path / "world").exists()
