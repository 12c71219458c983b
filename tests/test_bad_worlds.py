"""nuScenes folders that cannot be right: a clear error before any work starts, naming the row or the file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nuscenes_folder import VERSION, BoxSpec, edit_table, write_folder

from data_gen import nuscenes_tables
from data_gen.nuscenes_tables import SampleData, WorldError, read_batches, read_table
from data_gen.views import views_of
from data_gen.world import World, check_files, load_world, select_frames

CAR = BoxSpec("vehicle.car", 10.0)
Rows = list[dict[str, Any]]
LIDAR_FILE, LABEL_FILE, IMAGE_FILE = "samples/LIDAR_TOP/a.bin", "lidarseg/a.bin", "samples/CAM_FRONT/a.jpg"


def world_of(tmp_path: Path, *boxes: BoxSpec) -> World:
    return load_world(write_folder(tmp_path / "world", list(boxes or [CAR])), VERSION)


def edited(tmp_path: Path, table: str, change: Callable[[Rows], Any]) -> Path:
    root = write_folder(tmp_path / "world", [CAR, BoxSpec("vehicle.truck", 20.0)])
    edit_table(root, table, change)
    return root


def with_field(name: str, value: object, place: int = 0) -> Callable[[Rows], Rows]:
    return lambda rows: [{**row, name: value} if index == place else row for index, row in enumerate(rows)]


# --- versions and tables ---


def test_a_wrong_version_lists_those_on_disk(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    with pytest.raises(WorldError, match=rf"no version 'v1.0-mini'; versions there: {VERSION}"):
        load_world(root, "v1.0-mini")
    with pytest.raises(WorldError, match="no folder at"):
        load_world(tmp_path / "nowhere", VERSION)


TABLES = (
    "sensor", "calibrated_sensor", "ego_pose", "scene", "sample", "sample_data", "category", "instance",
    "sample_annotation",
)  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_a_missing_table_is_named(tmp_path: Path, table: str) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    (root / VERSION / f"{table}.json").unlink()
    with pytest.raises(WorldError, match=rf"{table}\.json is missing; unpack the metadata"):
        load_world(root, VERSION)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_is_no_list_is_named(tmp_path: Path, table: str) -> None:
    root = edited(tmp_path, table, lambda rows: {"rows": rows})
    with pytest.raises(WorldError, match=rf"{table}\.json cannot be read: Expected `array`, got `object`"):
        load_world(root, VERSION)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("sample_annotation", lambda rows: [], "no annotations"),
        ("sample", lambda rows: [], "no key frames"),
        ("sample_data", lambda rows: [], "no key-frame file"),
        ("calibrated_sensor", lambda rows: [], r"calibrated_sensor\.json lacks the token 'c-cam'"),
        ("sensor", lambda rows: [], "no key-frame file"),
        ("ego_pose", lambda rows: rows[1:], r"ego_pose\.json lacks the token 'e-cam'"),
        ("instance", lambda rows: rows[1:], r"instance\.json lacks the token 'i0'"),
        ("category", lambda rows: [], r"category\.json lacks the token 'k-vehicle\.car'"),
        ("scene", lambda rows: [], r"scene\.json lacks the token 'sc'"),
        ("sample", lambda rows: rows * 2, r"sample\.json has the token 's' twice"),
        ("instance", lambda rows: [*rows, rows[1]], r"instance\.json has the token 'i1' twice"),
        ("category", lambda rows: [{k: v for k, v in row.items() if k != "index"} for row in rows], "no `index`"),
        ("category", with_field("index", 256, 5), "outside 0 to 255"),
        ("category", with_field("index", -1, 5), "no `index`|outside 0 to 255"),
        ("lidarseg", lambda rows: [{**rows[0], "sample_data_token": "d-cam"}], "no labels for the key frame s"),
    ],
)
def test_tables_that_do_not_fit_together_are_named(
    tmp_path: Path, table: str, change: Callable[[Rows], Any], message: str
) -> None:
    root = edited(tmp_path, table, change)
    with pytest.raises(WorldError, match=message):
        check_files(load_world(root, VERSION), [0])


# --- rows ---


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", [2.0, 0.0, 2.0]),
        ("size", [2.0, 2.0, -1.0]),
        ("size", [2.0, 2.0, math.nan]),
        ("size", [2.0, 2.0]),
        ("size", None),
        ("translation", [12.0, math.nan, 1.5]),
        ("translation", [math.inf, 0.0, 1.5]),
        ("translation", ["12", 0.0, 1.5]),
        ("rotation", [0.0, 0.0, 0.0, 0.0]),
        ("rotation", [1.0, 0.0, 0.0]),
    ],
)
def test_a_box_that_cannot_be_is_named(tmp_path: Path, field: str, value: object) -> None:
    root = edited(tmp_path, "sample_annotation", with_field(field, value, place=1))
    with pytest.raises(WorldError, match=r"sample_annotation\.json .*'a1'"):
        load_world(root, VERSION)


def test_a_number_too_large_to_hold_is_named(tmp_path: Path) -> None:
    root = edited(tmp_path, "sample_annotation", with_field("translation", [4e250, 0.0, 1.5], place=1))
    path = root / VERSION / "sample_annotation.json"
    path.write_text(path.read_text().replace("e+250", "e+999"))
    with pytest.raises(WorldError, match=r"Number out of range.*'a1'"):
        load_world(root, VERSION)


@pytest.mark.parametrize("table", ["ego_pose", "calibrated_sensor"])
def test_a_pose_without_rotation_is_named(tmp_path: Path, table: str) -> None:
    root = edited(tmp_path, table, with_field("rotation", [0.0, 0.0, 0.0, 0.0], place=1))
    with pytest.raises(WorldError, match=rf"the rotation of {table}\.json row '[ce]-lid' is \[0.0, 0.0, 0.0, 0.0\]"):
        load_world(root, VERSION)


@pytest.mark.parametrize(
    "matrix",
    [
        [],
        [[1000.0, 0.0, 800.0], [0.0, 1000.0, 450.0]],
        [[1000.0, 0.0], [0.0, 1000.0], [0.0, 0.0]],
        [[1000.0, 0.0, 800.0], [0.0, 0.0, 450.0], [0.0, 0.0, 1.0]],
        [[-1000.0, 0.0, 800.0], [0.0, 1000.0, 450.0], [0.0, 0.0, 1.0]],
        [[1000.0, 0.0, 800.0], [0.0, 1000.0, 450.0], [0.0, 0.0, 0.0]],
    ],
)
def test_a_camera_matrix_that_is_none_is_named(tmp_path: Path, matrix: list[list[float]]) -> None:
    root = edited(tmp_path, "calibrated_sensor", with_field("camera_intrinsic", matrix))
    with pytest.raises(WorldError, match=r"camera_intrinsic of calibrated_sensor\.json row 'c-cam' \(CAM_FRONT\) is"):
        load_world(root, VERSION)


def test_an_image_without_size_is_named(tmp_path: Path) -> None:
    root = edited(tmp_path, "sample_data", with_field("width", 0))
    with pytest.raises(WorldError, match=rf"{IMAGE_FILE} is 0x900 pixels"):
        load_world(root, VERSION)


def test_a_category_that_could_not_be_named_in_a_question_is_refused(tmp_path: Path) -> None:
    root = edited(tmp_path, "category", with_field("name", "vehicle.van (white)"))
    with pytest.raises(WorldError, match=r"category\.json has the name 'vehicle\.van \(white\)'"):
        load_world(root, VERSION)


# --- key frames ---


def test_a_key_frame_without_a_camera_or_lidar_is_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    edit_table(root, "sample", lambda rows: [*rows, {**rows[0], "token": "later", "timestamp": 2}])
    with pytest.raises(WorldError, match=r"key frame later has no LIDAR_TOP in sample_data\.json \(1 key frames"):
        load_world(root, VERSION)
    edit_table(root, "sample_data", lambda rows: [*rows, {**rows[1], "token": "d2", "sample_token": "later"}])
    with pytest.raises(WorldError, match="key frame later has no camera"):
        load_world(root, VERSION)
    edit_table(root, "sample_data", lambda rows: [*rows, {**rows[0], "token": "d3", "sample_token": "later"}])
    with pytest.raises(WorldError, match=rf"names the file {IMAGE_FILE} for two key-frame rows"):
        load_world(root, VERSION)
    edit_table(root, "sample_data", lambda rows: [*rows[:-1], {**rows[-1], "filename": "samples/CAM_FRONT/b.jpg"}])
    assert [len(views_of(frame)[0]) for frame in load_world(root, VERSION)] == [1, 0]


@pytest.mark.parametrize("place", [0, 1])
def test_two_files_of_one_channel_are_named(tmp_path: Path, place: int) -> None:
    again = edited(
        tmp_path, "sample_data", lambda rows: [*rows, {**rows[place], "token": "again", "filename": "samples/b"}]
    )
    with pytest.raises(WorldError, match=r"two key-frame files of one channel for the key frame s: .*a\.\w+ and .*b;"):
        load_world(again, VERSION)


def test_files_between_key_frames_and_radar_are_left_out(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    edit_table(root, "sensor", lambda rows: [*rows, {"token": "rad", "channel": "RADAR_FRONT"}])
    edit_table(root, "calibrated_sensor", lambda rows: [*rows, {**rows[1], "token": "c-rad", "sensor_token": "rad"}])
    radar = {"token": "d-rad", "calibrated_sensor_token": "c-rad", "ego_pose_token": "none"}
    between = {"token": "d-between", "is_key_frame": False, "ego_pose_token": "none"}
    edit_table(root, "sample_data", lambda rows: [*rows, {**rows[1], **radar}, {**rows[0], **between}])
    (frame,) = load_world(root, VERSION)
    assert frame.cameras.file_names == (IMAGE_FILE,) and frame.lidar.file_name == LIDAR_FILE


# --- objects at the limits ---


def test_a_box_that_straddles_the_camera_plane_stays_in_the_image(tmp_path: Path) -> None:
    long = BoxSpec("vehicle.truck", 1.0, right_m=3.0, size_wlh_m=(2.0, 12.0, 3.0))
    behind = BoxSpec("vehicle.bus.rigid", -1.0, right_m=-3.0, size_wlh_m=(2.0, 12.0, 3.0))
    (view,) = views_of(world_of(tmp_path, long, behind)[0])
    assert view.indices.tolist() == [0, 1]
    assert (view.boxes_xyxy_px >= 0).all() and (view.boxes_xyxy_px <= [1600, 900, 1600, 900]).all()
    assert np.isfinite(view.pixels[0]).all() and np.isnan(view.pixels[1]).all()  # the centre of one is not ahead


def test_the_camera_inside_a_box_sees_it_everywhere(tmp_path: Path) -> None:
    (view,) = views_of(world_of(tmp_path, BoxSpec("vehicle.car", 0.2, size_wlh_m=(2.0, 4.0, 2.0)))[0])
    assert view.boxes_xyxy_px.tolist() == [[0.0, 0.0, 1600.0, 900.0]]


# --- files ---


@pytest.mark.parametrize("name", [IMAGE_FILE, LIDAR_FILE, LABEL_FILE])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    world = world_of(tmp_path)
    (world.root / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name} is missing under .* \(1 of 3 files"):
        check_files(world, [0])


def test_a_link_to_nothing_and_a_missing_folder_are_missing_files(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    (world.root / IMAGE_FILE).unlink()
    (world.root / IMAGE_FILE).symlink_to(tmp_path / "nothing.jpg")
    (world.root / LABEL_FILE).unlink()
    (world.root / LABEL_FILE).parent.rmdir()
    with pytest.raises(FileNotFoundError, match=rf"{IMAGE_FILE} is missing under .* \(2 of 3 files"):
        check_files(world, [0])


@pytest.mark.parametrize("kept", [0, 2, -2, 20 * 3 + 4])
def test_a_lidar_file_cut_short_is_found_by_its_size(tmp_path: Path, kept: int) -> None:
    world = world_of(tmp_path)
    path = world.root / LIDAR_FILE
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(WorldError, match=rf"{LIDAR_FILE} is cut short: \d+ bytes are no whole points; fetch it again"):
        check_files(world, [0])


def test_labels_that_do_not_fit_are_found_by_their_size(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    path = world.root / LIDAR_FILE
    path.write_bytes(path.read_bytes()[:-20])  # whole points, one less
    with pytest.raises(WorldError, match=rf"{LABEL_FILE} has 21 labels for 20 lidar points"):
        check_files(world, [0])


def test_without_lidarseg_labels_are_not_asked_for(tmp_path: Path) -> None:
    world = load_world(write_folder(tmp_path / "world", [CAR], lidarseg=False), VERSION)
    check_files(world, select_frames(world))
    (world.root / LIDAR_FILE).write_bytes(b"1234")
    with pytest.raises(WorldError, match="is cut short"):
        check_files(world, [0])


# --- tables read in batches ---


def test_a_table_read_in_batches_is_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / VERSION
    folder.mkdir()
    rows = [
        {"token": f"d{i}", "sample_token": "s", "ego_pose_token": 'a "}, {" b', "calibrated_sensor_token": "c",
         "is_key_frame": i % 2 == 0, "filename": f"samples/{i}.jpg", "other": [{"a": 1}, {"b": 2}] if i == 7 else []}
        for i in range(50)
    ]  # fmt: skip
    plain = [{**row, "ego_pose_token": "e", "other": []} for row in rows]
    for content, indent in ((plain, 0), (plain, None), (rows, 0), (rows, 4)):
        (folder / "sample_data.json").write_text(json.dumps(content, indent=indent))
        monkeypatch.setattr(nuscenes_tables, "BLOCK_BYTES", 1 << 24)
        whole = read_table(folder, SampleData)
        monkeypatch.setattr(nuscenes_tables, "BLOCK_BYTES", 700)
        batches = list(read_batches(folder, SampleData))
        assert read_table(folder, SampleData) == whole == [row for batch in batches for row in batch]
        assert len(whole) == 50 and whole[7].token == "d7"
        if content is plain:
            assert len(batches) > 10  # else nothing was tested


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"d40"', "40", r"Expected `str`, got `int` - at `\$\[40\]\.token`"),
        ('samples/40.jpg"', 'samples/40.jpg', "malformed"),
        ('"filename": "samples/40.jpg"', '"filename": NaN', r"invalid character .*, in the row with the token 'd40'"),
        ('"filename": "samples/40.jpg"', '"file": ""', r"missing required field `filename` .* with the token 'd40'"),
    ],
)  # fmt: skip
def test_a_broken_row_far_into_a_table_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    rows = [
        {"token": f"d{i}", "sample_token": "s", "ego_pose_token": "e", "calibrated_sensor_token": "c",
         "is_key_frame": True, "filename": f"samples/{i}.jpg"} for i in range(50)
    ]  # fmt: skip
    (tmp_path / "sample_data.json").write_text(json.dumps(rows, indent=0).replace(old, new))
    monkeypatch.setattr(nuscenes_tables, "BLOCK_BYTES", 700)
    with pytest.raises(WorldError, match=message):
        read_table(tmp_path, SampleData)


@pytest.mark.parametrize("content", ["", "[", '[{"token": "a", "name": "b"}', "[]]", "null", "[1]"])
def test_a_table_that_is_no_json_list_of_rows_is_named(tmp_path: Path, content: str) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    (root / VERSION / "scene.json").write_text(content)
    with pytest.raises(WorldError, match=r"scene\.json cannot be read"):
        load_world(root, VERSION)
