"""Worked examples in DriveMLLM's prompts: whose they are, and what they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_drivemllm import SIZE, small_set

from data_gen.drivemllm.prompts import ANSWER_END, ANSWER_START, marked, prompt_text
from data_gen.drivemllm.records import KINDS, DriveMLLMQuestion, read_questions
from data_gen.drivemllm.shots import draw_shots, worked_example
from data_gen.records import RecordError
from rewards.boxes import CoordinateFrame

THOUSAND = CoordinateFrame("thousand")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_set(tmp_path / "data")


def test_examples_are_of_the_same_kind_and_never_about_the_asked_image(data: Path) -> None:
    questions = [question for question in read_questions(data) if KINDS[question.kind].objects == 1]
    drawn = draw_shots(questions, questions, 5, seed=3)
    for question in questions:
        shots = drawn[question.id]
        assert len({shot.image for shot in shots} - {question.image}) == 5
        assert {shot.kind for shot in shots} == {question.kind}
    alone = draw_shots(questions[:1], questions, 5, seed=3)
    assert alone[questions[0].id] == drawn[questions[0].id], "the same whatever else is asked"
    assert draw_shots(questions, questions, 5, seed=4) != drawn
    assert set(map(len, draw_shots(questions, questions, 0, seed=3).values())) == {0}


def test_too_few_other_images_are_refused(data: Path) -> None:
    questions = [question for question in read_questions(data) if question.kind == "dx"]
    assert draw_shots(questions[:1], questions, 3, seed=0)
    with pytest.raises(RecordError, match=r"4 examples for a question of kind dx .* the file has 3; use --shots 0"):
        draw_shots(questions[:1], questions, 4, seed=0)


def test_examples_show_the_form_and_the_frame_of_the_run(data: Path) -> None:
    by_kind: dict[str, DriveMLLMQuestion] = {question.kind: question for question in read_questions(data)}
    for kind, question in by_kind.items():
        shown, answer = worked_example(question, THOUSAND)
        assert shown == question.question
        if kind == "xy":
            assert isinstance(question.answer, tuple)
            assert answer == f"[{round(question.answer[0] / 0.32)}, {round(question.answer[1] / 0.18)}]"
        elif isinstance(question.answer, float):
            assert float(answer) == pytest.approx(question.answer, abs=0.051)
        text = prompt_text(kind, question.question, THOUSAND, SIZE, [(shown, answer)] * 5)
        assert text.count(ANSWER_START) == text.count(ANSWER_END) == 6
        assert text.count(marked(answer)) == 5
        assert text.endswith(prompt_text(kind, question.question, THOUSAND, SIZE))
