"""Options of the builder that decide what is written: each reaches the questions, and each makes another build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nuscenes_folder import BoxSpec, write_folder

from data_gen.build_surds import main
from data_gen.records import read_questions

CAR = BoxSpec("vehicle.car", 10.0, -3.0)
AT_THE_EDGE = BoxSpec("vehicle.car", 10.0, 7.5)


def build(root: Path, out: Path, *more: str) -> dict[str, Any]:
    main(["--nuscenes", str(root), "--out", str(out), *more])
    return json.loads((out / "manifest.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A world and a finished build of it with the default options."""
    folder = tmp_path_factory.mktemp("finished")
    build(write_folder(folder / "world", [CAR]), folder / "out")
    return folder / "world", folder / "out"


@pytest.mark.parametrize(
    "words",
    [
        ("--split", "train"), ("--depth-ranges", "fair"), ("--seed", "1"), ("--balance",), ("--limit", "1"),
        ("--pixel", "box-centre"), ("--describer", "blip"), ("--min-area-px", "1"), ("--max-overlap", "0.7"),
        ("--min-lidar-points", "4"), ("--ambiguity", "objects"), ("--class-level", "group"),
        ("--tasks", "yaw"), ("--limit-units", "1"),
    ],
)  # fmt: skip
def test_a_build_is_not_gone_on_with_by_another_option(
    finished: tuple[Path, Path], capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        build(*finished, "--resume", *words)
    assert stopped.value.code == 2 and "holds a build with other settings" in capsys.readouterr().err


def test_a_build_is_not_gone_on_with_by_other_prompts(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, slots in {"yaw": 6, "xy2d": 1, "depth": 4, "dis": 5, "lr": 5, "fb": 3}.items():
        (tmp_path / f"{name}.txt").write_text("{} " * slots)
    with pytest.raises(SystemExit):
        build(*finished, "--resume", "--prompts", str(tmp_path))
    assert "holds a build with other settings" in capsys.readouterr().err


def test_options_that_only_decide_the_speed_go_on_with_a_build(finished: tuple[Path, Path]) -> None:
    written = (finished[1] / "manifest.json").read_text()
    build(*finished, "--resume", "--workers", "1")
    assert (finished[1] / "manifest.json").read_text() == written


def test_the_pixel_option_decides_the_answer(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [AT_THE_EDGE])
    answers = {}
    for pixel in ("centre", "box-centre"):
        build(root, tmp_path / pixel, "--pixel", pixel)
        questions = read_questions(tmp_path / pixel / "questions.jsonl")
        (answers[pixel],) = (question.answer for question in questions if question.task == "pixel")
    assert answers["centre"] == (1550, 450) and answers["box-centre"][0] < 1510


def test_an_image_counts_as_far_as_its_last_object_got(tmp_path: Path) -> None:
    """One object goes at the first check and one at the lidar count: the image is there until then."""
    boxes = [BoxSpec("animal", 12.0), BoxSpec("vehicle.car", 10.0, -3.0, points=2)]
    stages = build(write_folder(tmp_path / "world", boxes), tmp_path / "out")["stages"]
    images = {row["stage"]: row["images"] for row in stages}
    assert images["other_category"] == images["image_has_repeated_class"] == 1
    assert images["few_lidar_points"] == images["duplicate_description"] == 0


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_a_finished_build_that_lost_a_file_is_not_taken_for_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), tmp_path / "out"
    build(root, out)
    (out / "questions.jsonl").unlink()
    command = ("--nuscenes", str(root), "--out", str(out))
    assert "lacks questions.jsonl of its build" in told(capsys, *command, "--resume")
    (out / "manifest.json").write_text("[]")
    assert "manifest.json holds no object; start anew with --overwrite" in told(capsys, *command, "--resume")


def test_what_is_read_from_the_folder_is_never_emptied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), tmp_path / "out"
    build(root, out)
    (out / "my.yaml").write_text("seed: 3\n")
    command = ("--nuscenes", str(root), "--out", str(out), "--overwrite", "--config", str(out / "my.yaml"))
    assert "my.yaml is read from the folder that is written to" in told(capsys, *command)
    assert (out / "my.yaml").exists() and (out / "questions.jsonl").exists()


def test_another_content_of_the_tables_is_another_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), tmp_path / "out"
    build(root, out)
    table = root / "v1.0-trainval" / "sample_annotation.json"
    table.write_text(table.read_text().replace("[12.0,", "[13.0,"))  # the same size
    assert "other settings (tables" in told(capsys, "--nuscenes", str(root), "--out", str(out), "--resume")


def test_a_version_is_the_name_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    assert build(root, tmp_path / "out", "--version", "v1.0-trainval/")["version"] == "v1.0-trainval"
    bad = ("--nuscenes", str(root), "--out", str(tmp_path / "no"), "--version", str(root / "v1.0-trainval"))
    assert "the name of a folder in the nuScenes root is needed" in told(capsys, *bad)


def test_corrected_scenes_give_the_questions_that_can_be_asked(tmp_path: Path) -> None:
    """Scenes edited by hand, say to mend a name, may hold what no question can be made of."""
    person = BoxSpec("human.pedestrian.adult", 14.0, 3.0, colour=(36, 84, 208))
    build(write_folder(tmp_path / "world", [CAR, person]), tmp_path / "first")
    scenes = tmp_path / "first" / "scenes.jsonl"
    scenes.write_text(scenes.read_text().replace("adult wearing a blue shirt", "red car"))
    main(["--from-scenes", str(tmp_path / "first"), "--out", str(tmp_path / "again")])
    left_out = json.loads((tmp_path / "again" / "manifest.json").read_text())["left_out"]
    assert set(left_out) == {"distance-0-0-1", "left-right-0-0-1", "front-behind-0-0-1"}
