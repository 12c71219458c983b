"""Every outside case of odd model output, each standing for a kind of fault."""

from __future__ import annotations

from typing import Any

import pytest
from shared import SHARED, json_lines

from rewards.boxes import CoordinateFrame, iou
from rewards.choice import read_choice
from rewards.grading import Truth, grade_text
from rewards.loc import matched_boxes
from rewards.response import parse

FRAME = CoordinateFrame("original")
CASES = json_lines("cases/responses.jsonl") if (SHARED / "cases/responses.jsonl").exists() else []


def case_ids(cases: list[dict[str, Any]]) -> list[str]:
    return [case["id"] for case in cases]


RESPONSES = [case for case in CASES if "text" in case and not case.get("choice")]
CHOICES = [case for case in CASES if case.get("choice")]
OVERLAPS = [case for case in CASES if "iou" in case]
FRAMES = [case for case in CASES if "frame" in case]


@pytest.mark.parametrize("case", RESPONSES, ids=case_ids(RESPONSES))
def test_response(case: dict[str, Any]) -> None:
    response = parse(case["text"], case.get("size"))
    options = tuple(case.get("options", ()))
    truth = Truth(case.get("task", "left_right"), case.get("truth", ""), options, case.get("bbox"))
    grade = grade_text(case["text"], truth, FRAME)
    found = {item.name: list(item.box_xyxy) for item in response.boxes}
    seen = {
        "format": int(response.well_formed),
        "answer": response.answer,
        "acc": int(grade.score > 0),
        "boxes": found,
    }
    expected = {name: case[name] for name in seen if name in case}
    assert {name: seen[name] for name in expected} == expected
    if "reason" in case:
        assert case["reason"] in response.reasons + grade.reasons
    for name, value in case.get("loc_iou", {}).items():
        (box,) = matched_boxes(response.boxes, [name], FRAME, (1600, 900))
        assert (0.0 if box is None else iou(box, (1, 2, 3, 4))) == value


@pytest.mark.parametrize("case", CHOICES, ids=case_ids(CHOICES))
def test_choice(case: dict[str, Any]) -> None:
    assert read_choice(case["text"], case["options"]) == case["letter"]


@pytest.mark.parametrize("case", OVERLAPS, ids=case_ids(OVERLAPS))
def test_overlap(case: dict[str, Any]) -> None:
    value = iou(*map(tuple, case["iou"]))  # type: ignore[arg-type]
    assert value == case["iou_value"] if "iou_value" in case else value <= case["iou_max"]


@pytest.mark.parametrize("case", FRAMES, ids=case_ids(FRAMES))
def test_frame(case: dict[str, Any]) -> None:
    frame = CoordinateFrame(case["frame"]["kind"], max_pixels=1_003_520)
    if "size" in case["frame"]:
        assert list(frame.size((1600, 900))) == case["frame"]["size"]
    converted = frame.box_to_original(tuple(case["pred"]), (1600, 900))  # type: ignore[arg-type]
    assert iou(converted, tuple(case["bbox"])) >= case["iou_min"]  # type: ignore[arg-type]
    assert iou(tuple(case["pred"]), tuple(case["bbox"])) < 0.5  # type: ignore[arg-type]
