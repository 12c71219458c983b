"""The DriveMLLM builder as a command: a small folder, the synthetic world, two real key frames, lists."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nuscenes_folder import IMAGE, VERSION, BoxSpec, edit_table, write_folder
from PIL import Image
from shared import need

from data_gen.build_drivemllm import main
from data_gen.draw import Mark, draw_marks
from data_gen.drivemllm.records import KINDS, TASKS, DriveMLLMImage, read_images, read_questions
from data_gen.images import image_root
from data_gen.records import iterate_rows, write_rows
from data_gen.synthetic import WorldSpec, write_world

REAL = "nuscenes_real2"
VAL = "scene-0003"
CAR = BoxSpec("vehicle.car", 10.0, -3.0)
PERSON = BoxSpec("human.pedestrian.adult", 14.0, 3.0, colour=(36, 84, 208))
SYNTHETIC = ("--version", "v1.0-synthetic", "--describer", "truth", "--split", "all")


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
    write_world(root, WorldSpec(scenes=4, frames_per_scene=3))
    return root


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A val key frame with a red car, 10 m ahead and 3 m to the left, and a person, 14 m ahead and 3 m to the right."""
    return write_folder(tmp_path / "world", [CAR, PERSON], scene=VAL)


def draw(out: Path, images: list[DriveMLLMImage], folder: Path) -> None:
    """Pictures to look at, in the folder of TEST_PICTURES or the test's own: boxes, names, centres."""
    folder = Path(os.environ.get("TEST_PICTURES", folder))
    folder.mkdir(parents=True, exist_ok=True)
    for place, record in enumerate(images):
        with Image.open(image_root(out / "questions.jsonl") / record.file_name) as image:
            marks = [Mark(item.bbox, f"{item.name}, {item.xyz_m[2]:.1f} m") for item in record.objects]
            marks += [Mark((x - 3, y - 3, x + 3, y + 3)) for x, y in (item.pixel for item in record.objects)]
            drawn = draw_marks(image, marks)
            assert np.any(np.asarray(drawn) != np.asarray(image.convert("RGB")))
        drawn.save(folder / f"drivemllm-{record.scene}-{place}.png")


# --- what is written ---


def test_a_small_folder_gives_the_ten_questions_it_must(small: Path, tmp_path: Path) -> None:
    manifest = build(small, tmp_path / "out")
    questions = {question.kind: question for question in read_questions(tmp_path / "out" / "questions.jsonl")}
    assert list(questions) == ["left", "right", "front", "behind", "dx", "dAB", "xy", "box", "dz", "dA"]
    car, person = "red car", "adult wearing a blue shirt"
    assert (questions["left"].answer, questions["right"].answer) == (car, person)
    assert set(questions["left"].options) == {car, person}
    car_first = questions["front"].objects[0].name == car
    assert questions["front"].answer == ("Yes" if car_first else "No")  # 10 m against 14 m
    car_first = questions["behind"].objects[0].name == car
    assert questions["behind"].answer == ("No" if car_first else "Yes")
    assert questions["dx"].answer == 6.0 and questions["dAB"].answer == 7.2111  # sqrt(36 + 16)
    # The car's cube: x from -4/9 to -2/11 and y from -1/9 to 1/9 of 1000 px around (800, 450).
    truth = {
        "xy": {car: (487, 450), person: (1021, 450)},
        "box": {car: (355.56, 338.89, 618.18, 561.11), person: (933.33, 373.08, 1107.69, 526.92)},
        "dz": {car: 10.0, person: 14.0},
        "dA": {car: 10.4403, person: 14.3178},  # sqrt(100 + 9), sqrt(196 + 9)
    }
    for kind, answers in truth.items():
        assert questions[kind].answer == answers[questions[kind].objects[0].name]
    facts = {(q.source, q.split, q.camera, q.scene, q.image, q.image_size) for q in questions.values()}
    assert facts == {("real", "val", "CAM_FRONT", VAL, IMAGE, (1600, 900))}
    assert manifest["questions"] == dict.fromkeys(TASKS, 1) | {"left_right": 2, "front_behind": 2, "total": 10}
    assert manifest["questions_by_kind"] == dict.fromkeys(KINDS, 1)


