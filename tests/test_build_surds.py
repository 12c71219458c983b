"""The builder as a command: on a small folder, on the synthetic world, on two real key frames; resume and bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import serve, text_of
from nuscenes_folder import IMAGE, VERSION, BoxSpec, edit_table, write_folder
from PIL import Image
from shared import need

from data_gen import build_surds, judge_world
from data_gen.build_surds import main
from data_gen.describe import DescriberOptions
from data_gen.descriptions import AskedImage, Describer, Description
from data_gen.draw import draw_marks, scene_marks
from data_gen.images import check_images, image_root
from data_gen.question_set import make_questions, truth_problem
from data_gen.questions import Unit, pixel_unit
from data_gen.records import read_questions
from data_gen.scene_records import SceneImage, read_drops, read_scenes
from data_gen.synthetic import WorldSpec, write_world
from rewards.boxes import CoordinateFrame
from rewards.grading import PAIR_TASKS, TASKS, grade_text

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
    assert manifest["lidar_rule"] == "no lidarseg (its table or its files): lidar points inside the 3D box"
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


def test_every_object_is_kept_or_dropped_with_a_reason(synthetic: Path, tmp_path: Path) -> None:
    manifest = build(synthetic, tmp_path / "out", "--version", "v1.0-synthetic", "--describer", "truth")
    scenes, drops = read_scenes(tmp_path / "out" / "scenes.jsonl"), read_drops(tmp_path / "out" / "dropped.jsonl")
    reasons = Counter(item.reason for image in drops for item in image.objects)
    assert dict(reasons) == manifest["dropped"]
    kept = [(scene.file_name, item.annotation_token) for scene in scenes for item in scene.objects]
    gone = [(image.file_name, item.annotation_token) for image in drops for item in image.objects]
    assert len(set(kept + gone)) == len(kept) + len(gone) == manifest["objects"]["in_images"]
    left = [row["left"] for row in manifest["stages"]]
    images = [row["images"] for row in manifest["stages"]]
    assert left == sorted(left, reverse=True) and left[-1] == manifest["objects"]["kept"] == len(kept)
    assert images == sorted(images, reverse=True) and images[-1] == manifest["images"]["kept"] == len(scenes)


def test_balance_takes_as_many_single_images_as_pairs(synthetic: Path, tmp_path: Path) -> None:
    options = ("--version", "v1.0-synthetic", "--describer", "truth")
    whole = build(synthetic, tmp_path / "whole", *options)["units"]
    balanced = build(synthetic, tmp_path / "balanced", *options, "--balance")["units"]
    assert set(balanced.values()) == {min(whole["yaw"], whole["distance"])}
    assert whole["yaw"] != whole["distance"]


def test_a_third_split_is_built_where_there_is_one(
    synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_world(tmp_path / "world", WorldSpec(2, 2, test_scenes=1, depths_m=(7.0, 28.0)))
    options = ("--version", "v1.0-synthetic", "--describer", "truth", "--split", "test")
    build(tmp_path / "world", tmp_path / "out", *options)
    scenes = read_scenes(tmp_path / "out" / "scenes.jsonl")
    assert {(scene.scene, scene.split) for scene in scenes} == {("synthetic-0002", "test")}
    told = fails(capsys, "--nuscenes", str(synthetic), "--out", str(tmp_path / "no"), *options)
    assert "splits there: train" in told
    public = fails(capsys, "--from-metadata", str(tmp_path), "--out", str(tmp_path / "no"), "--split", "test")
    assert "leave out --split test" in public


def test_some_tasks_are_those_of_the_whole_build(
    synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--version", "v1.0-synthetic", "--describer", "truth", "--depth-ranges", "fair")
    build(synthetic, tmp_path / "whole", *options)
    build(synthetic, tmp_path / "some", *options, "--tasks", "front_behind, depth")
    whole, some = (read_questions(tmp_path / name / "questions.jsonl") for name in ("whole", "some"))
    assert some == [question for question in whole if question.task in ("depth", "front_behind")]
    main(["--from-scenes", str(tmp_path / "whole"), "--depth-ranges", "fair", "--tasks", "depth",
          "--out", str(tmp_path / "depth")])  # fmt: skip
    assert read_questions(tmp_path / "depth" / "questions.jsonl") == [q for q in whole if q.task == "depth"]
    assert "unknown task 'dept'" in fails(capsys, "--nuscenes", str(synthetic), "--tasks", "dept")


def test_limited_units_are_whole_and_spread_over_the_images(
    synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--version", "v1.0-synthetic", "--describer", "truth")
    whole = build(synthetic, tmp_path / "whole", *options)
    limited = build(synthetic, tmp_path / "five", *options, "--limit-units", "5")
    assert set(limited["units"].values()) == {5} and "fewer than" not in capsys.readouterr().err
    questions = read_questions(tmp_path / "five" / "questions.jsonl")
    of_whole = read_questions(tmp_path / "whole" / "questions.jsonl")
    assert all(question in of_whole for question in questions)
    pairs = {task: {q.image for q in questions if q.task == task} for task in PAIR_TASKS}
    assert all(images == pairs["distance"] and len(images) == 5 for images in pairs.values())
    main(["--from-scenes", str(tmp_path / "whole"), "--limit-units", "5", "--out", str(tmp_path / "again")])
    assert read_questions(tmp_path / "again" / "questions.jsonl") == questions
    most = build(synthetic, tmp_path / "many", *options, "--limit-units", "9999")
    assert most["units"] == whole["units"]
    assert f"{whole['units']['yaw']} units of yaw, fewer than --limit-units 9999" in capsys.readouterr().err


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
    assert manifest["images"] == {"read": 12, "kept": 3, "with_one_object": 3, "with_several": 0}
    assert manifest["dropped"]["colour_unclear"] == 1
    scenes = read_scenes(tmp_path / "out" / "scenes.jsonl")
    names = Counter(item.description for scene in scenes for item in scene.objects)
    assert names["adult wearing a red shirt"] == 1  # striped red and white, on the pavement
    assert {scene.split for scene in scenes} == {"train", "val"}
    for path in draw_scenes(scenes, root, pictures(tmp_path)):
        assert Image.open(path).size == (1600, 900)


def test_the_real_key_frames_give_pairs_under_looser_filters(tmp_path: Path) -> None:
    """Of vehicles in the dark, which a stub of a vision server names as a person would."""
    root = need(REAL)
    loose = ("--ambiguity", "objects", "--min-area-px", "1000", "--max-overlap", "0.9", "--min-lidar-points", "3")
    with serve(lambda request: "orange" if "construction" in text_of(request) else "grey") as server:
        described = ("--describer", "endpoint", "--endpoint", server.url, "--describer-model", "stub")
        manifest = build(root, tmp_path / "out", *loose, *described)
    assert manifest["images"]["with_several"] == 2
    assert all(manifest["questions"][task] for task in ("distance", "left_right", "front_behind"))
    assert manifest["dropped"]["vague_description"]  # people: a colour without a garment
    questions = read_questions(tmp_path / "out" / "questions.jsonl")
    answers = {question.answer for question in questions if question.task == "distance"}
    assert {"The grey truck", "The orange construction vehicle"} <= answers
    check_images(questions, image_root(tmp_path / "out" / "questions.jsonl"))
    scenes = [scene for scene in read_scenes(tmp_path / "out" / "scenes.jsonl") if len(scene.objects) > 1]
    draw_scenes([replace(scene, camera=f"{scene.camera}-pair") for scene in scenes], root, pictures(tmp_path))


# --- resume, overwrite, bad input ---


FILES = ("scenes.jsonl", "dropped.jsonl", "descriptions.jsonl", "questions.jsonl", "manifest.json")


def contents(out: Path) -> dict[str, bytes]:
    assert {path.name for path in out.iterdir()} == {*FILES, ".drive_spatial_rl"}
    return {name: (out / name).read_bytes() for name in FILES}


def test_any_number_of_workers_writes_the_same_bytes(
    synthetic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_world, "FRAMES_PER_PART", 2)
    options = ("--version", "v1.0-synthetic", "--describer", "colour")
    for workers in ("1", "3"):
        build(synthetic, tmp_path / workers, *options, "--workers", workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


def test_resume_keeps_a_finished_build(tmp_path: Path) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), tmp_path / "out"
    build(root, out)
    written = (out / "questions.jsonl").stat().st_mtime_ns
    build(root, out, "--resume")
    assert (out / "questions.jsonl").stat().st_mtime_ns == written


@dataclass
class Watch:
    """Counts the parts judged and the images described, and stops a build at one of them, once."""

    stop_at: tuple[str, int] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def see(self, what: str) -> None:
        if (what, self.counts[what]) == self.stop_at:
            self.stop_at = None
            raise KeyboardInterrupt
        self.counts[what] += 1


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watched = Watch()
    judge_part, make_describer, own_units = judge_world.judge_part, build_surds.make_describer, build_surds.own_units

    def part(job: judge_world.Judging, number: int) -> int:
        watched.see("parts")
        return judge_part(job, number)

    def describer(options: DescriberOptions) -> Describer:
        describe = make_describer(options)

        def images(asked: Iterable[AskedImage]) -> Iterator[list[Description]]:
            for said in describe(asked):
                watched.see("images")
                yield said

        return images

    def units(*arguments: Any) -> list[Unit]:
        watched.see("units")
        return own_units(*arguments)

    monkeypatch.setattr(judge_world, "FRAMES_PER_PART", 2)
    monkeypatch.setattr(judge_world, "judge_part", part)
    monkeypatch.setattr(build_surds, "make_describer", describer)
    monkeypatch.setattr(build_surds, "own_units", units)
    return watched


@pytest.mark.parametrize("stop_at", [("parts", 0), ("parts", 3), ("images", 0), ("images", 4), ("units", 0)])
def test_an_interrupted_build_goes_on_where_it_was(
    synthetic: Path, tmp_path: Path, watch: Watch, stop_at: tuple[str, int]
) -> None:
    """What was done is not done again, and the bytes are those of a build that nothing stopped."""
    options = ("--version", "v1.0-synthetic", "--describer", "truth", "--workers", "1")
    build(synthetic, tmp_path / "whole", *options)
    once = dict(watch.counts)
    watch.counts.clear()
    watch.stop_at = stop_at
    with pytest.raises(SystemExit, match="130"):
        build(synthetic, tmp_path / "cut", *options)
    assert not (tmp_path / "cut" / "manifest.json").exists()
    build(synthetic, tmp_path / "cut", *options, "--resume")
    assert dict(watch.counts) == once and once["parts"] == 5 and once["images"] > 5
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_half_written_line_of_the_log_is_asked_again(synthetic: Path, tmp_path: Path, watch: Watch) -> None:
    options = ("--version", "v1.0-synthetic", "--describer", "truth", "--workers", "1")
    build(synthetic, tmp_path / "whole", *options)
    watch.stop_at = ("images", watch.counts["images"] + 3)
    with pytest.raises(SystemExit, match="130"):
        build(synthetic, tmp_path / "cut", *options)
    log = tmp_path / "cut" / "descriptions.jsonl"
    log.write_bytes(log.read_bytes()[:-20])
    build(synthetic, tmp_path / "cut", *options, "--resume")
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_an_unfinished_build_is_not_gone_on_with_by_other_settings(
    synthetic: Path, tmp_path: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch.stop_at = ("parts", 1)
    command = ("--nuscenes", str(synthetic), "--out", str(tmp_path / "out"), "--version", "v1.0-synthetic")
    with pytest.raises(SystemExit, match="130"):
        main([*command, "--workers", "1"])
    assert "interrupted; go on with the same command and --resume" in capsys.readouterr().err
    assert "other settings (thresholds {'min_area_px': 2000.0" in fails(
        capsys, *command, "--resume", "--min-area-px", "1"
    )
    build(*map(Path, command[1:4:2]), *command[4:], "--resume", "--depth-ranges", "fair")  # questions were not made yet


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


def test_an_image_that_cannot_be_read_is_a_counted_drop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folder(tmp_path / "world", [CAR, PERSON])
    (root / IMAGE).write_bytes((root / IMAGE).read_bytes()[:3000])
    manifest = build(root, tmp_path / "out")
    assert manifest["dropped"] == {"unreadable_image": 2} and manifest["unreadable_images"] == [IMAGE]
    assert f"1 images could not be read and are dropped, as {IMAGE}" in capsys.readouterr().err


def test_a_lidar_file_that_is_cut_short_is_found_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = write_folder(tmp_path / "world", [CAR]), tmp_path / "out"
    path = root / "samples/LIDAR_TOP/a.bin"
    path.write_bytes(path.read_bytes()[:-2])
    assert "a.bin is cut short" in fails(capsys, "--nuscenes", str(root), "--out", str(out))
    assert not out.exists()


def test_the_comparison_with_the_public_metadata_is_in_the_manifest(tmp_path: Path) -> None:
    root, out = write_folder(tmp_path / "world", [CAR, PERSON]), tmp_path / "out"
    build(root, out)
    public = tmp_path / "public"
    public.mkdir()
    row = json.loads((out / "scenes.jsonl").read_text())
    fields = ("file_name", "descs", "bboxes2D", "xy2Ds", "xyz3Ds", "depths", "distances", "yaw_descs")
    (public / "metadata.jsonl").write_text(json.dumps({name: row[name] for name in fields} | {"file_name": "0.webp"}))
    manifest = build(root, out, "--resume", "--compare-metadata", str(public))  # of the finished build
    assert manifest["comparison"]["images_matched_by"] == "positions of objects"
    assert manifest["comparison"]["objects"]["shared"] == 2
    assert manifest == build(root, tmp_path / "anew", "--compare-metadata", str(public))


def test_other_questions_are_made_of_the_scenes_of_a_finished_build(
    synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They equal those of a build anew, without a describer and without the nuScenes folder."""
    world = ("--version", "v1.0-synthetic", "--describer", "truth")
    build(synthetic, tmp_path / "first", *world)
    anew = build(synthetic, tmp_path / "anew", *world, "--depth-ranges", "fair", "--balance", "--seed", "7")
    asked = ("--depth-ranges", "fair", "--balance", "--seed", "7", "--out", str(tmp_path / "again"))
    main(["--from-scenes", str(tmp_path / "first"), *asked])
    for name in FILES[:-1]:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "anew" / name).read_bytes()
    manifest = json.loads((tmp_path / "again" / "manifest.json").read_text())
    for name in ("units", "questions", "stages", "image_root", "source", "depth_ranges", "seed"):
        assert manifest[name] == anew[name]
    check_images(read_questions(tmp_path / "again" / "questions.jsonl"), synthetic)
    out = ("--out", str(tmp_path / "no"))
    assert "holds no finished build" in fails(capsys, "--from-scenes", str(tmp_path), *out)
    assert "leave out --split" in fails(capsys, "--from-scenes", str(tmp_path / "first"), "--split", "val", *out)


