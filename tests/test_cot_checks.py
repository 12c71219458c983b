"""Each fault of a reasoning trace has its reason, and its near misses have none."""

from __future__ import annotations

import pytest
from sample_questions import CENTRE, CLOSER, FACING, IN_FRONT

from data_gen.records import Question
from data_gen.trace_checks import TRACE_REASONS, TraceBudget, trace_problems
from rewards.response import map_coordinates
from rewards.trace_text import concluded_option

FAULTY = [
    (CLOSER, "", "empty_trace"),
    (CLOSER, " \n\t", "empty_trace"),
    (CLOSER, "The truck is lower.</think><answer>The red truck</answer>", "tag_in_trace"),
    (CLOSER, "I use <answer> here.", "tag_in_trace"),
    (CLOSER, "The truck is lower.<|im_end|>", "tag_in_trace"),
    (CLOSER, "It is lower. </think> And closer.", "bad_format"),
    (CLOSER, "word " * 81, "too_long"),
    (CLOSER, "The truck at [950, 400] is lower.", "bare_coordinates"),
    (CLOSER, "The truck at (950, 400) is lower.", "bare_coordinates"),
    (CLOSER, "The truck at [[950, 400, 7]] is lower.", "bare_coordinates"),
    (CLOSER, "The truck at [[600, 400]] is lower.", "coordinates_outside"),
    (CLOSER, "The truck at [[900, 300, 1300, 600]] is lower.", "coordinates_outside"),
    (CLOSER, "The truck fits the given answer.", "given_answer"),
    (CLOSER, "As the answer provided says, it is the truck.", "given_answer"),
    (CLOSER, "This matches the correct answer.", "given_answer"),
    (CLOSER, "The ground truth is the truck.", "given_answer"),
    (CLOSER, "Given that the answer is red truck, it is lower.", "given_answer"),
    (CLOSER, "This fits the right answer.", "given_answer"),
    (CLOSER, "As the right answer says, it is the truck.", "given_answer"),
    (CLOSER, "The answer is already known to be the truck.", "given_answer"),
    (CLOSER, "The given bounding box of the truck is lower.", "given_answer"),
    (CLOSER, "The truck at the coordinates provided is lower.", "given_answer"),
    (CLOSER, "According to the rules, what is lower is closer.", "given_answer"),
    (CLOSER, "By rule 2 the truck is closer.", "given_answer"),
    (CLOSER, "The truck is lower. So the answer is white car.", "contradicts_answer"),
    (CLOSER, "The truck is lower, so it must be the white car.", "contradicts_answer"),
    (CLOSER, "Both are level. Therefore it is almost the same.", "contradicts_answer"),
    (CLOSER, "The answer is the white car, not the red truck.", "contradicts_answer"),
    (IN_FRONT, "The truck is nearer. The answer is no.", "contradicts_answer"),
    (FACING, "It points right, which means West.", "contradicts_answer"),
    (CENTRE, "The box is [[100, 300, 300, 500]]. The answer is [[290, 490]].", "contradicts_answer"),
    (CENTRE, "The car is at [[200, 400]]. So its centre is near [[290, 490]].", "contradicts_answer"),
]
CLEAN = [
    (CLOSER, "The truck is lower. So the answer is red truck."),
    (CLOSER, "The white car is smaller, so the red truck is closer than the white car."),
    (CLOSER, "The red truck is lower than the white car."),
    (CLOSER, "Given its size, the truck is near, so the answer is the red truck."),
    (CLOSER, "The answer is given by the lower edge: the truck is lower."),
    (CLOSER, "The truck is lower, so the right answer is the red truck."),
    (CLOSER, "As a rule, what is lower is closer: the position of the truck is known by its lower edge."),
    (CLOSER, "The box of the truck is given by its edges, and given its box, it is lower."),
    (CLOSER, "The truck at [[950, 400]] (a large one) is lower."),
    (CLOSER, "The truck at [[899.6, 300, 1200, 600.4]] is lower."),
    (CLOSER, "I think the location matters: the truck is lower."),
    (CLOSER, "word " * 50),
    (IN_FRONT, "There is no other car, so no doubt that the truck is nearer."),
    (FACING, "The camera faces North. It points right, so this means East."),
    (CENTRE, "The box is [[100, 300, 300, 500]]. The answer is [[201, 399]]."),
    (CENTRE, "It reaches from [[100, 300]] to [[300, 500]]. So its centre is near [[201, 399]]."),
    (CENTRE, "It begins at [[100, 300]]. It fills the box [[100, 300, 290, 490]]."),
]


@pytest.mark.parametrize(("question", "reasoning", "code"), FAULTY)
def test_a_faulty_trace_has_its_reason(question: Question, reasoning: str, code: str) -> None:
    assert code in trace_problems(question, reasoning)


@pytest.mark.parametrize(("question", "reasoning"), CLEAN)
def test_a_near_miss_of_a_fault_is_clean(question: Question, reasoning: str) -> None:
    assert trace_problems(question, reasoning) == ()


def test_every_reason_is_met() -> None:
    wrong = trace_problems(CLOSER, "The truck is lower.", answer="The white car")
    assert wrong == ("wrong_answer",)
    met = {code for question, reasoning, _ in FAULTY for code in trace_problems(question, reasoning)}
    assert met | set(wrong) == set(TRACE_REASONS)


def test_the_target_of_a_teachers_own_answer_is_graded_strictly() -> None:
    assert trace_problems(CLOSER, "The truck is lower.", answer="red truck") == ()
    assert trace_problems(CLOSER, "The truck is lower.", answer="It is the red truck") == ("wrong_answer",)
    assert "wrong_answer" in trace_problems(CENTRE, "It is there.", answer="[99, 400]")


def test_a_comparison_as_last_word_is_no_conclusion() -> None:
    assert concluded_option("So the white car is closer than the red truck.", CLOSER.options) is None
    assert concluded_option("So the white car is closer.", CLOSER.options) == "white car"


@pytest.mark.parametrize(("max_tokens", "problems"), [(20, ("too_long",)), (200, ()), (None, ())])
def test_the_budget_counts_the_whole_response_in_tokens(max_tokens: int | None, problems: tuple[str, ...]) -> None:
    budget = TraceBudget(max_tokens=max_tokens, count_tokens=lambda text: len(text) // 2)
    assert trace_problems(CLOSER, "The truck is lower.", budget=budget) == problems


@pytest.mark.parametrize("text", ["[[" + "9" * 400 + ", 1]]", "[[1e999, 2]]", "[[-" + "9" * 400 + ", 1, 2, 3]]"])
def test_numbers_beyond_all_bounds_are_left_as_they_are(text: str) -> None:
    assert map_coordinates(text, lambda values: [value * 2 for value in values]) == text
    assert "bare_coordinates" in trace_problems(CLOSER, f"It is at {text}.")
