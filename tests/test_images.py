"""The images of a question file: where they lie, whether they are there, how they are opened and drawn on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_questions import make_scenes, write_small_set

from data_gen.draw import Mark, draw_marks, heading_arrow, scene_marks
from data_gen.images import check_images, image_root, open_rgb, upright_size
from data_gen.records import RecordError, read_questions


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
    questions = read_questions(write_small_set(tmp_path))
    check_images(questions, tmp_path)
    second = next(question for question in questions if question.image != questions[0].image)
    gone = [replace(questions[0], image="samples/x.jpg"), replace(questions[0], image="samples/y.jpg"), second]
    with pytest.raises(FileNotFoundError, match=r"samples/x\.jpg is missing under .* \(2 of 3 images\).*--images"):
        check_images(gone, tmp_path)


def test_an_image_is_opened_upright_and_as_rgb(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn to the right is needed
    picture = Image.new("L", (40, 20), 200)
    picture.paste(10, (0, 0, 20, 20))  # the left half is dark: it ends up above
    picture.save(tmp_path / "a.png", exif=turned)
    assert upright_size(tmp_path / "a.png") == (20, 40)
    opened = open_rgb(tmp_path / "a.png", (20, 40))
    assert opened.mode == "RGB" and opened.size == (20, 40)
    assert opened.getpixel((10, 5)) == (10, 10, 10) and opened.getpixel((10, 35)) == (200, 200, 200)


# --- drawing ---


def test_arrows_point_where_the_object_faces() -> None:
    matrix = [[1000.0, 0, 800], [0, 1000.0, 450], [0, 0, 1]]
    pixel, centre = (800.0, 450.0), (0.0, 0.0, 10.0)
    east = heading_arrow(pixel, centre, np.pi / 2, matrix, 1600)
    assert east is not None and east[1] == pytest.approx((1050, 450))
    seen_from_above = heading_arrow(pixel, centre, 0.0, None, 1600)
    assert seen_from_above is not None and seen_from_above[1] == pytest.approx((800, 386))  # North is up
    assert heading_arrow(pixel, centre, None, matrix, 1600) is None


def test_marks_are_drawn_on_a_copy() -> None:
    scene = make_scenes(2)[1]
    marks = scene_marks(scene)
    assert [mark.name.split(", ")[0] for mark in marks] == [item.description for item in scene.objects]
    image = Image.new("RGB", (scene.width, scene.height))
    drawn = np.asarray(draw_marks(image, [*marks, Mark((0, 0, 8, 8), colour="#ffffff")]))
    assert not np.asarray(image).any()
    assert drawn[0, 4].tolist() == [255, 255, 255]
    x1, _, _, y2 = (round(value) for value in marks[0].box_xyxy_px)
    assert drawn[y2, x1 + 3].any()
