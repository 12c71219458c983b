"""The oracle's traces follow the truth, in many words and three endings, and say no more than the picture shows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sample_questions import KINDS, projected, questions
from shared import need

from data_gen.compass import DIRECTIONS, opposite
from data_gen.oracle import ENDINGS, ending_of, oracle_trace
from data_gen.oracle_cues import head_noun, seen_sector
from data_gen.oracle_wording import SIDES_SEEN, WORDINGS, all_sentences
from data_gen.questions import own_units, questions_of
from data_gen.records import Question, QuestionObject
from data_gen.scene_records import SceneImage, read_scenes
from data_gen.trace_checks import MAX_WORDS, ends_with_answer, trace_problems
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS
from rewards.response import parse
from training.data import target_response

ORIGINAL = CoordinateFrame("original")


# What is compared of an object.
NUMBER_OF: dict[str, Callable[[QuestionObject, Question], float]] = {
    "distance": lambda item, _: math.hypot(*item.xyz_m),
    "front_behind": lambda item, _: item.xyz_m[2],
    "left_right": lambda item, question: item.pixel[0] / question.width * 100,
}


def numbers_of(question: Question) -> list[int]:
    return [round(NUMBER_OF[question.task](item, question)) for item in question.objects]


def centres_are_inside(scene: SceneImage) -> bool:
    boxes = [(item.pixel_xy, item.box_xyxy_px) for item in scene.objects]
    return all(x1 <= x <= x2 and y1 <= y <= y2 for (x, y), (x1, y1, x2, y2) in boxes)


def parity_questions() -> list[Question]:
    """Questions of the invented metadata, without the few images whose centres it moved out of their boxes."""
    usable = filter(centres_are_inside, read_scenes(need("parity/metadata.jsonl")))
    return [question for unit in own_units(list(usable)) for question in questions_of(unit)]


@pytest.mark.parametrize("build", [questions, parity_questions])
def test_every_trace_of_the_oracle_passes_every_check(build: Any) -> None:
    for question in build():
        trace = oracle_trace(question)
        assert trace_problems(question, trace.reasoning) == (), trace.reasoning
        assert parse(target_response(trace, ORIGINAL)).well_formed


def test_all_tasks_end_in_all_styles_in_about_equal_shares() -> None:
    counts = Counter((q.task, ending_of(q.id)) for q in questions(600))
    assert counts.keys() == {(task, ending) for task in TASKS for ending in ENDINGS}
    for task in TASKS:
        share = [counts[task, ending] / sum(counts[task, e] for e in ENDINGS) for ending in ENDINGS]
        assert all(0.22 < value < 0.45 for value in share), (task, share)


def test_only_the_literal_ending_gives_the_answer_away() -> None:
    for question in questions():
        reasoning = oracle_trace(question).reasoning
        literal = ending_of(question.id) == "literal"
        assert ends_with_answer(question, reasoning) == literal, reasoning
        assert ("answer" in reasoning) == literal


def test_words_depend_on_seed_and_id_alone() -> None:
    asked = questions()
    first = {q.id: oracle_trace(q, 3).reasoning for q in asked}
    assert first == {q.id: oracle_trace(q, 3).reasoning for q in reversed(asked)}
    others = [oracle_trace(q, 4).reasoning for q in asked]
    assert sum(a != b for a, b in zip(first.values(), others, strict=True)) > len(asked) / 2


def test_every_step_has_four_wordings_in_a_small_vocabulary_that_is_listed() -> None:
    assert all(len(set(wordings)) >= 4 for wordings in WORDINGS.values())
    names = {word for name in KINDS for word in name.split()}
    listed = {word for text in all_sentences() for word in re.findall("[a-z]+", text.lower())}
    used = {w for q in questions() for w in re.findall("[a-z]+", oracle_trace(q).reasoning.lower())}
    assert (
        used - names - {"northeast", "southeast", "northwest", "southwest", "yes", "no", "terms", "position"} <= listed
    )
    assert len(listed) < 180
    assert not any("{" in text for text in all_sentences())


def test_a_trace_says_no_more_than_the_picture_and_the_options() -> None:
    for question in questions():
        reasoning = oracle_trace(question).reasoning
        prose = re.sub(r"\[\[[^\]]*\]\]", "", reasoning)
        known = set(re.findall(r"\d+", " ".join(question.options)))
        if question.task in NUMBER_OF:
            known = {str(number) for number in numbers_of(question)}
        elif question.task == "depth":
            known.add(str(round(question.objects[0].xyz_m[2])))
        assert set(re.findall(r"[\d.]*\d", prose)) <= known, reasoning
        assert len(reasoning.split()) <= MAX_WORDS


def test_comparisons_ask_again_what_the_question_asks() -> None:
    more = {
        "distance": ("closer", "farther"), "left_right": ("more to the left", "more to the right"),
        "front_behind": ("in front", "behind"),
    }  # fmt: skip
    for question in questions():
        if question.task in more:
            asked = [part for part in re.split(r"(?<=[.?]) ", oracle_trace(question).reasoning) if part.endswith("?")]
            assert len(asked) == 1 and more[question.task][question.variant] in asked[0]


@pytest.mark.parametrize("variant", [0, 1])
@pytest.mark.parametrize("sector", range(8))
def test_yaw_says_which_sides_are_seen_and_turns_the_compass(sector: int, variant: int) -> None:
    scene = SceneImage("a.jpg", (projected("white car", 0.0, 12.0, sector * math.pi / 4),))
    (unit,) = [unit for unit in own_units([scene]) if unit.task == "yaw"]
    question = list(questions_of(unit))[variant]
    question = next(q for n in range(99) if ending_of((q := replace(question, id=f"yaw-{n}-0")).id) == "literal")
    reasoning = oracle_trace(question).reasoning
    assert re.search(rf"the {SIDES_SEEN[sector]}( of|\.)", reasoning)
    ways = {0: "away", 2: "right", 4: "towards me", 6: "left"}
    for main_sector in {sector // 2 * 2, (sector + 1) // 2 * 2 % 8}:
        toward = DIRECTIONS[(main_sector + 4 * variant) % 8]
        assert re.search(rf"\b{ways[main_sector]} (is )?{toward}\b", reasoning), reasoning
    heading = DIRECTIONS[sector] if variant == 0 else opposite(DIRECTIONS[sector])
    assert reasoning.endswith(f" {heading}.")


@pytest.mark.parametrize(
    ("x_m", "yaw", "seen"),
    [
        (0.0, 0.0, "back"),
        (-6.0, 0.0, "back and right side"),  # to the left of the camera its inner side shows
        (6.0, 0.0, "back and left side"),
        (6.0, math.pi, "front and right side"),
        (-6.0, math.pi, "front and left side"),
        (0.0, math.pi / 2, "right side"),
    ],
)
def test_the_sides_seen_follow_the_line_of_sight(x_m: float, yaw: float, seen: str) -> None:
    scene = SceneImage("a.jpg", (projected("white car", x_m, 10.0, yaw),))
    question = next(q for unit in own_units([scene]) for q in questions_of(unit) if q.task == "yaw")
    assert SIDES_SEEN[seen_sector(question)] == seen


def nearer_by_words(reasoning: str, names: list[str]) -> str | None:
    """Which of two head nouns a comparison calls nearer."""
    for noun, other in (names, names[::-1]):
        near = rf"the {noun} (?:reaches|stands) lower|the {noun} is lower|that is the {noun}\."
        near += rf"|the {noun} looks larger|way to the {noun} is shorter|the {noun} is (?:closer to|less far)"
        far = rf"the {other} (?:ends nearer|looks smaller|is farther from|is further out)"
        far += rf"|way to the {other} (?:out at the side )?is longer"
        if re.search(near, reasoning, re.IGNORECASE) or re.search(far, reasoning, re.IGNORECASE):
            return noun
    return None


def test_what_stops_at_the_premises_names_the_nearer_object() -> None:
    compared = 0
    for question in questions(400):
        if question.task not in ("distance", "front_behind") or question.answer == question.options[2]:
            continue
        reach = [
            math.hypot(*(o.xyz_m[::2] if question.task == "distance" else (o.xyz_m[2],))) for o in question.objects
        ]
        nouns = [head_noun(item.name) for item in question.objects]
        reasoning = oracle_trace(question).reasoning
        said = nearer_by_words(reasoning, nouns)
        if ending_of(question.id) != "premises":
            assert said is None, reasoning
        elif "Further out" not in reasoning:
            assert said == nouns[reach.index(min(reach))], reasoning
            compared += 1
    assert compared > 60


def test_the_number_that_was_asked_for_is_said_again_with_its_object() -> None:
    """The larger or smaller of two distances, or of two columns, stands behind the question with the right name."""
    found = Counter[str]()
    for question in questions(400):
        if question.task not in NUMBER_OF:
            continue
        numbers, names = numbers_of(question), [item.name for item in question.objects]
        told, _, concluded = oracle_trace(question).reasoning.partition("?")
        assert ", ".join(f"{name} {n} {name}" for name, n in zip(names, numbers, strict=True)) + "." in told
        if question.answer == question.options[2] or ending_of(question.id) == "premises":
            assert not re.search(r"\d", concluded), concluded
            continue
        more = (question.variant == 1) != (question.task == "front_behind")
        wanted = numbers.index(max(numbers) if more else min(numbers))
        if numbers[0] != numbers[1]:
            word = "more" if more else "fewer"
            assert f"{numbers[wanted]} {names[wanted]}." in concluded and word in concluded.lower()
            found[question.task] += 1
    assert min(found.values()) > 60 and len(found) == 3


def test_in_front_means_farther() -> None:
    for question in questions(400):
        if question.task != "front_behind" or question.answer == question.options[2]:
            continue
        near, far = (head_noun(o.name) for o in sorted(question.objects, key=lambda item: item.xyz_m[2]))
        last = re.split(r"(?<=[.?]) ", oracle_trace(question).reasoning)[-1]
        if ending_of(question.id) == "paraphrase":
            assert re.search(rf"the {far} is in front|the {near} is behind", last), last
            rule = oracle_trace(question).reasoning
            assert re.search(r"front (here )?means farther|arther means in front", rule), rule


def test_a_paraphrase_tells_the_right_object_by_its_kind() -> None:
    more = {"distance": ("closer", "farther"), "left_right": ("more to the left", "more to the right")}
    told = 0
    for question in questions(400):
        if question.task not in more or ending_of(question.id) != "paraphrase":
            continue
        last = oracle_trace(question).reasoning.split(". ")[-1]
        chosen = question.options.index(str(question.answer))
        nouns = [head_noun(item.name) for item in question.objects]
        assert more[question.task][1 - question.variant] not in last
        if chosen < 2:
            assert f"the {nouns[chosen]}" in last
            assert nouns[1 - chosen] not in last
            told += 1
    assert told > 100


@pytest.mark.parametrize("kind", ["resized", "thousand"])
def test_a_box_in_a_target_has_the_numbers_of_its_location_in_any_frame(kind: Any) -> None:
    asked = [moved_by_parts_of_a_pixel(question) for question in questions(40) if question.task == "pixel"]
    for trace in map(oracle_trace, asked):
        located, _, rest = target_response(trace, CoordinateFrame(kind, max_pixels=401_408)).partition("</location>")
        box, *points = re.findall(r"\[\[([\d, ]+)\]\]", rest)
        assert f"[{box}]" in located
        assert all(f"<answer>[{point}]</answer>" in rest for point in points)


def moved_by_parts_of_a_pixel(question: Question) -> Question:
    (item,) = question.objects
    x1, y1, x2, y2 = item.bbox
    return replace(question, objects=(replace(item, bbox=(x1 + 0.3, y1 + 0.4, x2 - 0.3, y2 - 0.4)),))
