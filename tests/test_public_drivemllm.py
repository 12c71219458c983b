"""The public DriveMLLM data set from a local folder, by the builder as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nuscenes_folder import IMAGE, BoxSpec, write_folder
from PIL import Image

from data_gen.build_drivemllm import main
from data_gen.drivemllm.records import read_questions
from data_gen.images import image_root
from data_gen.records import iterate_rows, write_rows


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder as the public set has it: numbered .webp images under image/, metadata.jsonl, no size, no category."""
    world = write_folder(tmp_path / "world", [BoxSpec("vehicle.car", 10.0, -3.0)])
    folder = tmp_path / "public"
    (folder / "image").mkdir(parents=True)
    row = {
        "descriptions": ["red car", "adult wearing a blue shirt"], "location2D": [[487.0, 450.0], [1021.0, 450.0]],
        "location3D": [[-3.0, 0.0, 10.0], [3.0, 0.0, 14.0]],
        "bboxes2D": [[355.56, 338.89, 618.18, 561.11], [933.33, 373.08, 1107.69, 526.92]],
    }  # fmt: skip
    single = {name: values[:1] for name, values in row.items()}
    for name in ("2", "10"):
        Image.open(world / IMAGE).save(folder / "image" / f"nuscenes_CAM_FRONT_{name}.webp")
    write_rows(
        folder / "metadata.jsonl",
        [
            {"file_name": "image/nuscenes_CAM_FRONT_2.webp", **row},
            {"file_name": "image/nuscenes_CAM_FRONT_10.webp", **single},
        ],
    )
    return folder


@pytest.mark.parametrize("named", [".", "metadata.jsonl"])
def test_the_public_metadata_gives_the_questions(public: Path, tmp_path: Path, named: str) -> None:
    main(["--from-metadata", str(public / named), "--out", str(tmp_path / "out")])
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    questions = {question.id: question for question in read_questions(tmp_path / "out" / "questions.jsonl")}
    # Images count in the order of their names: 10 before 2.
    assert questions["dz-0"].image.endswith("_10.webp") and questions["dz-0"].answer == 10.0
    assert questions["left-1"].answer == "red car" and questions["left-1"].image.endswith("_2.webp")
    assert {question.source for question in questions.values()} == {"metadata"}
    assert {question.image_size for question in questions.values()} == {(1600, 900)}
    assert manifest["source"] == "metadata" and manifest["questions"]["total"] == 14
    assert image_root(tmp_path / "out" / "questions.jsonl") == public.resolve()


def test_the_public_folder_of_the_split_is_found(public: Path, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    public.rename(tmp_path / "hub" / "validation")
    main(["--from-metadata", str(tmp_path / "hub"), "--out", str(tmp_path / "out")])
    assert image_root(tmp_path / "out" / "questions.jsonl") == (tmp_path / "hub" / "validation").resolve()


def test_bad_public_metadata_ends_with_2(public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("--from-metadata", str(public), "--out", str(tmp_path / "out"))
    metadata = public / "metadata.jsonl"
    rows = [row for _, row in iterate_rows(metadata)]
    write_rows(metadata, [rows[0], {**rows[1], "bboxes2D": [[1700, 100, 1800, 200]]}])
    assert "_10.webp: the box of 'red car' lies outside the 1600x900 image" in fails(capsys, *command)
    write_rows(metadata, [rows[0], {**rows[1], "width": 3200, "height": 1800}])
    assert "is 1600x900 pixels, its record says 3200x1800" in fails(capsys, *command)
    write_rows(metadata, [rows[0], rows[0]])
    assert "has two lines for image/nuscenes_CAM_FRONT_2.webp" in fails(capsys, *command)
    metadata.unlink()
    assert "must hold one metadata.jsonl" in fails(capsys, *command)
    assert "leave out --nuscenes" in fails(capsys, *command, "--nuscenes", "x")
    assert not (tmp_path / "out").exists()


def test_without_images_the_size_is_that_of_nuscenes_and_a_warning_says_so(
    public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for _, row in iterate_rows(public / "metadata.jsonl")]
    (public / rows[1]["file_name"]).unlink()
    main(["--from-metadata", str(public), "--out", str(tmp_path / "out")])
    assert "1 images are not beside" in capsys.readouterr().err
    sizes = {question.image_size for question in read_questions(tmp_path / "out" / "questions.jsonl")}
    assert sizes == {(1600, 900)}


def test_resume_keeps_a_finished_build_of_the_same_metadata(
    public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--from-metadata", str(public), "--out", str(tmp_path / "out"))
    main(list(command))
    main([*command, "--resume"])
    metadata = public / "metadata.jsonl"
    metadata.write_text(metadata.read_text().replace("red car", "pink car"))
    assert "holds a build with other settings" in fails(capsys, *command, "--resume")