def test_prompts_from_templates_are_in_the_questions(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    folder.mkdir()
    slots = {"yaw": 6, "xy2d": 1, "depth": 4, "dis": 5, "lr": 5, "fb": 3}
    for name, count in slots.items():
        (folder / f"{name}.txt").write_text(f"{name}: " + "{} " * count)
    root = write_folder(tmp_path / "world", [CAR])
    manifest = build(root, tmp_path / "out", "--prompts", str(folder))
    questions = read_questions(tmp_path / "out" / "questions.jsonl")
    assert [question.prompt.split(":")[0] for question in questions] == ["yaw", "yaw", "xy2d", "depth"]
    assert questions[2].prompt == "xy2d: the red car "
    assert manifest["prompts"]["folder"] == str(folder) and len(manifest["prompts"]["sha256"]) == 64


def test_a_question_whose_true_answer_fails_is_a_bug(tmp_path: Path) -> None:
    build(write_folder(tmp_path / "world", [CAR]), tmp_path / "out")
    pixel = next(q for q in read_questions(tmp_path / "out" / "questions.jsonl") if q.task == "pixel")
    assert truth_problem(pixel) is None
    assert truth_problem(replace(pixel, answer=(0, 0))) == "(strict): wrong"
    (scene,) = read_scenes(tmp_path / "out" / "scenes.jsonl")
    beside_its_box = replace(scene, objects=(replace(scene.objects[0], pixel_xy=(0, 0)),))
    with pytest.raises(RuntimeError, match=r"the true answer of pixel-0-0 fails \(strict\)"):
        make_questions([pixel_unit(beside_its_box, 0)], "real", "official")


def test_help_runs_as_a_script() -> None:
    script = Path(__file__).parents[1] / "data_gen" / "build_surds.py"
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "--ambiguity" in done.stdout and "paper" in done.stdout