def test_metadata_has_the_public_columns(small: Path, tmp_path: Path) -> None:
    build(small, tmp_path / "out")
    ((_, row),) = iterate_rows(tmp_path / "out" / "metadata.jsonl")
    assert row["descriptions"] == ["red car", "adult wearing a blue shirt"]
    assert row["location2D"] == [[487, 450], [1021, 450]] and row["location3D"] == [[-3.0, 0.0, 10.0], [3.0, 0.0, 14.0]]
    assert row["bboxes2D"][0] == [355.56, 338.89, 618.18, 561.11]
    assert row["annotation_tokens"] == ["a0", "a1"] and row["categories"][1] == "human.pedestrian.adult"


def test_the_manifest_says_what_was_done(tmp_path: Path) -> None:
    boxes = [
        CAR, PERSON, BoxSpec("animal", 12.0), BoxSpec("human.pedestrian.child", 60.0, 10.0),
        BoxSpec("vehicle.truck", 14.0, -4.0),  # behind the car
    ]  # fmt: skip
    root = write_folder(tmp_path / "world", boxes, scene=VAL)
    manifest = build(root, tmp_path / "out", "--min-pedestrian-width-px", "42", "--seed", "7")
    assert manifest["dropped"] == {"other_category": 1, "too_small": 1, "overlapped": 1}
    assert manifest["stages"][0]["left"] == 5 and manifest["stages"][-1]["left"] == 2
    assert manifest["settings"]["thresholds"]["min_pedestrian_width_px"] == {"value": 42.0, "paper": 40.0}
    assert manifest["settings"]["thresholds"]["max_overlap"] == {"value": 0.3, "paper": 0.3}
    assert manifest["settings"]["thresholds"]["ambiguity"] == {"value": "image", "paper": None}
    assert manifest["images"] == {"read": 1, "passing_filters": 1, "kept": 1, "with_one_object": 0, "with_several": 1}
    assert (manifest["source"], manifest["seed"], manifest["camera"]) == ("real", 7, "CAM_FRONT")
    assert manifest["paper_yield"]["images_passing_filters"] == 2734
    assert manifest["paper_yield"]["questions_of_each_kind_about_two_objects"] == 191
    assert Path(manifest["image_root"]) == root.resolve()
    loose = build(root, tmp_path / "loose", "--max-overlap", "1")
    assert loose["dropped"] == {"other_category": 1, "too_small": 1, "colour_unclear": 1}  # hidden, as the filter knew


def test_lidar_is_not_needed(small: Path, tmp_path: Path) -> None:
    (small / "samples/LIDAR_TOP/a.bin").unlink()
    assert build(small, tmp_path / "out")["images"]["kept"] == 1


def test_objects_without_a_description_are_counted(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "world", [CAR, BoxSpec("vehicle.bus.rigid", 20.0, 6.0, (4.0, 4.0, 4.0))], scene=VAL)
    (root / IMAGE).write_bytes(b"no image")
    manifest = build(root, tmp_path / "out")
    assert manifest["dropped"] == {"unreadable_image": 2} and manifest["stages"][-1]["left"] == 0
    assert manifest["images"]["kept"] == 0 and manifest["questions"]["total"] == 0


def test_the_synthetic_world_gives_every_task(synthetic: Path, tmp_path: Path) -> None:
    manifest = build(synthetic, tmp_path / "out", *SYNTHETIC)
    questions = read_questions(tmp_path / "out" / "questions.jsonl")
    images = read_images(tmp_path / "out" / "metadata.jsonl")
    assert manifest["source"] == "synthetic" and {question.source for question in questions} == {"synthetic"}
    assert {question.camera for question in questions} == {"CAM_FRONT"}
    assert all(manifest["questions"][task] for task in TASKS)
    kinds = Counter(question.kind for question in questions)
    assert {kinds[kind] for kind in ("xy", "box", "dA", "dz")} == {len(images)} == {manifest["images"]["kept"]}
    pairs = sum(len(image.objects) > 1 for image in images)
    assert {kinds[kind] for kind in ("left", "right", "front", "behind", "dAB", "dx")} == {pairs}
    for image in images:
        assert len({item.category for item in image.objects}) == len(image.objects)
    assert manifest["images"]["read"] == 12
    build(synthetic, tmp_path / "val", *SYNTHETIC[:4])  # val is what is read unless told otherwise
    assert {question.split for question in read_questions(tmp_path / "val" / "questions.jsonl")} == {"val"}
    draw(tmp_path / "out", images[:3], tmp_path)


