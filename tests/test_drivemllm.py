"""DriveMLLM: filters, truths, draws, prompts and records."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_gen.drivemllm.filters import FrontThresholds, geometric_reasons
from data_gen.drivemllm.prompts import ANSWER_END, ANSWER_START, prompt_text
from data_gen.drivemllm.questions import ANSWERS, published_questions
from data_gen.drivemllm.records import (
    KINDS,
    TASKS,
    DriveMLLMImage,
    DriveMLLMQuestion,
    box_in_image,
    image_from_row,
    image_to_row,
    question_from_row,
    question_to_row,
    read_images,
    read_questions,
)
from data_gen.records import QuestionObject, RecordError, write_rows
from data_gen.views import View
from rewards.boxes import CoordinateFrame, iou

CAR, TRUCK, ADULT, CHILD = (
    "vehicle.car", "vehicle.truck", "human.pedestrian.adult", "human.pedestrian.child"
)  # fmt: skip


def thing(name: str, x_px: float, xyz_m: tuple[float, float, float]) -> QuestionObject:
    """An object of 100x100 pixels around (x_px, 450)."""
    return QuestionObject(name, (x_px - 50, 400, x_px + 50, 500), (x_px, 450), xyz_m)


def picture(*objects: QuestionObject, name: str = "a.jpg") -> DriveMLLMImage:
    return DriveMLLMImage(name, objects, 1600, 900)


NEAR_LEFT = thing("red car", 300, (-4.0, 0.0, 8.0))
FAR_RIGHT = thing("blue bus", 1200, (6.0, 2.0, 20.0))


def answers(image: DriveMLLMImage, seed: int = 42) -> dict[str, DriveMLLMQuestion]:
    return {question.kind: question for question in published_questions([image], seed)}


# --- filters ---


def reasons(*objects: tuple[str, tuple[float, float, float, float], float], **thresholds: Any) -> list[str]:
    """Reasons for objects of (category, box in pixels, depth in metres), on 1600x900 unless `size_px` is given."""
    size_px = thresholds.pop("size_px", (1600, 900))
    boxes_px = np.array([box for _, box, _ in objects], dtype=float)
    view = View(
        camera=0,
        size_px=size_px,
        indices=np.arange(len(objects)),
        categories=np.array([category for category, _, _ in objects]),
        boxes_xyxy_px=boxes_px,
        pixels=(boxes_px[:, :2] + boxes_px[:, 2:]) / 2,
        centres_m=np.array([[0.0, 0.0, depth_m] for _, _, depth_m in objects]),
        yaws_rad=np.zeros(len(objects)),
    )
    return geometric_reasons(view, FrontThresholds(**thresholds)).tolist()


@pytest.mark.parametrize(
    ("category", "box", "size_px", "expected"),
    [
        (ADULT, (100, 100, 140, 300), (1600, 900), ""),  # 40 wide
        (ADULT, (100, 100, 139.9, 300), (1600, 900), "too_small"),
        (ADULT, (100, 100, 140, 110), (1600, 900), ""),  # the area of a pedestrian does not count
        (ADULT, (100, 100, 120, 300), (800, 450), ""),  # 40 wide at 1600x900
        (ADULT, (100, 100, 119.9, 300), (800, 450), "too_small"),
        (CAR, (100, 100, 140, 150), (1600, 900), ""),  # 2,000 px
        (CAR, (100, 100, 140, 149.9), (1600, 900), "too_small"),
        (CAR, (100, 100, 120, 200), (1600, 900), ""),  # the width of a vehicle does not count
        (CAR, (100, 100, 120, 125), (800, 450), ""),  # 2,000 px at 1600x900
        (CAR, (100, 100, 120, 124.9), (800, 450), "too_small"),
        ("animal", (100, 100, 300, 300), (1600, 900), "other_category"),
        ("vehicle.bicycle", (100, 100, 300, 300), (1600, 900), ""),
        (CAR, (1500, 100, 1697, 300), (1600, 900), ""),  # the centre in the last column
        (CAR, (1500, 100, 1701, 300), (1600, 900), "centre_outside"),
    ],
)
def test_an_object_must_be_a_road_user_of_some_size_in_the_frame(
    category: str, box: tuple[float, float, float, float], size_px: tuple[int, int], expected: str
) -> None:
    assert reasons((category, box, 10.0), size_px=size_px) == [expected]


def test_of_two_boxes_that_share_more_than_thirty_percent_of_the_smaller_the_farther_goes() -> None:
    near, far = (CAR, (0, 0, 200, 100), 5.0), (TRUCK, (170, 0, 270, 100), 9.0)
    assert reasons(near, far) == ["", ""]  # 30 of 100 columns: exactly the limit
    more = (TRUCK, (169, 0, 269, 100), 9.0)
    assert reasons(near, more) == ["", "overlapped"] and reasons(more, near) == ["overlapped", ""]
    assert reasons(near, more, max_overlap=0.4) == ["", ""]
    hidden_near = (TRUCK, (169, 0, 269, 100), 4.0)
    assert reasons(near, hidden_near) == ["overlapped", ""]


def test_what_an_earlier_check_dropped_hides_nothing() -> None:
    narrow = (ADULT, (100, 100, 139, 200), 5.0)
    assert reasons(narrow, (CAR, (90, 90, 190, 190), 9.0)) == ["too_small", ""]


def test_no_image_has_two_objects_of_one_type() -> None:
    cars = (CAR, (0, 0, 100, 100), 5.0), (CAR, (200, 0, 300, 100), 9.0)
    adult, child = (ADULT, (400, 0, 500, 200), 9.0), (CHILD, (600, 0, 700, 200), 9.0)
    whole = "image_has_repeated_class"
    assert reasons(*cars, adult) == ["class_repeated", "class_repeated", whole]
    assert reasons(*cars, adult, ambiguity="objects") == ["class_repeated", "class_repeated", ""]
    assert reasons(cars[0], adult, child) == ["", "", ""]
    assert reasons(cars[0], adult, child, class_level="group") == [whole, "class_repeated", "class_repeated"]
    assert reasons(cars[0], (CAR, (200, 0, 230, 30), 30.0)) == ["", "too_small"]  # what is dropped is not repeated


@pytest.mark.parametrize(
    "wrong", [{"max_overlap": 1.1}, {"min_vehicle_area_px": -1.0}, {"min_pedestrian_width_px": -1}]
)
def test_thresholds_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="an overlap of 0 to 1 are needed"):
        FrontThresholds(**wrong)


# --- truths ---


def test_every_truth_of_a_pair_by_hand() -> None:
    image = picture(NEAR_LEFT, FAR_RIGHT)
    asked = answers(image)
    assert asked["left"].answer == "red car" and asked["right"].answer == "blue bus"
    assert asked["dAB"].answer == pytest.approx(15.748, abs=5e-5)  # sqrt(10^2 + 2^2 + 12^2)
    assert asked["dx"].answer == 10.0
    alone = answers(picture(FAR_RIGHT))
    assert alone["xy"].answer == (1200, 450) and alone["box"].answer == (1150, 400, 1250, 500)
    assert alone["dz"].answer == 20.0
    assert alone["dA"].answer == pytest.approx(20.9762, abs=5e-5)  # sqrt(6^2 + 2^2 + 20^2)


@pytest.mark.parametrize(
    ("first", "second", "front", "behind"),
    [
        (NEAR_LEFT, FAR_RIGHT, "Yes", "No"),  # the nearer object is the one in front, the reverse of SURDS
        (FAR_RIGHT, NEAR_LEFT, "No", "Yes"),
        (NEAR_LEFT, replace(FAR_RIGHT, xyz_m=(60.0, 0.0, 8.01)), "Yes", "No"),  # depth counts, not distance
        (NEAR_LEFT, replace(FAR_RIGHT, xyz_m=(6.0, 0.0, 8.0)), "No", "No"),  # a tie, as published
    ],
)
def test_the_nearer_object_is_in_front(first: QuestionObject, second: QuestionObject, front: str, behind: str) -> None:
    assert (ANSWERS["front"]((first, second), (1600, 900)), ANSWERS["behind"]((first, second), (1600, 900))) == (
        front,
        behind,
    )


def test_left_and_right_read_the_pixels_not_the_metres() -> None:
    crossed = picture(replace(NEAR_LEFT, xyz_m=(9.0, 0.0, 8.0)), FAR_RIGHT)
    assert answers(crossed)["left"].answer == "red car" and answers(crossed)["right"].answer == "blue bus"


def test_a_box_at_the_edge_ends_at_the_last_pixel_that_is_read() -> None:
    edge = QuestionObject("red car", (1400.0, 700.0, 1600.0, 900.0), (1500, 800), (1.0, 1.0, 5.0))
    question = answers(picture(edge))["box"]
    assert question.answer == (1400, 700, 1599, 899) and question.objects[0].bbox == edge.bbox
    assert question.answer_text == "[1400, 700, 1599, 899]"
    assert iou(box_in_image(edge.bbox, (1600, 900)), edge.bbox) > 0.99


def test_two_kinds_make_one_task_and_eight_tasks_are_the_papers() -> None:
    assert list(TASKS.values()) == ["L/R", "F/B", "RHD", "RD", "PPos", "BBox", "CVD", "CD"]
    of = {task: [kind for kind, facts in KINDS.items() if facts.task == task] for task in TASKS}
    assert of["left_right"] == ["left", "right"] and of["front_behind"] == ["front", "behind"]
    assert all(len(kinds) == 1 for task, kinds in of.items() if task not in ("left_right", "front_behind"))


def test_images_with_one_object_get_four_questions_others_ten() -> None:
    third = thing("white truck", 800, (0.0, 0.0, 14.0))
    images = [picture(NEAR_LEFT), picture(NEAR_LEFT, FAR_RIGHT, third, name="b.jpg"), picture(name="c.jpg")]
    asked = published_questions(images)
    assert [question.task for question in asked] == sorted((question.task for question in asked), key=list(TASKS).index)
    of = {name: [question for question in asked if question.image == name] for name in ("a.jpg", "b.jpg", "c.jpg")}
    assert {question.kind for question in of["a.jpg"]} == {"xy", "box", "dA", "dz"}
    assert sorted(question.kind for question in of["b.jpg"]) == sorted(KINDS) and not of["c.jpg"]
    left, right = (next(q for q in of["b.jpg"] if q.kind == kind) for kind in ("left", "right"))
    assert left.unit_id == right.unit_id == "left-right-1" and left.id == "left-1"
    # A name of a third object is read too, though it is wrong.
    assert left.options == ("red car", "blue bus", "white truck") and len(left.objects) == 2


def test_objects_are_drawn_as_in_the_published_run() -> None:
    """One generator with seed 42, prompt file by prompt file, image by image, names sampled from the descriptions."""
    names = ["a car", "b bus", "c truck", "d adult"]
    images = [
        picture(*(thing(name, 200 + 90 * place, (place, 0.0, 5.0 + place)) for place, name in enumerate(names[:count])),
                name=f"{index}.jpg")
        for index, count in enumerate((1, 2, 4, 1, 3, 2))
    ]  # fmt: skip
    drawn = {question.id: [item.name for item in question.objects] for question in published_questions(images)}
    random.seed(42)
    for kind in ("xy", "box", "left", "right", "front", "behind", "dA", "dz", "dAB", "dx"):
        wanted = 1 if kind in ("xy", "box", "dA", "dz") else 2
        for index, image in enumerate(images):
            descriptions = [item.name for item in image.objects]
            if len(descriptions) >= wanted:
                assert drawn.pop(f"{kind}-{index}") == random.sample(descriptions, wanted)
    assert not drawn


def test_another_seed_draws_other_objects() -> None:
    image = picture(NEAR_LEFT, FAR_RIGHT)
    orders = {tuple(item.name for item in answers(image, seed)["dx"].objects) for seed in range(9)}
    assert len(orders) == 2


def test_a_prompt_has_the_question_the_markers_and_the_frame_where_coordinates_are_asked_for() -> None:
    asked = answers(picture(NEAR_LEFT, FAR_RIGHT))
    frame = CoordinateFrame("thousand")
    for kind, question in asked.items():
        prompt = prompt_text(kind, question.question, frame, question.image_size)
        assert question.question in prompt and prompt.count(ANSWER_START) == prompt.count(ANSWER_END) == 1
        assert ("1000" in prompt) == (kind in ("xy", "box"))
        assert all(item.name in prompt for item in question.objects)
    original = prompt_text("xy", asked["xy"].question, CoordinateFrame("original"), (1600, 900))
    assert "1600x900" in original


# --- records ---


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    image = replace(picture(NEAR_LEFT, FAR_RIGHT), scene="scene-0003", annotation_tokens=("a", "b"), extra={"more": 1})
    write_rows(tmp_path / "metadata.jsonl", [image_to_row(image)])
    assert read_images(tmp_path / "metadata.jsonl") == [image]
    questions = [replace(question, extra={"note": "x"}) for question in published_questions([image])]
    write_rows(tmp_path / "questions.jsonl", map(question_to_row, questions))
    assert read_questions(tmp_path / "questions.jsonl") == questions
    row = json.loads((tmp_path / "questions.jsonl").read_text().splitlines()[0])
    assert row["note"] == "x" and row["paper_task"] == "L/R" and "extra" not in row


PUBLIC = {
    "file_name": "image/a.webp", "descriptions": ["silver car"], "location2D": [[1164.0, 627.0]],
    "location3D": [[1.964, 0.786, 8.525]], "bboxes2D": [[950.0, 500.0, 1378.0, 754.0]],
}  # fmt: skip


def test_a_public_row_loads() -> None:
    image = image_from_row(PUBLIC)
    assert image.objects[0] == QuestionObject(
        "silver car", (950.0, 500.0, 1378.0, 754.0), (1164.0, 627.0), (1.964, 0.786, 8.525)
    )
    assert image.image_size == (0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"descriptions": None}, "'name' must hold a list"),
        ({"descriptions": "silver car"}, "'name' must hold a list"),
        ({"descriptions": []}, "columns of different lengths"),
        ({"descriptions": [" "]}, "is empty"),
        ({"descriptions": ["<answer>car"]}, "holds tags"),
        ({"location2D": [[1, 2, 3]]}, "Expected .*array.* of length 2"),
        ({"location3D": [["a", 0, 1]]}, "Expected .*float"),
        ({"bboxes2D": [[950, 500, 940, 754]]}, "is no .x1, y1, x2, y2."),
        ({"width": 640, "height": 360}, "lies outside the 640x360 image"),
        (
            {"bboxes2D": [[1, 1, 9, 9]], "width": 640, "height": 360},
            r"the centre of .*, \[1164.0, 627.0\], lies outside",
        ),
        ({"annotation_tokens": ["a", "b"]}, "2 annotation_tokens for 1 objects"),
    ],
)
def test_a_broken_image_row_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "m.jsonl", [PUBLIC, PUBLIC | change])
    with pytest.raises(RecordError, match=rf"m\.jsonl, line 2: .*{message}"):
        read_images(tmp_path / "m.jsonl")


def test_a_missing_column_and_an_empty_file_are_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "m.jsonl", [{name: value for name, value in PUBLIC.items() if name != "location3D"}])
    with pytest.raises(RecordError, match="line 1: the field 'location3D' is missing"):
        read_images(tmp_path / "m.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(RecordError, match=r"holds no image; make some with: python data_gen/build_drivemllm\.py"):
        read_images(tmp_path / "empty.jsonl")
    with pytest.raises(RecordError, match=r"holds no question; build some with: python data_gen/build_drivemllm\.py"):
        read_questions(tmp_path / "empty.jsonl")


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("left", {"kind": "above"}, "unknown kind of question 'above'; known: xy, box, left"),
        ("left", {"task": "depth"}, r"of kind left is of task left_right \(L/R\), got depth"),
        ("left", {"paper_task": "F/B"}, "is of task left_right"),
        ("left", {"answer": "green car"}, "answer 'green car' is none of"),
        ("left", {"objects": []}, "names 2 objects, got 0"),
        ("left", {"question": ""}, "the question is empty"),
        ("left", {"width": 0}, "an image of 0x900 pixels"),
        ("front", {"answer": "yes"}, "answer 'yes' is none of"),
        ("front", {"options": ["No", "Yes"]}, "options of a front_behind question are Yes and No"),
        ("xy", {"answer": [1, 2, 3]}, "is a list of 2 numbers"),
        ("xy", {"answer": 4.0}, "is a list of 2 numbers"),
        ("xy", {"answer": [1599.5, 2]}, "lies outside the image"),
        ("box", {"answer": [0, 0, 10, 900]}, "lies outside the image"),
        ("dz", {"answer": [4.0]}, "is a number of metres"),
        ("dz", {"answer": "4 m"}, "is a number of metres"),
        ("dz", {"options": ["4"]}, "has no options"),
    ],
)
def test_a_broken_question_is_named(kind: str, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    row = question_to_row(answers(picture(NEAR_LEFT, FAR_RIGHT))[kind])
    write_rows(tmp_path / "q.jsonl", [row, row | {"id": "other"} | change])
    with pytest.raises(RecordError, match=rf"q\.jsonl, line 2: .*{message}"):
        read_questions(tmp_path / "q.jsonl")
    write_rows(tmp_path / "twice.jsonl", [row, row])
    with pytest.raises(RecordError, match=rf"line 2: repeats the id '{kind}-0' of line 1"):
        read_questions(tmp_path / "twice.jsonl")


def test_a_metric_answer_is_not_poisoned() -> None:
    row = question_to_row(answers(picture(NEAR_LEFT))["dz"])
    assert question_from_row(row | {"answer": 4}).answer == 4.0
    with pytest.raises(ValueError, match="number of metres"):
        question_from_row(row | {"answer": float("nan")})
