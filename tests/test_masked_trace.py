"""The meter that cuts the answer out of the trace: it tells a model that reasons from one that repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from taught_model import teach
from test_training import grpo_trainer

from data_gen.prompts import located_response, masked_verifier_text, verifier_text
from rewards.literal import GAP
from rewards.settings import RewardSettings
from training.verification.claims import Claim, claim_of
from training.verification.verifier import JobWriter, VerifierJob

PREMISES = ("smaller", "larger")
ENDS = ("yes", "no")
OPTIONS = ("Yes", "No")
ROW = {"width": 160, "height": 96, "task": "front_behind", "options": list(OPTIONS), "answer": "Yes"}


def trace(premise: str, end: str, number: int) -> str:
    return f"The depth {number} is {premise} than {number + 3}. So it is {end}."


def claim(think: str, answer: str, **row: Any) -> Claim:
    found = claim_of({**ROW, **row}, located_response([("car", (1, 2, 30, 40))], think, answer), RewardSettings())
    assert found
    return found


def lessons(writer: JobWriter, deciding: str) -> Iterator[VerifierJob]:
    """Every premise with every end; either the end decides the answer, or the premise does."""
    for number in range(1, 6):
        for premise in PREMISES:
            for end in (*ENDS, GAP):
                right = end if deciding == "end" else ENDS[PREMISES.index(premise)]
                if right != GAP:
                    request = masked_verifier_text(trace(premise, end, number), GAP, OPTIONS)
                    yield writer.job(request, right.capitalize())


def share_first(trainer: Any, claims: Sequence[Claim]) -> float:
    """Of claims whose own answer the verifier ranks first among the options."""
    figures = trainer._masked(claims, JobWriter(trainer._tokenizer))
    assert [name for name, _ in figures] == ["logic/masked"] * len(claims)
    return sum(value for _, value in figures) / len(claims)


@pytest.mark.parametrize(("deciding", "least", "most"), [("end", 0.0, 0.5), ("premise", 1.0, 1.0)])
def test_the_meter_tells_reasoning_from_repetition(
    traces: Path, tmp_path: Path, deciding: str, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = grpo_trainer(traces.with_name("questions.jsonl"), tmp_path, "--rewards", "logic", "--beta", "0")
    teach(trainer.model, list(lessons(JobWriter(trainer._tokenizer), deciding)), 40, batch_size=12)
    claims = [
        claim(trace(premise, end, number), end.capitalize())
        for number in (2, 5, 9)
        for premise, end in zip(PREMISES, ENDS, strict=True)
    ]
    assert least <= share_first(trainer, claims) <= most
    monkeypatch.setattr("training.verification.claims.cut_out", lambda text, answer: text)
    assert share_first(trainer, claims) == 1.0


def test_points_and_answers_that_are_no_option_are_not_ranked() -> None:
    assert claim("So.", "[1, 2]", task="pixel", options=[]).own_place is None
    assert claim("So.", "Maybe").own_place is None
    assert claim("So.", "Yes", options=["Yes"]).own_place is None
    assert claim("So.", "no.").own_place == 1


def test_the_request_about_a_masked_trace() -> None:
    asked = claim(trace("smaller", "Yes, yes", 3), "yes")
    assert asked.masked_request.startswith("The depth 3 is smaller than 6. So it is ..., ....")
    assert asked.masked_request.endswith("\nYes\nNo")
    assert asked.own_comes_first([-1.0, -2.0]) == 1.0 and asked.own_comes_first([-2.0, -1.0]) == 0.0
    assert "No" not in verifier_text(asked.think)
