"""Rewards: the true response scores full marks on every reward and task, near misses score nothing."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from data_gen.prompts import located_response
from data_gen.questions import own_units, questions_of
from data_gen.records import Question, Trace
from data_gen.scene_records import SceneImage, SceneObject
from rewards import REWARDS, select_rewards
from rewards.boxes import CoordinateFrame, centerness, giou, iou, smart_resize
from rewards.choice import read_choice
from rewards.grading import GRADING_REASONS, SCORINGS, grade_text, same_answer, unit_score
from rewards.normal_form import normalise
from rewards.response import PARSER_REASONS, last_answer, parse, read_boxes, read_point
from rewards.settings import RewardSettings
from training.data import grpo_rows, target_response

FRAMES = [
    CoordinateFrame("original"),
    CoordinateFrame("resized", max_pixels=1_003_520),
    CoordinateFrame("resized", max_pixels=401_408),
    CoordinateFrame("thousand"),
]


def scene_object(name: str, x: float, depth_m: float, heading: str = "North") -> SceneObject:
    box = (x, 400.0, x + 120, 480.0)
    return SceneObject(name, box, (x + 60, 440.0), (0.0, 1.0, depth_m), depth_m, depth_m + 0.1, heading, 0.0, name)


def questions() -> list[Question]:
    """Every task, ties and both sides of them, at several depths."""
    scenes = [SceneImage("one.jpg", (scene_object("white car", 300, depth),)) for depth in (3.0, 7.0, 12.0, 15.0, 31.0)]
    scenes.append(SceneImage("diagonal.jpg", (scene_object("red bus", 300, 12.0, "Southwest"),)))
    for gap_m, gap_px in ((0.3, 50), (0.7, 99), (1.2, 101), (9.0, 700)):
        pair = (scene_object("white car", 200, 10.0), scene_object("red bus", 200 + gap_px, 10.0 + gap_m))
        scenes.append(SceneImage(f"pair-{gap_m}.jpg", pair))
    return [question for unit in own_units(scenes) for question in questions_of(unit)]


def columns(question: Question, frame: CoordinateFrame, verdict: str | None) -> dict[str, list[Any]]:
    from pathlib import Path

    (row,) = grpo_rows([question], Path(), frame)
    return {name: [value] for name, value in row.items() if name not in ("prompt", "images")} | {"verdicts": [verdict]}


def pay(name: str, text: str, question: Question, verdict: str | None, settings: RewardSettings) -> float | None:
    (reward,) = select_rewards(name, settings)
    (value,) = reward([[{"role": "assistant", "content": text}]], **columns(question, settings.frame, verdict))
    return value


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame.kind}-{frame.max_pixels}")
def test_true_response_scores_full_marks(frame: CoordinateFrame) -> None:
    asked = questions()
    assert {question.task for question in asked} == {
        "yaw", "pixel", "depth", "distance", "left_right", "front_behind"
    }  # fmt: skip
    for question in asked:
        text = target_response(Trace(question, "It is there.", "test"), frame)
        answer = text.split("<answer>")[1].removesuffix("</answer>")
        for name in ("format", "loc", "acc", "logic"):
            assert pay(name, text, question, answer, RewardSettings(frame)) == 1.0, (name, question.id)
        assert pay("logic", text, question, answer, RewardSettings(frame, logic_target="truth")) == 1.0
        assert grade_text(text, question.truth, frame).score > 0.95


def test_a_response_in_another_frame_misses() -> None:
    frame, other = FRAMES[0], FRAMES[2]
    for question in questions():
        text = target_response(Trace(question, "It is there.", "test"), other)
        assert pay("loc", text, question, None, RewardSettings(frame)) == 0.0


GOOD_BOX = ("white car", (300, 400, 420, 480))
NEAR_MISSES = [
    ("format", located_response([], "t", "A"), "no box"),
    ("format", located_response([GOOD_BOX], "", "A"), "empty trace"),
    ("format", located_response([GOOD_BOX], "t", "A") + " so.", "text after the last tag"),
    ("format", located_response([GOOD_BOX], "t", "A").replace("</think>", ""), "a tag left open"),
    ("format", located_response([GOOD_BOX], "t", "A") * 2, "everything twice"),
    ("loc", located_response([("white car", (300, 400, 361, 480))], "t", "A"), "IoU just above one half is needed"),
    ("loc", located_response([GOOD_BOX, GOOD_BOX], "t", "A"), "named twice"),
    ("loc", located_response([("white car", (0, 0, 1600, 900))], "t", "A"), "the whole image"),
    ("acc", located_response([GOOD_BOX], "t", "[299, 440]"), "one pixel beside the box"),
    ("acc", located_response([GOOD_BOX], "t", "[300, 440] or so"), "more than a point"),
    ("acc", located_response([GOOD_BOX], "<answer>[360, 440]</answer>", ""), "answer inside the trace"),
    ("acc", located_response([GOOD_BOX], "t", "[0.2, 0.5]"), "shares of the image are not pixels"),
]


@pytest.mark.parametrize(("name", "text", "why"), NEAR_MISSES, ids=[why for *_, why in NEAR_MISSES])
def test_near_misses_score_nothing(name: str, text: str, why: str) -> None:
    question = next(item for item in questions() if item.task == "pixel")
    box = question.objects[0].bbox
    if why.startswith("IoU"):
        # Control: the same box, a little wider, is enough.
        assert iou(box, (300, 400, 361, 480)) > 0.5
        text = located_response([("white car", (300, 400, 359, 480))], "t", "A")
    assert pay(name, text, question, None, RewardSettings()) == 0.0


def test_values_of_the_dagger_ablation() -> None:
    question = questions()[0]
    settings = RewardSettings(values=(-1.0, 1.0))
    text = target_response(Trace(question, "It is there.", "test"), settings.frame)
    assert pay("format", text, question, None, settings) == 1.0
    assert [pay(name, "nonsense", question, None, settings) for name in ("format", "loc", "acc", "logic")] == [-1.0] * 4


def test_kinds_of_loc() -> None:
    pair = next(item for item in questions() if item.task == "distance" and item.image == "pair-9.0.jpg")
    first, second = (item.bbox for item in pair.objects)
    shifted = (second[0] + 60, second[1], second[2] + 60, second[3])
    text = located_response([("white car", first), ("the Red  Bus", shifted)], "t", "A")
    paid = {kind: pay("loc", text, pair, None, RewardSettings(loc_kind=kind)) for kind in ("mean", "all", "linear")}
    assert paid == {"mean": 0.5, "all": 0.0, "linear": pytest.approx((1 + 1 / 3) / 2)}
    assert pay("loc", text, pair, None, RewardSettings(loc_kind="giou")) == pytest.approx(((1 + 1 / 3) / 2 + 1) / 2)


def test_a_single_object_matches_whatever_its_name_but_two_do_not() -> None:
    single = next(item for item in questions() if item.task == "depth")
    text = located_response([("the thing", single.objects[0].bbox)], "t", "A")
    assert pay("loc", text, single, None, RewardSettings()) == 1.0
    pair = next(item for item in questions() if item.task == "distance")
    text = located_response([("x", pair.objects[0].bbox), ("y", pair.objects[1].bbox)], "t", "A")
    assert pay("loc", text, pair, None, RewardSettings()) == 0.0


def test_linear_acc_grades_depth_and_points() -> None:
    settings = RewardSettings(acc_kind="linear")
    depth = next(item for item in questions() if item.task == "depth")
    ranges = ("Between 12 meters and 18 meters", "Between 7 meters and 10 meters", "Between 23 meters and 26 meters")
    depth = replace(depth, options=ranges, answer=ranges[0])
    paid = [pay("acc", f"<answer>{option}</answer>", depth, None, settings) for option in ranges]
    assert paid == [1.0, pytest.approx(math.exp(-2 / 5)), pytest.approx(math.exp(-5 / 5))]
    assert pay("acc", "<answer>Between 1 meter and 99 meters</answer>", depth, None, settings) == 0.0
    assert pay("acc", "<answer>Between ⑦ meters and 10 meters</answer>", depth, None, settings) == paid[1]
    pixel = next(item for item in questions() if item.task == "pixel")
    assert pay("acc", "<answer>[330, 440]</answer>", pixel, None, settings) == pytest.approx(math.sqrt(30 / 90))
    assert pay("acc", "<answer>[330, 440]</answer>", pixel, None, RewardSettings()) == 1.0


def test_logic_needs_a_well_formed_response_and_a_verdict() -> None:
    question = next(item for item in questions() if item.task == "yaw")
    text = target_response(Trace(question, "It is there.", "test"), FRAMES[0])
    own = text.split("<answer>")[1].removesuffix("</answer>")
    assert pay("logic", text, question, own, RewardSettings()) == 1.0
    assert pay("logic", text, question, None, RewardSettings()) == 0.0
    assert pay("logic", text, question, "Yes", RewardSettings()) == 0.0
    assert pay("logic", text + "!", question, own, RewardSettings()) == 0.0
    wrong = text.replace(f"<answer>{own}", "<answer>Nowhere")
    assert pay("logic", wrong, question, "Nowhere", RewardSettings()) == 1.0
    assert pay("logic", wrong, question, "Nowhere", RewardSettings(logic_target="truth")) == 0.0


def test_logic_takes_points_within_one_per_cent_of_the_sides() -> None:
    question = next(item for item in questions() if item.task == "pixel")
    width, height = FRAMES[0].size(question.image_size)
    text = target_response(Trace(question, "It is there.", "test"), FRAMES[0])
    x, y = (int(value) for value in text.split("<answer>[")[1].removesuffix("]</answer>").split(","))
    for target in ("generated", "truth"):
        settings = RewardSettings(FRAMES[0], logic_target=target)
        near, far = (f"[{x + share * width:.1f}, {y - share * height:.1f}]" for share in (0.009, 0.011))
        assert [pay("logic", text, question, verdict, settings) for verdict in (near, far, "nowhere")] == [
            1.0,
            0.0,
            0.0,
        ]


def test_pair_pays_the_share_of_right_partners() -> None:
    pair = [item for item in questions() if item.pair_id and item.pair_id.startswith("distance")][:2]
    rows = [columns(pair[0], FRAMES[0], None)] * 2 + [columns(pair[1], FRAMES[0], None)] * 2
    texts = [f"<answer>{text}</answer>" for text in (pair[0].answer, "no", pair[1].answer, "no")]
    merged = {name: [row[name][0] for row in rows] for name in rows[0]}
    (reward,) = select_rewards("pair")
    assert reward(texts, **merged) == [0.5, 0.0, 0.5, 0.0]
    with pytest.raises(ValueError, match="partner"):
        reward(texts[:2], **{name: values[:2] for name, values in merged.items()})
    single = next(item for item in questions() if item.task == "depth")
    assert reward(["<answer>x</answer>"], **columns(single, FRAMES[0], None)) == [None]


def test_unknown_and_repeated_rewards_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'speed'.*known: format, loc, acc, logic, pair"):
        select_rewards("format,speed")
    with pytest.raises(ValueError, match="twice"):
        select_rewards("format,format")
    assert [item.__name__ for item in select_rewards(",".join(REWARDS))] == list(REWARDS)  # type: ignore[attr-defined]


PIECES = [
    "<location>", "</location>", "<think>", "</think>", "<answer>", "</answer>", "[", "]", "(", ")", ",", "1e999",
    "9" * 400, "-", ".", "bbox_2d", '{"bbox_2d": [1, 2, 3, ', "[" * 2000, "NaN", "½", "١", "：", "\x00", "\ud800",
    "<|im_end|>", "white car", "\n", "[1, 2, 3, 4]", "inf", '"label": "x"}', "<answer>[" + "9" * 400 + ", 5]</answer>",
    "<answer>[" + "-" * 5000 + "1, 2]</answer>",
]  # fmt: skip


def test_rewards_and_grades_never_raise_on_model_text() -> None:
    rng = random.Random(0)
    asked = questions()
    for _ in range(2000):
        text = "".join(rng.choices(PIECES, k=rng.randint(0, 14)))
        question = rng.choice(asked)
        for name in ("format", "loc", "acc", "logic"):
            value = pay(name, text, question, None, RewardSettings())
            assert value is not None and 0.0 <= value <= 1.0
        for scoring in SCORINGS:
            grade = grade_text(text, question.truth, FRAMES[0], scoring)
            assert set(grade.reasons) <= set(GRADING_REASONS)
            assert 0.0 <= grade.score <= 1.0
        assert set(parse(text, (1600, 900)).reasons) <= set(PARSER_REASONS)
        read_choice(text, ["Yes", "No"])


# Each of these took minutes under a pattern with neighbouring repeats.
LONG = [
    "\n" * 60_000 + "x" + "\n" * 60_000 + "y",
    "<answer>[" + " " * 60_000 + "</answer>",
    "<location>" * 20_000,
    "<answer>" * 20_000,
    "<location>" + "[1, 2" * 20_000 + "</location>",
    "<location>[" + " " * 60_000 + "</location>",
    "answer" + " " * 60_000,
    "<location>" + "((" * 30_000 + "</location>",
    "<|" * 40_000,
]


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:12].strip())
def test_long_texts_are_read_in_linear_time(text: str) -> None:
    question = next(item for item in questions() if item.task == "pixel")
    assert parse(text).well_formed is False
    for scoring in SCORINGS:
        assert grade_text(text, question.truth, FRAMES[0], scoring).valid is False
    assert read_choice(text, ["Yes", "No"]) is None


def test_geometry_of_boxes() -> None:
    assert centerness((5, 5), (0, 0, 10, 10)) == 1.0
    assert centerness((2, 5), (0, 0, 10, 10)) == pytest.approx(math.sqrt(2 / 8))
    assert centerness((0, 5), (0, 0, 10, 10)) == centerness((11, 5), (0, 0, 10, 10)) == 0.0
    assert giou((0, 0, 1, 1), (0, 0, 1, 1)) == 1.0
    assert giou((0, 0, 1, 1), (9, 9, 10, 10)) < -0.9


def test_smart_resize_is_that_of_transformers() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as stock

    rng = random.Random(0)
    for _ in range(500):
        width, height = rng.randint(28, 2000), rng.randint(28, 2000)
        low, high = rng.choice([(784, 25088), (3136, 1_003_520), (3136, 12_845_056)])
        assert smart_resize((width, height), 28, low, high) == stock(height, width, 28, low, high)[::-1]


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("The White Car.", "white car"),
        ("**north - east**", "north - east"),
        ("“Yes”", "yes"),
        ("Almost the same in terms of front back position", "almost the same in terms of front back position"),
        ("Almost the same in terms of front-back position", "almost the same in terms of front back position"),
        ("Between 1 Meter and 4 meters", "between 1 meters and 4 meters"),
        ("South West", "southwest"),
        ("the", "the"),
    ],
)
def test_normal_form(answer: str, form: str) -> None:
    assert normalise(answer) == form


@pytest.mark.parametrize(
    ("text", "boxes", "reasons"),
    [
        ("car: [1, 2, 30, 40], the Car: [5, 6, 70, 80]", ["car", "the Car"], ["duplicate_object"]),
        ("[1, 2, 30, 40], [5, 6, 70, 80]", ["", ""], []),
        ('{"bbox_2d": [1, 2, 3, 4], "label": "a"}\n{"bbox_2d": [5, 6, 7, 8], "label": "b"}', ["a", "b"], []),
        ("red, white car: (1, 2), (30, 40)", ["red, white car"], []),
        ("<|object_ref_start|>car<|object_ref_end|><|box_start|>(1,2),(30,40)<|box_end|>", ["car"], []),
        ("car: [[1, 2], [30, 40]]", ["car"], []),
        ("car: [5, 6, 5, 9]", ["car"], ["box_degenerate"]),
        ("car: [1, 2, 3]", [], []),
        ("[1, 2, 30, 40] white car, [5, 6, 70, 80] red bus", ["white car", "red bus"], []),
        (
            "[{'bbox_2d': [1, 2, 3, 4], 'label': 'white car'}, {'bbox_2d': [5, 6, 7, 8], 'label': 'red bus'}]",
            ["white car", "red bus"],
            [],
        ),
        (
            '[{"label": "driver\'s car", "bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [5, 6, 7, 8], "label": "red bus"},]',
            ["driver's car", "red bus"],
            [],
        ),
        ('{"objects": [{"bbox_2d": [1, 2, 3, 4], "label": "a"}]}', ["a"], []),
        (
            '{"white car": {"bbox_2d": [1, 2, 3, 4]}, "red bus": {"bbox_2d": [5, 6, 7, 8]}}',
            ["white car", "red bus"],
            [],
        ),
        ('[{"bbox_2d": [1, 2, 3, 4], "label": "a"}, {"bbox_2d": [5, 6, 7, 8], "lab', ["a", ""], []),
        ('[{"bbox_2d": [1, 2, 3, 4], "label": "a"}] red bus: [5, 6, 7, 8]', ["a", "red bus"], []),
        ("white car: [1, 2, 3, 4]. red bus: [5, 6, 7, 8].", ["white car", "red bus"], []),
        ("white car: [1, 2, 3, 4] and the red bus: [5, 6, 7, 8]", ["white car", "the red bus"], []),
        ("1. white car: [1, 2, 3, 4]\n2. red bus: [5, 6, 7, 8]", ["white car", "red bus"], []),
        ("• white car: [1, 2, 3, 4]\n| red bus | [5, 6, 7, 8] |", ["white car", "red bus"], []),
        ("The white car is at [1, 2, 3, 4], red bus ([5, 6, 7, 8])", ["The white car", "red bus"], []),
        ("**white car**: (1,2) (30,40)\n`red bus`: (1,2) to (30,40)", ["white car", "red bus"], []),
        ("car: [\N{MINUS SIGN}5, 2, 30, 40,]", ["car"], []),
    ],
)
def test_boxes_are_read_in_every_form(text: str, boxes: list[str], reasons: list[str]) -> None:
    found, why = read_boxes(text)
    assert ([item.name for item in found], why) == (boxes, reasons)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>maybe <answer>A</answer> but then", None),
        ("<answer>B</answer><think>no <answer>A</answer>", "B"),
        ("<think>t</think><answer>A</answer></answer>", "A"),
        ("<think>a</think><answer>A</answer><think>b</think>", None),
        ("<answer>A <answer>B</answer>", "B"),
    ],
)
def test_an_answer_inside_the_trace_never_counts(text: str, answer: str | None) -> None:
    assert last_answer(text) == answer


@pytest.mark.parametrize(
    "answer", ["[800, 450)", "(800, 450]", "800, 450", "[800 450]", "[800, 450, 1]", "[[800, 450]]"]
)
def test_what_is_no_point(answer: str) -> None:
    assert read_point(answer) is None


def test_same_answer_allows_one_per_cent_for_points() -> None:
    assert same_answer("[100, 50]", "[101, 50]", (224, 112))
    assert not same_answer("[100, 50]", "[104, 50]", (224, 112))
    assert not same_answer("", "")


@pytest.mark.parametrize(
    ("task", "scores", "expected"),
    [("yaw", [1, 1], 1.0), ("yaw", [1, 0], 0.0), ("yaw", [1], 0.0), ("pixel", [0.4], 0.4), ("depth", [], 0.0)],
)
def test_a_pair_counts_only_when_both_are_right(task: str, scores: list[float], expected: float) -> None:
    assert unit_score(task, scores) == expected


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B. Lane 0", "B"),
        ("(B) lane 0.", "B"),
        ("B. Lane 1", None),
        ("Answer: B\n\nOption A: no", "B"),
        ("I choose option A", "A"),
        ("\\boxed{B}", "B"),
        ("lane 1", "A"),
        ("The answer is a red car", None),
        ("Answer: C", None),
    ],
)
def test_choices(text: str, letter: str | None) -> None:
    assert read_choice(text, ["Lane 1", "Lane 0"]) == letter
