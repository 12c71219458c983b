"""The metric: paired scores over all units, rates, intervals clustered by image, and floors."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest
from small_questions import make_questions, perfect_output

from data_gen.floors import best_point, expected_centerness, task_floors, units_of
from data_gen.records import Question, RecordError
from eval.engines import RandomEngine, Request, mean_tokens
from eval.intervals import bootstrap_intervals, exact_bound
from eval.metrics import (
    Figures,
    assess,
    floors_of,
    mean_unit_scores,
    paired_differences,
    random_scores,
    sum_by_image,
    summarise,
)
from rewards.boxes import CoordinateFrame, centerness
from rewards.grading import MIRRORED_TASKS, TASKS

FRAME = CoordinateFrame("original")
QUESTIONS = make_questions(24)
FLOORS = floors_of(QUESTIONS)


def figures(outputs: dict[str, str], scoring: str = "strict", style: str = "located") -> Figures:
    outcomes = [assess(question, outputs.get(question.id, ""), 7, FRAME, style) for question in QUESTIONS]
    return summarise(outcomes, scoring, FLOORS)


def perfect() -> dict[str, str]:
    return {question.id: perfect_output(question) for question in QUESTIONS}


@pytest.mark.parametrize("scoring", ["strict", "official"])
def test_perfect_outputs_score_one_on_every_task(scoring: str) -> None:
    result = figures(perfect(), scoring)
    assert list(result.tasks) == list(TASKS)
    assert all(item.score == pytest.approx(1) and item.valid_rate == 1 for item in result.tasks.values())
    assert (result.score, result.well_formed, result.loc) == (pytest.approx(1), 1, 1)


def near_miss(question: Question) -> str:
    """Valid, plausible and wrong: another option, or a point just outside the box."""
    if question.task == "pixel":
        box = question.objects[0].bbox
        return f"<answer>[{box[0] - 1}, {(box[1] + box[3]) / 2}]</answer>"
    return f"<answer>{next(option for option in question.options if option != question.answer)}</answer>"


def test_near_misses_are_valid_and_score_nothing() -> None:
    result = figures({question.id: near_miss(question) for question in QUESTIONS})
    assert result.score == 0
    for task, item in result.tasks.items():
        assert (item.score, item.valid_accuracy, item.reasons["wrong"]) == (
            0,
            0,
            item.units * (1 + (task in MIRRORED_TASKS)),
        )


def test_one_wrong_question_costs_a_mirrored_pair_all() -> None:
    outputs = perfect()
    outputs |= {q.id: near_miss(q) for q in QUESTIONS if q.task in MIRRORED_TASKS and q.variant == 1}
    result = figures(outputs)
    for task in MIRRORED_TASKS:
        assert (result.tasks[task].score, result.tasks[task].single_question) == (0, 0.5)
    assert result.tasks["depth"].score == 1


def test_unanswered_units_stay_in_the_denominator() -> None:
    outputs = {question.id: text for question, text in zip(QUESTIONS, perfect().values(), strict=True)}
    silenced = [q for q in QUESTIONS if q.task == "depth"][::2]
    result = figures({name: text for name, text in outputs.items() if name not in {q.id for q in silenced}})
    depth = result.tasks["depth"]
    assert depth.score == depth.valid_rate == 1 - len(silenced) / depth.units
    assert (depth.valid_accuracy, depth.reasons["no_answer"]) == (1, len(silenced))


@pytest.mark.parametrize(("style", "formed"), [("located", 0), ("reasoning", 1), ("direct", 0)])
def test_well_formed_is_that_of_the_style_and_boxes_count_where_they_are_due(style: str, formed: int) -> None:
    result = figures({q.id: "<think>t</think><answer>x</answer>" for q in QUESTIONS}, style=style)
    assert result.well_formed == formed
    assert (result.loc is None) == (style != "located")


def test_a_pair_without_its_second_question_is_refused() -> None:
    with pytest.raises(RecordError, match=r"distance-1-0-1 needs the question variants \[0, 1\]"):
        units_of([question for question in QUESTIONS if question.id != "distance-1-0-1-1"])


def test_a_task_without_questions_is_left_out_of_the_mean() -> None:
    outcomes = [assess(q, perfect_output(q), 1, FRAME, "located") for q in QUESTIONS if q.task in ("yaw", "depth")]
    result = summarise(outcomes, "strict", FLOORS)
    assert (list(result.tasks), result.score) == (["yaw", "depth"], 1)


def test_intervals_follow_the_seed_and_widen_when_units_share_images() -> None:
    rng = np.random.default_rng(0)
    right = rng.integers(0, 2, size=(400, 1)).astype(float)
    alone, overall = bootstrap_intervals(right, np.ones_like(right), seed=1)
    again, _ = bootstrap_intervals(right, np.ones_like(right), seed=1)
    (low, high) = alone[0] or (0.0, 0.0)
    assert alone == again and alone[0] == overall
    assert low < right.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 400), rel=0.15)
    # 40 images with 10 units each, all right or all wrong: the effective sample is 40, not 400.
    clustered, _ = bootstrap_intervals(10 * right[:40], np.full((40, 1), 10.0), seed=1)
    assert np.ptp(clustered[0] or (0.0, 0.0)) == pytest.approx((high - low) * np.sqrt(10), rel=0.2)


@pytest.mark.parametrize(("score", "expected"), [(0.0, (0.0, 0.2589)), (1.0, (0.7411, 1.0)), (0.5, (0.3706, 0.6294))])
def test_where_all_images_score_alike_the_interval_is_that_of_what_ten_images_can_miss(
    score: float, expected: tuple[float, float]
) -> None:
    per_task, overall = bootstrap_intervals(np.full((10, 2), 2 * score), np.full((10, 2), 2.0), seed=0)
    assert per_task == [pytest.approx(expected, abs=1e-4)] * 2 and overall == pytest.approx(expected, abs=1e-4)
    assert exact_bound(0.0, 925)[1] == pytest.approx(3 / 925, rel=0.01)
    mixed, whole = bootstrap_intervals(np.array([[0.0, 1], [0, 0], [0, 1]]), np.ones((3, 2)), seed=0)
    assert mixed[0] == exact_bound(0.0, 3) and whole is not None and whole[1] == pytest.approx(0.5)


def test_a_difference_is_paired_by_image_and_signed() -> None:
    scores = {question.id: 1.0 for question in QUESTIONS}
    missed = {question.id: 0.0 for question in QUESTIONS if question.task == "yaw" and question.variant == 1}
    right, worse = (mean_unit_scores(units_of(QUESTIONS), [of]) for of in (scores, scores | missed))
    found = paired_differences(QUESTIONS, right, worse)
    assert list(found) == [*TASKS, "score"]
    assert (found["yaw"].difference, found["depth"].difference) == (-1, 0)
    assert found["score"].difference == pytest.approx(-1 / 6)
    assert found["depth"].ci95 == pytest.approx((-0.2209, 0.2209), abs=1e-4), "twelve images can miss a difference"
    assert found == paired_differences(QUESTIONS, right, worse)
    back = paired_differences(QUESTIONS, worse, right)
    assert {name: -item.difference for name, item in back.items()} == {n: i.difference for n, i in found.items()}


def test_pairing_takes_out_what_images_have_in_common() -> None:
    """Two runs whose images are hard for both: the paired interval is far narrower than their own intervals."""
    rng = random.Random(0)
    questions = [question for question in make_questions(400) if question.task == "depth"]
    first = {question.unit: float(rng.random() < 0.5) for question in questions}
    second = {name: 1.0 if rng.random() < 0.05 else score for name, score in first.items()}
    (low, high) = paired_differences(questions, first, second)["depth"].ci95 or (0.0, 0.0)
    sums = sum_by_image(units_of(questions), first)
    ((alone_low, alone_high),) = (item or (0.0, 0.0) for item in bootstrap_intervals(sums.sums, sums.counts, 0)[0])
    assert 0 < low < high and high - low < 0.4 * (alone_high - alone_low)


def test_a_unit_without_a_score_is_no_wrong_one() -> None:
    right = dict.fromkeys(units_of(QUESTIONS), 1.0)
    with pytest.raises(KeyError, match=QUESTIONS[0].unit):
        paired_differences(QUESTIONS, {question.id: 1.0 for question in QUESTIONS}, right)
    assert paired_differences(QUESTIONS, dict.fromkeys(right, 0.0), right)["score"].difference == 1


def test_a_pair_counts_in_the_samples_in_which_both_of_its_questions_are_right() -> None:
    unit = units_of([question for question in QUESTIONS if question.task == "yaw"])
    name, (first, second) = next(iter(unit.items()))
    table = {first.id: (1, 0, 1, 1), second.id: (0, 1, 1, 0)}  # each question right in most samples, both in one
    samples = [{question: float(row[sample]) for question, row in table.items()} for sample in range(4)]
    assert mean_unit_scores({name: unit[name]}, samples) == {name: 0.25}
    assert mean_unit_scores({name: unit[name]}, samples[:2]) == {name: 0}
    crossed = [{first.id: a[first.id], second.id: b[second.id]} for a, b in pairwise(samples)]
    assert mean_unit_scores({name: unit[name]}, crossed) == {name: pytest.approx(1 / 3)}


@pytest.mark.parametrize(("counts", "mean"), [([], None), ([0, 0], None), ([0, 6, 0, 2], 4), ([5], 5)])
def test_unknown_token_counts_are_left_out_of_the_mean(counts: list[int], mean: float | None) -> None:
    assert mean_tokens(counts) == mean


def test_an_interval_needs_two_images() -> None:
    per_task, overall = bootstrap_intervals(np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 1], [0, 1]]), seed=0)
    assert per_task[0] is None and per_task[1] is not None and overall is None


def test_the_random_engine_scores_its_closed_form() -> None:
    requests = [Request(q.id, "", (), (), q.options, q.image_size) for q in QUESTIONS]
    runs = [figures({r.id: r.output for r in RandomEngine(seed).replies(requests)}) for seed in range(60)]
    for task in TASKS:
        scores = [run.tasks[task].score for run in runs]
        error = np.std(scores) / np.sqrt(len(scores))
        assert abs(fmean(scores) - runs[0].tasks[task].floors["independent"]) < 4 * error, task
        assert all(run.tasks[task].valid_rate == 1 for run in runs)


@pytest.mark.parametrize("box", [(10, 20, 60, 50), (0, 0, 160, 96), (-20, 40, 30, 120), (100, 10, 100, 40)])
def test_expected_centerness_equals_a_fine_grid(box: tuple[float, float, float, float]) -> None:
    grid = [(x / 2 + 0.25, y / 2 + 0.25) for x in range(320) for y in range(192)]
    expected = fmean(centerness(point, box) for point in grid)
    assert expected_centerness(box, (160, 96)) == pytest.approx(expected, abs=2e-4)


def test_the_best_point_beats_others_by_the_graders_own_centerness() -> None:
    boxes = [((10, 10, 60, 40), (160, 96)), ((20, 15, 70, 60), (160, 96)), ((200, 20, 300, 150), (320, 192))]

    def mean_at(x: float, y: float) -> float:
        return fmean(centerness((x * size[0], y * size[1]), box) for box, size in boxes)

    (x, y), value = best_point(boxes)
    assert value == pytest.approx(mean_at(x, y))
    rng = random.Random(0)
    assert value >= max(mean_at(rng.random(), rng.random()) for _ in range(2000)) - 0.01


def unit(task: str, truths: tuple[str, ...], options: tuple[str, ...]) -> list[Question]:
    template = next(question for question in QUESTIONS if question.task == task)
    return [replace(template, variant=i, options=options, answer=truth) for i, truth in enumerate(truths)]


def test_floors_of_pairs() -> None:
    names = ("The red car", "The blue car", "Almost the same")
    units = [unit("distance", names[:2], names)] * 5 + [unit("distance", (names[2],) * 2, names)] * 5
    floors = task_floors("distance", [*units, unit("distance", (names[1], names[0]), names)])
    assert floors["independent"] == pytest.approx(1 / 9)
    assert floors["self_consistent"] == floors["honest"] == pytest.approx((1 - 5 / 11) / 2)
    assert floors["constant_position"] == floors["constant_text"] == pytest.approx(5 / 11)


def test_floors_of_yaw_and_depth() -> None:
    directions = ("North", "East", "South", "West")
    yaw = task_floors("yaw", [unit("yaw", ("East", "West"), directions)] * 3)
    assert (yaw["independent"], yaw["self_consistent"]) == (pytest.approx(1 / 16), 0.25)
    ranges = ("Between 1 meter and 4 meters", "Between 5 meters and 12 meters", "Between 13 meters and 17 meters")
    depth = task_floors("depth", [unit("depth", (ranges[1],), ranges), unit("depth", (ranges[0],), ranges)])
    assert (depth["widest_option"], depth["honest"]) == (0.5, pytest.approx(1 / 3))
    assert depth["best_rank"] == 0.5
    shuffled = unit("depth", (ranges[1],), (ranges[2], ranges[1], ranges[0]))
    assert task_floors("depth", [shuffled, unit("depth", (ranges[1],), ranges)])["best_rank"] == 1


def test_the_seeded_random_run_is_the_score_of_the_random_engine() -> None:
    requests = [Request(q.id, "", (), (), q.options, q.image_size) for q in QUESTIONS]
    run = figures({reply.id: reply.output for reply in RandomEngine(3).replies(requests)})
    floors = {task: item["random_run"] for task, item in floors_of(QUESTIONS, seed=3).items()}
    assert floors == {task: item.score for task, item in run.tasks.items()} and any(floors.values())
    assert random_scores(QUESTIONS, 3) != random_scores(QUESTIONS, 4)
