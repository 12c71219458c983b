"""DriveMLLM's scores: published cells recomputed, both scorings, what is valid, what guessing gets."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from shared import need

from data_gen.drivemllm.prompts import marked
from data_gen.drivemllm.questions import published_questions
from data_gen.drivemllm.records import TASKS, DriveMLLMImage, DriveMLLMQuestion
from data_gen.records import QuestionObject
from eval.drivemllm_grading import Mark, Outcome, assess
from eval.drivemllm_random import PIXELS, constant_outputs, floors_of, guess
from eval.drivemllm_scores import SCORINGS, Figures, summarise
from eval.drivemllm_summary import PUBLISHED_FILE, published_rows
from rewards.boxes import CoordinateFrame

THOUSAND = CoordinateFrame("thousand")
RESIZED = CoordinateFrame("resized", max_pixels=1_003_520)


def thing(name: str, x_px: float, xyz_m: tuple[float, float, float]) -> QuestionObject:
    return QuestionObject(name, (x_px - 50, 400, x_px + 50, 500), (x_px, 450), xyz_m)


def make_questions(images: int = 2) -> list[DriveMLLMQuestion]:
    """Ten questions about each image: a near red car on the left, a far blue bus on the right, moving apart."""
    records = [
        DriveMLLMImage(
            f"{index}.jpg",
            (
                thing("red car", 300 - index, (-4.0 - index, 0.0, 8.0)),
                thing("blue bus", 1200 + index, (6.0, 2.0, 20.0 + index)),
            ),
            1600,
            900,
        )
        for index in range(images)
    ]
    return published_questions(records)


def only(kind: str) -> DriveMLLMQuestion:
    return next(question for question in make_questions(1) if question.kind == kind)


def figures_of(answers: Sequence[tuple[DriveMLLMQuestion, str]], scoring: str) -> Figures:
    return summarise([assess(question, marked(answer), 0, PIXELS) for question, answer in answers], scoring)


def with_marks(marks: dict[str, list[Mark]]) -> list[Outcome]:
    """Outcomes of questions by kind, one image each; an invalid mark stands for an unreadable answer."""
    questions = {question.id: question for question in make_questions(max(map(len, marks.values())))}
    return [
        Outcome(questions[f"{kind}-{index}"], "", 0, "", mark)
        for kind, listed in marks.items()
        for index, mark in enumerate(listed)
    ]


# --- the published tables ---


def test_the_published_cells_recompute_accs_effs_and_score() -> None:
    tables = json.loads(need("tables/drivemllm.json").read_text())
    assert json.loads(PUBLISHED_FILE.read_text()) == tables, "the packaged copy is the table"
    efficiency = {(row["shot"], row["model"]): row for row in tables["efficiency"]}
    names = list(TASKS.values())
    for row in tables["accuracy"]:
        effective = efficiency[row["shot"], row["model"]]
        assert math.fsum(row[name] for name in names) / 8 == pytest.approx(row["AccS"], abs=0.01)
        assert math.fsum(effective[name] for name in names) / 8 == pytest.approx(effective["EffS"], abs=0.01)
        score = math.fsum(row[name] * effective[name] / 100 for name in names) / 8
        assert score == pytest.approx(row["Score"], abs=0.01) and row["Score"] == effective["Score"]
    for row in tables["final_one_shot"]:
        assert math.fsum(row[name] for name in names) / 8 == pytest.approx(row["Score"], abs=0.01)
    shown = {row.model: row for row in published_rows("1-shot")}
    assert len(shown) == len(tables["final_one_shot"]) == 8
    for row in tables["final_one_shot"]:
        for task, name in TASKS.items():
            assert 100 * shown[row["model"]].scores[task] == pytest.approx(row[name], abs=0.011), (row["model"], name)


def test_a_published_left_right_cell_is_reached_from_counts_of_both_kinds() -> None:
    """GPT-4o, zero shots: acc 91.72, eff 91.62, so 350 of 382 valid; no count of right ones pooled gives 91.72."""
    assert all(round(100 * right / 350, 2) != 91.72 for right in range(351))
    marks = {"left": _counts(right=160, valid=174), "right": _counts(right=161, valid=176)}
    task = summarise(with_marks(marks), "official").tasks["left_right"]
    assert (round(100 * task.accuracy, 2), round(100 * task.efficiency, 2)) == (91.72, 91.62)
    assert (task.valid, task.asked) == (350, 382)
    assert task.score == pytest.approx(task.accuracy * task.efficiency)


def _counts(right: int, valid: int, asked: int = 191) -> list[Mark]:
    return [Mark(1.0)] * right + [Mark(0.0)] * (valid - right) + [Mark(valid=False)] * (asked - valid)


# --- both scorings ---


@pytest.mark.parametrize(("scoring", "expected"), [("official", 28.57), ("paper", 58.33)])
@pytest.mark.parametrize("kind", ["dA", "dz", "dAB", "dx"])
def test_errors_of_0_and_100_metres(scoring: str, expected: float, kind: str) -> None:
    first, second = (question for question in make_questions(2) if question.kind == kind)
    assert isinstance(second.answer, float)
    answers = [(first, first.answer_text), (second, str(second.answer + 100))]
    (task,) = figures_of(answers, scoring).tasks.values()
    assert round(100 * task.accuracy, 2) == expected
    assert (task.efficiency, task.valid, task.asked) == (1.0, 2, 2)


def test_positions_fall_with_the_distance_in_pixels() -> None:
    question = only("xy")
    assert isinstance(question.answer, tuple)
    x, y = question.answer
    for scoring in SCORINGS:
        (task,) = figures_of([(question, f"[{x + 30}, {y + 40}]")], scoring).tasks.values()
        assert task.accuracy == pytest.approx(1 / (1 + 0.005 * 50))


@pytest.mark.parametrize("scoring", SCORINGS)
def test_true_answers_score_full_marks_in_every_task(scoring: str) -> None:
    figures = figures_of([(question, question.answer_text) for question in make_questions()], scoring)
    assert list(figures.tasks) == list(TASKS)
    assert all(task.score == 1 for task in figures.tasks.values())
    assert (figures.score, figures.acc_s, figures.eff_s) == (1, 1, 1)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_invalid_answers_cost_efficiency_and_poison_nothing(scoring: str) -> None:
    questions = [question for question in make_questions(4) if question.kind == "dz"]
    answers = ["nan", "inf", *(question.answer_text for question in questions[2:])]
    (task,) = figures_of(list(zip(questions, answers, strict=True)), scoring).tasks.values()
    assert (task.accuracy, task.efficiency, task.score) == (1.0, 0.5, 0.5)
    assert (task.valid, task.asked, task.reasons) == (2, 4, {"not_a_number": 2})
    nothing = figures_of([(question, "far") for question in questions], scoring)
    assert (nothing.score, nothing.acc_s, nothing.eff_s) == (0, 0, 0)


def test_left_and_right_weigh_alike_in_accuracy_and_are_counted_together_in_efficiency() -> None:
    invalid = Mark(valid=False)
    task = summarise(
        with_marks({"left": [Mark(1.0), invalid, invalid, invalid], "right": [Mark(0.0)] * 4}), "official"
    ).tasks["left_right"]
    assert (task.accuracy, task.efficiency) == (0.5, 5 / 8)  # pooled it would be 1 / 5
    assert {kind: (item.accuracy, item.valid, item.asked) for kind, item in task.kinds.items()} == {
        "left": (1.0, 1, 4),
        "right": (0.0, 4, 4),
    }


def test_tasks_without_a_question_are_left_out_of_the_means() -> None:
    question = only("dz")
    figures = figures_of([(question, question.answer_text)], "official")
    assert (list(figures.tasks), figures.score) == (["depth"], 1.0)


def test_intervals_hold_the_score_and_narrow_with_more_images() -> None:
    widths = []
    for images in (8, 64):
        questions = [question for question in make_questions(images) if question.kind == "front"]
        answers = [(question, "Yes" if index % 2 else "No") for index, question in enumerate(questions)]
        figures = figures_of(answers, "official")
        assert figures.ci95 and figures.ci95[0] < figures.score < figures.ci95[1]
        widths.append(figures.ci95[1] - figures.ci95[0])
    assert widths[1] < widths[0]
    assert figures_of([(only("front"), "Yes")], "official").ci95 is None


# --- reading an answer ---

READ: list[tuple[str, str, float | str]] = [
    # (kind, answer between the markers, accuracy or reason)
    ("left", "red car", 1.0),
    ("left", "the red car", 1.0),
    ("left", " red car\n", 1.0),
    ("left", "blue bus", 0.0),
    ("left", "Red car", "no_option"),
    ("left", "red car.", "no_option"),
    ("left", "the the red car", "no_option"),
    ("left", "red car or blue bus", "no_option"),
    ("left", "green van", "no_option"),
    ("dz", "", "no_answer"),
    ("dz", "8 m", "not_a_number"),
    ("dz", "about 8", "not_a_number"),
    ("dz", "8, 20", "not_a_number"),
    ("dz", "[8]", "not_a_number"),
    ("dz", "nan", "not_a_number"),
    ("dz", "NaN", "not_a_number"),
    ("dz", "inf", "not_a_number"),
    ("dz", "-Infinity", "not_a_number"),
    ("dz", "1e999", "not_a_number"),
    ("dz", "1" * 400, "not_a_number"),
    ("dz", "-8", "not_a_number"),
    ("dz", "0x8", "not_a_number"),
    ("dz", "1_0", "not_a_number"),
    ("dz", "8" + " " * 100_000 + "m", "not_a_number"),
    ("xy", "300, 450", "not_a_number"),
    ("xy", "[300]", "not_a_number"),
    ("xy", "[300, 450, 1]", "not_a_number"),
    ("xy", "[250, 400, 350, 500]", "not_a_number"),
    ("xy", "[nan, 450]", "not_a_number"),
    ("xy", "[1e999, 450]", "not_a_number"),
    ("xy", "[" + "9" * 400 + ", 450]", "not_a_number"),
    ("xy", "[x, y]", "not_a_number"),
    ("xy", "[" + "1," * 50_000 + "1]", "not_a_number"),
    ("xy", "[1600, 450]", "out_of_image"),
    ("xy", "[300, 899.5]", "out_of_image"),
    ("xy", "[-1, 450]", "out_of_image"),
    ("box", "[250, 400]", "not_a_number"),
    ("box", "[250, 400, 350, 500, 1]", "not_a_number"),
    ("box", "[250, 400, 350, 900]", "out_of_image"),
    ("box", "[350, 500, 250, 400]", 0.0),
]


@pytest.mark.parametrize(("kind", "said", "expected"), READ, ids=[f"{k} {s[:24]!r}" for k, s, _ in READ])
def test_what_is_read(kind: str, said: str, expected: float | str) -> None:
    mark = assess(only(kind), f"Sure: {marked(said)} and so on", 0, PIXELS).mark
    if isinstance(expected, str):
        assert (mark.valid, mark.reason, mark.accuracy, mark.error) == (False, expected, 0.0, None)
    else:
        assert (mark.valid, mark.accuracy) == (True, expected)


@pytest.mark.parametrize("said", ["{}", " {} ", "+{}", "{}e0", "{}.0"])
def test_numbers_in_other_spellings_are_the_same_number(said: str) -> None:
    question = only("dz")
    number = str(int(float(str(question.answer))))
    assert assess(question, marked(said.format(number)), 0, PIXELS).mark == Mark(1.0, 0.0)


@pytest.mark.parametrize("said", ["Yes", "No"])
def test_yes_and_no_are_read_exactly(said: str) -> None:
    question = only("front")
    assert assess(question, marked(said), 0, PIXELS).mark.accuracy == float(said == question.answer)
    for near in (said.lower(), f"{said}.", f"{said}, it is", "Maybe"):
        assert assess(question, marked(near), 0, PIXELS).mark.reason == "no_option"


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("no markers, 8", None),
        ("<OUTPUT FORMAT START>8", None),
        ("8<OUTPUT FORMAT END>", None),
        ("<OUTPUT FORMAT END>8<OUTPUT FORMAT START>", None),
        ("<OUTPUT FORMAT START>8<OUTPUT FORMAT END> <OUTPUT FORMAT START>9<OUTPUT FORMAT END>", "8"),
        ("<OUTPUT FORMAT START>\n8\n<OUTPUT FORMAT END>", "8"),
        ("<OUTPUT FORMAT START>" * 50_000, None),
        ("<output format start>8<output format end>", None),
        ("", None),
    ],
)
def test_the_first_pair_of_markers_holds_the_answer(output: str, answer: str | None) -> None:
    outcome = assess(only("dz"), output, 0, PIXELS)
    assert outcome.answer == answer
    assert outcome.mark.valid == (answer is not None)


def test_near_misses_score_less_than_the_truth() -> None:
    for question in make_questions(1):
        if isinstance(question.answer, tuple):
            near = str([value + 1 for value in question.answer[:1]] + list(question.answer[1:]))
        elif isinstance(question.answer, float):
            near = str(question.answer + 0.1)
        else:
            near = next(option for option in question.options if option != question.answer)
        mark = assess(question, marked(near), 0, PIXELS).mark
        assert mark.valid and mark.accuracy < 1, question.id


@pytest.mark.parametrize("frame", [THOUSAND, RESIZED, PIXELS], ids=lambda frame: frame.kind)
def test_coordinates_are_read_in_the_frame_of_the_run(frame: CoordinateFrame) -> None:
    for kind in ("xy", "box"):
        question = only(kind)
        assert isinstance(question.answer, tuple)
        said = [round(value) for value in frame.to_model(question.answer, question.image_size)]
        mark = assess(question, marked(str(said)), 0, frame).mark
        assert mark.accuracy > 0.95 and len(mark.values) == len(said)
        assert mark.values == pytest.approx(question.answer, abs=1)
    metres = only("dz")
    assert assess(metres, marked(metres.answer_text), 0, frame).mark.accuracy == 1


def test_the_far_edge_of_a_frame_without_pixels_is_the_last_pixel() -> None:
    question = only("xy")
    assert assess(question, marked("[1000, 1000]"), 0, THOUSAND).mark.values == (1599, 899)
    assert assess(question, marked("[1001, 1000]"), 0, THOUSAND).mark.reason == "out_of_image"


# --- guessing ---


def test_the_guesser_is_always_valid_and_depends_on_the_seed_alone() -> None:
    questions = make_questions(8)
    for frame in (PIXELS, THOUSAND):
        assert all(assess(q, guess(q, frame, 3), 0, frame).mark.valid for q in questions)
    first = [guess(question, PIXELS, 0) for question in questions]
    assert first == [guess(question, PIXELS, 0) for question in questions]
    assert first != [guess(question, PIXELS, 1) for question in questions]


def test_the_best_constants_are_known_in_a_small_case() -> None:
    questions = make_questions(3)
    depths: list[Any] = [q for q in questions if q.kind == "dz"]
    constants = constant_outputs(questions)
    middle = sorted(question.answer for question in depths)[1]
    assert {constants[question.id] for question in depths} == {marked(str(middle))}
    floors = floors_of(questions, "official")
    for task in TASKS:
        assert floors["honest"][task] == max(floors["random"][task], floors["constant"][task])
    error = sum(abs(question.answer - middle) for question in depths) / 3
    assert floors["constant"]["depth"] == pytest.approx(1 / (1 + 0.05 * error))
    assert floors["constant"]["front_behind"] >= 0.5
