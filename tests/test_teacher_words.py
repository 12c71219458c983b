"""What teachers are told and what is read from their words, apart from any server."""

from __future__ import annotations

from typing import Any

import pytest
from sample_questions import CENTRE, CLOSER
from sample_questions import questions as sample_questions
from teacher_stub import shown_answer

from data_gen.teaching import prompts
from data_gen.teaching.coordinates import answer_as_stored, as_stored, box_as_shown
from data_gen.teaching.reason import sampled_questions
from data_gen.teaching.records import DROP_REASONS, Reasoned
from data_gen.teaching.rules import numbered_list
from data_gen.teaching.turns import is_final


def test_what_a_teacher_repeats_of_the_truth_is_stored_as_the_very_pixels() -> None:
    """At 1600x900 a step of a teacher is 1.6 pixels wide."""
    for question in sample_questions(40):
        for item in question.objects:
            shown = box_as_shown(item.bbox, question.image_size)
            assert as_stored(shown, question) == f"[[{', '.join(str(round(value)) for value in item.bbox)}]]"
        answer = shown_answer(question)
        assert answer_as_stored(answer, question) == question.answer_text
        if question.task == "pixel":
            assert answer_as_stored(f"[{answer}]", question) == question.answer_text
            assert as_stored(f"It is at [{answer}].", question) == f"It is at [{question.answer_text}]."


@pytest.mark.parametrize(
    ("answer", "stored"), [("[500, 500]", "[800, 450]"), ("nowhere", "nowhere"), ("[1, 2, 3]", "[1, 2, 3]"), ("", "")]
)
def test_other_points_are_converted_and_what_is_none_stays(answer: str, stored: str) -> None:
    assert answer_as_stored(answer, CENTRE) == stored


def test_the_seed_draws_whole_units() -> None:
    asked = sample_questions(60)
    first, again, other = (sampled_questions(asked, 3, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert {task: len(units) for task, units in _units(first).items()} == dict.fromkeys(prompts.MEANINGS, 3)
    assert all(len([q for q in first if q.unit == u]) == len([q for q in asked if q.unit == u]) for u in
               {question.unit for question in first})  # fmt: skip


def _units(questions: list[Any]) -> dict[str, set[str]]:
    units: dict[str, set[str]] = {}
    for question in questions:
        units.setdefault(question.task, set()).add(question.unit)
    return units


@pytest.mark.parametrize(
    ("reply", "rules"),
    [
        ("1. Look.\n2) Compare.", ["1. Look.", "2. Compare."]),
        (
            "Here you are:\n\n**1.** **Look** down.\n\n**2.** Compare.\n\nGood luck!",
            ["1. **Look** down.", "2. Compare."],
        ),
        ("3. Look\n   down.\n7. Compare.", ["1. Look down.", "2. Compare."]),
        ("1. \n2. Compare.", ["1. Compare."]),
        ("- Look.\n- Compare.", []),
        ("", []),
    ],
)
def test_a_numbered_list_is_read_from_a_reply(reply: str, rules: list[str]) -> None:
    assert numbered_list(reply) == rules


def test_every_reason_that_goes_back_is_put_in_words() -> None:
    sent_back = {code for code in DROP_REASONS if not is_final((code,), "pixel", blind=False)}
    assert sent_back - {"surplus"} == set(prompts.PROBLEMS)


@pytest.mark.parametrize(
    ("task", "verdict", "blind", "final"),
    [
        ("yaw", ("wrong_answer",), True, True),
        ("yaw", ("wrong_answer",), False, False),
        ("yaw", ("contradicts_answer",), True, False),
        ("pixel", ("contradicts_answer",), True, True),
        ("pixel", ("contradicts_answer",), False, False),
        ("pixel", ("coordinates_outside", "too_long"), True, False),
        ("yaw", ("refused",), False, True),
        ("yaw", ("empty_reply",), True, False),
    ],
)
def test_a_blind_writer_is_never_told_what_is_right(
    task: str, verdict: tuple[str, ...], blind: bool, final: bool
) -> None:
    assert is_final(verdict, task, blind) == final


@pytest.mark.parametrize("blind", [False, True])
def test_what_a_trace_is_dropped_for_is_said_beforehand(blind: bool) -> None:
    question = next(item for item in sample_questions() if item.task == "front_behind" and item.variant == 1)
    for prompt in (
        prompts.write_prompt(question, "1. Look.", blind, 235),
        prompts.judge_prompt(question, "It is.", blind, 235),
    ):
        assert "named objects only" in prompt and "235 words" in prompt
        assert "farther from the camera is in front, the nearer one behind" in prompt
        assert "<think>" in prompt and "word for word" in prompt


@pytest.mark.parametrize(
    ("right", "answer", "worth"),
    [(True, "x", prompts.RIGHT_EXAMPLE), (False, "x", prompts.WRONG_EXAMPLE), (False, "", prompts.OPEN_EXAMPLE)],
)
def test_an_example_is_told_right_wrong_or_unfinished(right: bool, answer: str, worth: str) -> None:
    reasoned = Reasoned("id", CLOSER.task, "m", "It stands lower.", answer, right)
    told = prompts.rules_prompt([(CLOSER, reasoned)], 1000)
    worths = (prompts.RIGHT_EXAMPLE, prompts.WRONG_EXAMPLE, prompts.OPEN_EXAMPLE)
    assert [one for one in worths if one in told] == [worth]