def test_the_true_answer_scores_full_marks_by_the_published_rules(synthetic: Path, tmp_path: Path) -> None:
    """What the published evaluation reads at all, and what it compares with."""
    build(synthetic, tmp_path / "out", *SYNTHETIC)
    for question in read_questions(tmp_path / "out" / "questions.jsonl"):
        said, first, last = question.answer_text, question.objects[0], question.objects[-1]
        right, bottom = question.width - 1, question.height - 1
        match question.kind:
            case "xy":
                assert ast.literal_eval(said) == [first.pixel[0], first.pixel[1]]
                assert 0 <= first.pixel[0] <= right and 0 <= first.pixel[1] <= bottom
            case "box":
                x1, y1, x2, y2 = ast.literal_eval(said)
                assert 0 <= x1 < x2 <= right and 0 <= y1 < y2 <= bottom and (x1, y1, x2, y2) == first.bbox
            case "left" | "right":
                sign = 1 if question.kind == "left" else -1
                assert (
                    said == min((first, last), key=lambda item: sign * item.pixel[0]).name and said in question.options
                )
            case "front" | "behind":
                nearer = first.xyz_m[2] < last.xyz_m[2]
                assert said == ("Yes" if nearer == (question.kind == "front") else "No")
            case "dx":
                assert float(said) == pytest.approx(abs(first.xyz_m[0] - last.xyz_m[0]), abs=1e-4)
            case "dz":
                assert float(said) == first.xyz_m[2]
            case _:
                other = last.xyz_m if question.kind == "dAB" else (0.0, 0.0, 0.0)
                assert float(said) == pytest.approx(math.dist(first.xyz_m, other), abs=1e-4)


