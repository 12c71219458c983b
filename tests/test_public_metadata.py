"""Questions from the public metadata: the published units to the letter, and metadata that is not as it should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from shared import need

from data_gen.build_surds import main
from data_gen.records import read_questions

PUBLIC_NAMES = {"pixel": "xy2d"}


def row(name: str, *objects: tuple[str, float, tuple[float, float]], **changes: Any) -> dict[str, Any]:
    """An image of the public metadata; an object is its description, depth and point."""
    return {
        "file_name": name,
        "descs": [text for text, _, _ in objects],
        "bboxes2D": [[x - 50, y - 40, x + 50, y + 40] for _, _, (x, y) in objects],
        "xy2Ds": [list(point) for _, _, point in objects],
        "xyz3Ds": [[0.0, 0.0, depth] for _, depth, _ in objects],
        "depths": [depth for _, depth, _ in objects],
        "distances": [depth for _, depth, _ in objects],
        "yaw_descs": ["North" for _ in objects],
        **changes,
    }


ALONE = [row(f"{index}.webp", ("white car", 10.0 + index, (400, 300))) for index in range(3)]
PAIR = row("pair.webp", ("white car", 10.0, (400, 300)), ("red bus", 20.0, (900, 300)))


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rows))
    return folder


def build(source: str | Path, out: Path, *more: str) -> dict[str, Any]:
    main(["--from-metadata", str(source), "--out", str(out), *more])
    return json.loads((out / "manifest.json").read_text())


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_the_units_equal_the_published_ones_in_order(tmp_path: Path) -> None:
    expected = json.loads(need("parity/expected_units.json").read_text())
    manifest = build(need("parity/metadata.jsonl").parent, tmp_path / "out", "--depth-ranges", "official")
    units: dict[str, dict[str, Any]] = {}
    for question in read_questions(tmp_path / "out" / "questions.jsonl"):
        single = len(question.objects) == 1
        unit = units.setdefault(
            question.unit,
            {
                "task": PUBLIC_NAMES.get(question.task, question.task),
                "unit": question.unit.replace("pixel-", "xy2d-"),
                "image": question.image,
                "options": list(question.options),
                "answers": [],
                "bbox": list(question.objects[0].bbox) if single else None,
            },
        )
        unit["answers"].append(question.answer_text)
    assert list(units.values()) == expected
    assert manifest["left_out"] == manifest["unscorable"] == {}
    assert set(manifest["units"].values()) == {45}


def test_fair_ranges_keep_everything_but_the_depth_options(tmp_path: Path) -> None:
    folder = write(tmp_path / "public", [*ALONE, PAIR])
    for ranges in ("official", "fair"):
        build(folder, tmp_path / ranges, "--depth-ranges", ranges)
    official, fair = (read_questions(tmp_path / ranges / "questions.jsonl") for ranges in ("official", "fair"))
    assert [question.id for question in official] == [question.id for question in fair]
    widths = [[int(word) for word in option.split() if word.isdigit()] for option in fair[3].options]
    assert fair[3].task == "depth" and {high - low for low, high in widths} <= {6, 7}
    assert {question.depth_ranges for question in fair} == {"fair"}


def test_an_image_must_have_the_size_that_its_boxes_are_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = {**PAIR, "width": 800, "height": 450, "file_name": "half.webp"}
    folder = write(tmp_path / "public", [*ALONE, PAIR, ALONE[0] | {"file_name": "more.webp"}, half, ALONE[1]])
    Image.new("RGB", (800, 450)).save(folder / "half.webp")
    manifest = build(folder, tmp_path / "out")
    assert manifest["missing_images"] == 6 and "6 images are not beside" in capsys.readouterr().err
    Image.new("RGB", (800, 450)).save(folder / "pair.webp")
    told = fails(capsys, "--from-metadata", str(folder), "--out", str(tmp_path / "no"))
    assert "pair.webp is 800x450 pixels, the boxes of its record are about 1600x900" in told


def test_what_cannot_be_asked_or_scored_is_kept_out_or_kept_in_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twins = row("twins.webp", ("white car", 10.0, (400, 300)), ("White car", 20.0, (900, 300)))
    off = row("0.webp", ("white car", 10.0, (400, 300)), xy2Ds=[[500, 300]])  # beside its own box
    folder = write(tmp_path / "public", [twins, off])
    manifest = build(folder, tmp_path / "out")
    assert set(manifest["left_out"]) == {"distance-0-0-1", "left-right-0-0-1", "front-behind-0-0-1"}
    assert "have the same name, 'white car'" in manifest["left_out"]["front-behind-0-0-1"]
    assert set(manifest["unscorable"]) == {"pixel-1-0"}
    ids = {question.id for question in read_questions(tmp_path / "out" / "questions.jsonl")}
    assert "pixel-1-0" in ids and "distance-0-0-1-0" not in ids
    told = capsys.readouterr().err
    assert "3 units cannot be asked" in told and "1 true answers cannot score" in told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depths": [float("nan")]}, "line 1: 'white car': a number is not finite"),
        ({"depths": [-5.0]}, "line 1: 'white car': a depth of -5.0 m is not ahead"),
        ({"yaw_descs": ["Up"]}, "line 1: 'white car': unknown heading 'Up'; known: North"),
        ({"descs": "a"}, "line 1: the column of description must hold a list"),
        ({"depths": None}, "line 1: the column of depth_m must hold a list"),
    ],
)
def test_a_row_that_nothing_can_be_asked_about_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    folder = write(tmp_path / "public", [{**ALONE[0], **change}, PAIR])
    assert message in fails(capsys, "--from-metadata", str(folder), "--out", str(tmp_path / "out"))


def test_the_split_chooses_among_several_metadata_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "public" / "train", [*ALONE, PAIR])
    write(tmp_path / "public" / "validation", [ALONE[0], PAIR])
    source = str(tmp_path / "public")
    message = fails(capsys, "--from-metadata", source, "--out", str(tmp_path / "all"))
    assert "found: train/metadata.jsonl, validation/metadata.jsonl" in message
    assert build(source, tmp_path / "val", "--split", "val")["images"]["kept"] == 2
    questions = read_questions(tmp_path / "val" / "questions.jsonl")
    assert {question.split for question in questions} == {"val"}
    assert build(source, tmp_path / "train", "--split", "train")["depth_ranges"] == "fair"


def test_bad_metadata_ends_with_2_and_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", str(tmp_path / "out"))
    assert "a dataset's name on the hub" in fails(capsys, "--from-metadata", "nowhere", *out)
    assert "the hub did not give it" in fails(capsys, "--from-metadata", "no-such/dataset", *out)  # offline
    few = write(tmp_path / "few", [PAIR, row("more.webp", ("a", 1, (99, 99)), ("b", 9, (9, 9)), ("c", 5, (400, 400)))])
    assert "4 pairs need as many single-object images, there are 0" in fails(capsys, "--from-metadata", str(few), *out)
    bad = write(tmp_path / "bad", [{"file_name": "a.webp"}])
    assert "metadata.jsonl, line 1: the field 'descs' is missing" in fails(capsys, "--from-metadata", str(bad), *out)
    good = str(write(tmp_path / "good", [ALONE[0], PAIR]))
    told = fails(capsys, "--from-metadata", good, "--min-area-px", "1", "--nuscenes", "x", *out)
    assert "leave out --nuscenes, --min-area-px" in told


def test_a_changed_metadata_file_is_not_taken_for_the_finished_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = write(tmp_path / "public", [*ALONE, PAIR]), tmp_path / "out"
    build(folder, out)
    build(folder, out, "--resume")
    write(folder, [*ALONE, PAIR, ALONE[0]])
    assert "other settings" in fails(capsys, "--from-metadata", str(folder), "--out", str(out), "--resume")
