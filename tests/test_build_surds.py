"""The builder as a command: on a small folder, on the synthetic world, on two real key frames; resume and bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nuscenes_folder import IMAGE, VERSION, BoxSpec, edit_table, write_folder
from PIL import Image
from shared import need

from data_gen.build_surds import check_truth, main
from data_gen.draw import Mark, draw_marks, heading_arrow, scene_marks
from data_gen.images import check_images, image_root
from data_gen.records import RecordError, read_questions
from data_gen.scene_records import SceneImage, read_scenes
from data_gen.synthetic import WorldSpec, write_world
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS, grade_text

REAL = "nuscenes_real2"
CAR = BoxSpec("vehicle.car", 10.0, -3.0)
PERSON = BoxSpec("human.pedestrian.adult", 14.0, 3.0, colour=(36, 84, 208))


def build(root: Path, out: Path, *more: str) -> dict[str, Any]:
    main(["--nuscenes", str(root), "--out", str(out), *more])
    return json.loads((out / "manifest.json").read_text())


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("synthetic") / "world"
    write_world(root, WorldSpec(scenes=3, frames_per_scene=3))
    return root


def pictures(tmp_path: Path) -> Path:
    """Where pictures to look at go: the folder in TEST_PICTURES, or the test's own."""
    folder = Path(os.environ.get("TEST_PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def draw_scenes(scenes: list[SceneImage], root: Path, folder: Path) -> list[Path]:
    paths = []
    for scene in scenes:
        with Image.open(root / scene.file_name) as image:
            drawn = draw_marks(image, scene_marks(scene))
            assert np.any(np.asarray(drawn) != np.asarray(image.convert("RGB")))
        paths.append(folder / f"{scene.scene}-{scene.camera}.png")
        drawn.save(paths[-1])
    return paths


# --- what is written ---


def test_a_small_folder_gives_the_questions_it_must(tmp_path: Path) -> None:
    manifest = build(write_folder(tmp_path / "world", [CAR, PERSON]), tmp_path / "out")
    assert manifest["questions"] == {
        "yaw": 0, "pixel": 0, "depth": 0, "distance": 2, "left_right": 2, "front_behind": 2, "total": 6
    }  # fmt: skip
    answers = {question.id: question.answer for question in read_questions(tmp_path / "out" / "questions.jsonl")}
    assert answers == {
        "distance-0-0-1-0": "The red car",
        "distance-0-0-1-1": "The adult wearing a blue shirt",
        "left-right-0-0-1-0": "The red car",
        "left-right-0-0-1-1": "The adult wearing a blue shirt",
        "front-behind-0-0-1-0": "No",  # the farther one is in front
        "front-behind-0-0-1-1": "Yes",
    }


def test_a_single_object_gives_yaw_pixel_and_depth(tmp_path: Path) -> None:
    build(write_folder(tmp_path / "world", [CAR]), tmp_path / "out", "--describer", "colour")
    questions = read_questions(tmp_path / "out" / "questions.jsonl")
    assert [question.task for question in questions] == ["yaw", "yaw", "pixel", "depth"]
    assert [question.answer for question in questions[:3]] == ["North", "South", (500, 450)]
    low, high = (int(word) for word in questions[3].answer_text.split() if word.isdigit())
    assert low <= 10 <= high
    assert {(question.split, question.source, question.image) for question in questions} == {("train", "real", IMAGE)}


def test_the_manifest_says_what_was_done(tmp_path: Path) -> None:
    boxes = [CAR, PERSON, BoxSpec("animal", 12.0), BoxSpec("vehicle.truck", 40.0, 20.0, points=2)]
    root = write_folder(tmp_path / "world", boxes)
    manifest = build(root, tmp_path / "out", "--min-area-px", "1000", "--seed", "7")
    assert manifest["dropped"] == {"other_category": 1, "few_lidar_points": 1}
    assert manifest["stages"][0]["left"] == 4 and manifest["stages"][-1]["left"] == manifest["objects"]["kept"] == 2
    assert manifest["settings"]["thresholds"]["min_area_px"] == {"value": 1000.0, "paper": None}
    assert manifest["settings"]["thresholds"]["max_overlap"] == {"value": 0.8, "paper": 0.8}
    assert (manifest["source"], manifest["seed"], manifest["split"]) == ("real", 7, "all")
    assert manifest["lidar_rule"].startswith("lidarseg points")
    assert manifest["paper_yield"]["val"]["n"] == 925
    assert Path(manifest["image_root"]) == root.resolve()


def test_without_lidarseg_one_warning_and_a_word_in_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = build(write_folder(tmp_path / "world", [CAR], lidarseg=False), tmp_path / "out")
    assert manifest["lidar_rule"] == "no lidarseg on disk: lidar points inside the 3D box"
    assert capsys.readouterr().err.count("warning: no lidarseg") == 1


def test_depth_ranges_are_fair_for_training_and_official_otherwise(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    for name, arguments, expected in (
        ("train", ["--split", "train"], "fair"),
        ("all", [], "official"),
        ("told", ["--split", "train", "--depth-ranges", "official"], "official"),
    ):
        build(root, tmp_path / name, *arguments)
        questions = read_questions(tmp_path / name / "questions.jsonl")
        assert {question.depth_ranges for question in questions} == {expected}


def test_the_synthetic_world_gives_every_task_and_only_true_answers(synthetic: Path, tmp_path: Path) -> None:
    version = ("--version", "v1.0-synthetic", "--describer", "truth")
    manifest = build(synthetic, tmp_path / "out", *version)
    questions = read_questions(tmp_path / "out" / "questions.jsonl")
    assert manifest["source"] == "synthetic" and {question.source for question in questions} == {"synthetic"}
    assert all(manifest["questions"][task] for task in TASKS)
    for question in questions:
        grade = grade_text(f"<answer>{question.answer_text}</answer>", question.truth, CoordinateFrame("original"))
        assert grade.valid and not grade.reasons, question
    scenes = read_scenes(tmp_path / "out" / "scenes.jsonl")
    assert all(len({item.description for item in scene.objects}) == len(scene.objects) for scene in scenes)
    assert manifest["objects"]["in_images"] == manifest["objects"]["kept"] + sum(manifest["dropped"].values())
    draw_scenes(scenes[:3], synthetic, pictures(tmp_path))


def test_balance_takes_as_many_single_images_as_pairs(synthetic: Path, tmp_path: Path) -> None:
    options = ("--version", "v1.0-synthetic", "--describer", "truth")
    whole = build(synthetic, tmp_path / "whole", *options)["units"]
    balanced = build(synthetic, tmp_path / "balanced", *options, "--balance")["units"]
    assert set(balanced.values()) == {min(whole["yaw"], whole["distance"])}
    assert whole["yaw"] != whole["distance"]


def test_most_colours_by_pixels_agree_with_the_truth(tmp_path: Path) -> None:
    """The colour describer on larger pictures of the synthetic world: its paint against what it reads."""
    root = tmp_path / "world"
    write_world(root, WorldSpec(scenes=2, frames_per_scene=2, width_px=640, height_px=360))
    found = {}
    for describer in ("truth", "colour"):
        out = tmp_path / describer
        build(root, out, "--version", "v1.0-synthetic", "--describer", describer, "--min-area-px", "6000")
        found[describer] = {
            (scene.file_name, item.annotation_token): item.description
            for scene in read_scenes(out / "scenes.jsonl")
            for item in scene.objects
            if item.category.startswith("vehicle.")
        }
    both = found["truth"].keys() & found["colour"].keys()
    right = sum(found["truth"][key] == found["colour"][key] for key in both)
    assert len(both) > 5 and right / len(both) > 0.7


def test_the_same_command_writes_the_same_bytes(synthetic: Path, tmp_path: Path) -> None:
    options = ("--version", "v1.0-synthetic", "--describer", "truth")
    for name in ("one", "two"):
        build(synthetic, tmp_path / name, *options)
    for file in ("scenes.jsonl", "questions.jsonl", "manifest.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_limit_reads_the_first_key_frames_only(synthetic: Path, tmp_path: Path) -> None:
    manifest = build(synthetic, tmp_path / "out", "--version", "v1.0-synthetic", "--describer", "truth", "--limit", "2")
    assert (manifest["key_frames"], manifest["images"]["read"]) == (2, 12)


# --- real key frames ---


def test_the_real_key_frames_give_a_few_single_object_images(tmp_path: Path) -> None:
    root = need(REAL)
    manifest = build(root, tmp_path / "out")
    assert manifest["images"] == {"read": 12, "kept": 4, "with_one_object": 4, "with_several": 0}
    scenes = read_scenes(tmp_path / "out" / "scenes.jsonl")
    names = Counter(item.description for scene in scenes for item in scene.objects)
    assert names["adult wearing a red shirt"] == 1  # striped red and white, on the pavement
    assert {scene.split for scene in scenes} == {"train", "val"}
    for path in draw_scenes(scenes, root, pictures(tmp_path)):
        assert Image.open(path).size == (1600, 900)


def test_the_real_key_frames_give_a_pair_under_looser_filters(tmp_path: Path) -> None:
    root = need(REAL)
    loose = ("--ambiguity", "objects", "--min-area-px", "1000", "--max-overlap", "0.9", "--min-lidar-points", "3")
    manifest = build(root, tmp_path / "out", *loose)
    assert manifest["images"]["with_several"] == 1
    assert all(manifest["questions"][task] for task in TASKS)
    questions = read_questions(tmp_path / "out" / "questions.jsonl")
    pair = {question.id: question.answer for question in questions if question.task == "distance"}
    assert set(pair.values()) == {"The grey truck", "The black construction vehicle"}
    check_images(questions, image_root(tmp_path / "out" / "questions.jsonl"))
    scenes = [scene for scene in read_scenes(tmp_path / "out" / "scenes.jsonl") if len(scene.objects) > 1]
    draw_scenes([replace(scene, camera=f"{scene.camera}-pair") for scene in scenes], root, pictures(tmp_path))


# --- resume, overwrite, bad input ---


def test_resume_keeps_a_finished_build_and_redoes_an_interrupted_one(tmp_path: Path) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), tmp_path / "out"
    build(root, out)
    content, written = (out / "questions.jsonl").read_bytes(), (out / "questions.jsonl").stat().st_mtime_ns
    build(root, out, "--resume")
    assert (out / "questions.jsonl").stat().st_mtime_ns == written
    (out / "manifest.json").unlink()
    (out / "questions.jsonl").write_text("half a li")
    build(root, out, "--resume")
    assert (out / "questions.jsonl").read_bytes() == content


def test_a_filled_folder_is_refused_unless_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), tmp_path / "out"
    command = ("--nuscenes", str(root), "--out", str(out))
    build(root, out)
    assert "is not empty; go on from what is there with --resume, start anew with --overwrite" in fails(
        capsys, *command
    )
    assert "holds a build with other settings" in fails(capsys, *command, "--resume", "--seed", "1")
    (out / "old.txt").touch()
    build(root, out, "--overwrite")
    assert not (out / "old.txt").exists()
    assert "is read from the folder that is written to" in fails(
        capsys, "--nuscenes", str(root), "--out", str(root), "--overwrite"
    )
    assert (root / IMAGE).exists()


def test_bad_input_ends_with_2_and_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), str(tmp_path / "out")
    command = ("--nuscenes", str(root), "--out", out)
    assert "python data_gen/synthetic.py" in fails(capsys, "--out", out)
    assert f"versions there: {VERSION}" in fails(capsys, *command, "--version", "v1.0-mini")
    assert "no key frame of split 'val'; splits there: train" in fails(capsys, *command, "--split", "val")
    assert "use --describer colour" in fails(capsys, *command, "--describer", "truth")
    assert "at least 1 is needed" in fails(capsys, *command, "--limit", "0")
    (root / IMAGE).unlink()
    assert f"{IMAGE} is missing under {root} (1 of 3 files" in fails(capsys, *command)
    (root / VERSION / "instance.json").unlink()
    assert "instance.json is missing" in fails(capsys, *command)
    assert not Path(out).exists()  # nothing is written before the input was looked at


def test_an_image_of_another_size_than_the_tables_say_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    edit_table(root, "sample_data", lambda rows: [{**row, "width": row["width"] // 2} for row in rows])
    edit_table(root, "sample_annotation", lambda rows: [{**rows[0], "translation": [12.0, 4.0, 1.5]}])
    message = fails(capsys, "--nuscenes", str(root), "--out", str(tmp_path / "out"))
    assert "a.jpg is 1600x900 pixels, its record says 800x900" in message


def test_a_question_whose_true_answer_fails_is_a_bug(tmp_path: Path) -> None:
    build(write_folder(tmp_path / "world", [CAR]), tmp_path / "out")
    pixel = next(q for q in read_questions(tmp_path / "out" / "questions.jsonl") if q.task == "pixel")
    check_truth(pixel)
    with pytest.raises(RuntimeError, match=r"the true answer of pixel-0-0 fails \(strict\)"):
        check_truth(replace(pixel, answer=(0, 0)))


def test_help_runs_as_a_script() -> None:
    script = Path(__file__).parents[1] / "data_gen" / "build_surds.py"
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "--ambiguity" in done.stdout and "paper" in done.stdout


# --- images of a question file ---


def test_the_image_root_comes_from_the_manifest_or_the_command_line(tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    with pytest.raises(FileNotFoundError, match=r"no .*manifest\.json .* --images"):
        image_root(questions)
    assert image_root(questions, tmp_path / "elsewhere") == tmp_path / "elsewhere"
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RecordError, match="no image_root"):
        image_root(questions)
    (tmp_path / "manifest.json").write_text('{"image_root": "world"}')
    assert image_root(questions) == tmp_path / "world"
    (tmp_path / "manifest.json").write_text('{"image_root": "/data/nuscenes"}')
    assert image_root(questions) == Path("/data/nuscenes")


def test_missing_images_are_named_and_counted(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [CAR])
    build(root, tmp_path / "out")
    questions = read_questions(tmp_path / "out" / "questions.jsonl")
    check_images(questions, root)
    gone = [replace(questions[0], image="samples/x.jpg"), replace(questions[0], image="samples/y.jpg"), questions[1]]
    with pytest.raises(FileNotFoundError, match=r"samples/x\.jpg is missing under .* \(2 of 3 images\).*--images"):
        check_images(gone, root)


# --- drawing ---


def test_arrows_point_where_the_object_faces() -> None:
    matrix = [[1000.0, 0, 800], [0, 1000.0, 450], [0, 0, 1]]
    pixel, centre = (800.0, 450.0), (0.0, 0.0, 10.0)
    east = heading_arrow(pixel, centre, np.pi / 2, matrix, 1600)
    assert east is not None and east[1] == pytest.approx((1050, 450))
    seen_from_above = heading_arrow(pixel, centre, 0.0, None, 1600)
    assert seen_from_above is not None and seen_from_above[1] == pytest.approx((800, 386))  # North is up
    assert heading_arrow(pixel, centre, None, matrix, 1600) is None


def test_marks_are_drawn_on_a_copy(tmp_path: Path) -> None:
    build(write_folder(tmp_path / "world", [CAR, PERSON]), tmp_path / "out")
    (scene,) = read_scenes(tmp_path / "out" / "scenes.jsonl")
    marks = scene_marks(scene)
    assert [mark.name.split(", ")[0] for mark in marks] == ["red car", "adult wearing a blue shirt"]
    image = Image.new("RGB", (1600, 900))
    drawn = np.asarray(draw_marks(image, [*marks, Mark((0, 0, 50, 50), colour="#ffffff")]))
    assert not np.asarray(image).any()
    assert drawn[0, 25].tolist() == [255, 255, 255]
    assert drawn[round(marks[0].box_xyxy_px[1]), 500].any()