def test_the_same_command_writes_the_same_bytes(synthetic: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        build(synthetic, tmp_path / name, *SYNTHETIC)
    for file in ("metadata.jsonl", "questions.jsonl", "manifest.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_the_real_key_frames_give_one_image_with_two_objects(tmp_path: Path) -> None:
    manifest = build(need(REAL), tmp_path / "out", "--split", "all")
    assert manifest["images"] == {"read": 2, "passing_filters": 1, "kept": 1, "with_one_object": 0, "with_several": 1}
    (image,) = read_images(tmp_path / "out" / "metadata.jsonl")
    car = next(item for item in image.objects if item.name == "grey car")
    assert image.split == "val" and car.category == "vehicle.car"
    assert car.bbox[3] == 899 and 5 < car.xyz_m[2] < 6  # the car ahead reaches the lower edge
    answers = {question.kind: question for question in read_questions(tmp_path / "out" / "questions.jsonl")}
    assert answers["left"].answer != "grey car" and answers["right"].answer == "grey car"
    draw(tmp_path / "out", [image], tmp_path)


# --- hand-picked images ---


def test_a_keep_list_leaves_the_named_images_and_tells_of_the_others(
    synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = build(synthetic, tmp_path / "all", *SYNTHETIC)
    images = read_images(tmp_path / "all" / "metadata.jsonl")
    chosen = [Path(image.file_name) for image in images[:2]]
    (tmp_path / "list").write_text(f"image/{chosen[0].stem}.webp\n{chosen[1]}\nnobody.jpg\n")
    manifest = build(synthetic, tmp_path / "out", *SYNTHETIC, "--keep-list", str(tmp_path / "list"))
    assert [Path(image.file_name) for image in read_images(tmp_path / "out" / "metadata.jsonl")] == chosen
    assert manifest["keep_list"] == {
        "names": 3, "found_by_name": 2, "found_by_object_centres": 0, "kept": 2,
        "not_kept": {"nobody.jpg": "no front image of the key frames that were read"},
    }  # fmt: skip
    assert manifest["dropped"]["image_not_in_keep_list"] == everything["stages"][-1]["left"] - sum(
        len(image.objects) for image in images[:2]
    )
    assert manifest["stages"][-1]["left"] == sum(len(image.objects) for image in images[:2])
    assert "warning: 1 images of the keep list are not kept, as nobody.jpg" in capsys.readouterr().err


def test_the_public_metadata_as_a_keep_list_finds_renamed_images(synthetic: Path, tmp_path: Path) -> None:
    build(synthetic, tmp_path / "all", *SYNTHETIC)
    rows = [row for _, row in iterate_rows(tmp_path / "all" / "metadata.jsonl")][1:4]
    public = [
        {"file_name": f"image/nuscenes_CAM_FRONT_{place}.webp", "location3D": np.round(row["location3D"], 3).tolist()}
        for place, row in enumerate(rows)
    ]
    write_rows(tmp_path / "public.jsonl", public)
    manifest = build(synthetic, tmp_path / "out", *SYNTHETIC, "--keep-list", str(tmp_path / "public.jsonl"))
    kept = [image.file_name for image in read_images(tmp_path / "out" / "metadata.jsonl")]
    assert kept == [row["file_name"] for row in rows]
    assert (manifest["keep_list"]["found_by_object_centres"], manifest["keep_list"]["kept"]) == (3, 3)


def test_a_listed_image_that_the_filters_drop_is_told_of_with_the_reasons(small: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(IMAGE)
    narrow = ("--keep-list", str(tmp_path / "list"), "--min-vehicle-area-px", "1e6", "--min-pedestrian-width-px", "900")
    manifest = build(small, tmp_path / "out", *narrow)
    assert manifest["keep_list"]["not_kept"] == {IMAGE: "no object left: too_small 2"}


# --- resume, overwrite, bad input ---


def test_resume_keeps_a_finished_build_and_redoes_an_interrupted_one(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(small, out)
    content, written = (out / "questions.jsonl").read_bytes(), (out / "questions.jsonl").stat().st_mtime_ns
    build(small, out, "--resume")
    assert (out / "questions.jsonl").stat().st_mtime_ns == written
    (out / "manifest.json").unlink()
    (out / "questions.jsonl").write_text("half a li")
    build(small, out, "--resume")
    assert (out / "questions.jsonl").read_bytes() == content


def test_a_filled_folder_is_refused_unless_told(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ("--nuscenes", str(small), "--out", str(out))
    build(small, out)
    assert "go on from what is there with --resume" in fails(capsys, *command)
    assert "holds a build with other settings" in fails(capsys, *command, "--resume", "--seed", "1")
    (out / "old.txt").touch()
    build(small, out, "--overwrite", "--seed", "1")
    assert not (out / "old.txt").exists()
    inside = ("--nuscenes", str(small), "--out", str(small), "--overwrite")
    assert "is read from the folder that is written to" in fails(capsys, *inside)
    assert (small / IMAGE).exists()


def test_a_changed_keep_list_is_another_build(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list").write_text(IMAGE)
    command = ("--nuscenes", str(small), "--out", str(tmp_path / "out"), "--keep-list", str(tmp_path / "list"))
    main(list(command))
    (tmp_path / "list").write_text(f"{IMAGE}\nother.jpg")
    assert "holds a build with other settings" in fails(capsys, *command, "--resume")


def test_bad_input_ends_with_2_and_says_what_to_do(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--nuscenes", str(small), "--out", str(tmp_path / "out"))
    assert "python data_gen/synthetic.py" in fails(capsys, "--out", str(tmp_path / "out"))
    assert f"versions there: {VERSION}" in fails(capsys, *command, "--version", "v1.0-mini")
    assert "no key frame of split 'train'; splits there: val" in fails(capsys, *command, "--split", "train")
    assert "use --describer colour" in fails(capsys, *command, "--describer", "truth")
    assert "at least 1 is needed" in fails(capsys, *command, "--limit", "0")
    assert "an overlap of 0 to 1 are needed" in fails(capsys, *command, "--max-overlap", "30")
    assert "no keep list at" in fails(capsys, *command, "--keep-list", str(tmp_path / "none"))
    (tmp_path / "list").write_text("nuscenes_CAM_FRONT_1.webp")
    message = fails(capsys, *command, "--keep-list", str(tmp_path / "list"))
    assert "none of the 1 images of" in message and "(nuscenes_CAM_FRONT_1.webp, ...)" in message
    (small / IMAGE).unlink()
    assert f"{IMAGE} is missing under {small} (1 images that are needed)" in fails(capsys, *command)
    edit_table(
        small, "sensor", lambda rows: [{**row, "channel": row["channel"].replace("FRONT", "BACK")} for row in rows]
    )
    assert "no CAM_FRONT in sample_data.json" in fails(capsys, *command)
    assert not (tmp_path / "out").exists()  # nothing is written before the input was looked at


def test_a_configuration_file_gives_the_options(small: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"nuscenes: {small}\nout: {tmp_path / 'out'}\nseed: 3\n")
    main(["--config", str(tmp_path / "run.yaml"), "--seed", "4"])
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["seed"] == 4


def test_help_runs_as_a_script() -> None:
    script = Path(__file__).parents[1] / "data_gen" / "build_drivemllm.py"
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "--from-metadata" in done.stdout and "paper: 0.3" in done.stdout
