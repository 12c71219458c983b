"""The order of the questions: stage by stage, as many rows as the steps take, easy to hard, pairs together."""

from __future__ import annotations

from collections import Counter

import pytest

from training.schedule.order import Asked, Schedule, in_twos, training_order, units_of
from training.schedule.stage_file import Stage

PAIRED = [Asked(f"p{pair}-{side}", f"p{pair}", side) for pair in range(4) for side in (1, 0)]
SINGLE = [Asked(f"s{number}", None, 0) for number in range(5)]
ASKED = [*PAIRED, *SINGLE]


def staged(asked: list[Asked], number: int) -> list[Asked]:
    return [Asked(row.question_id, row.pair_id, row.variant, number) for row in asked]


def twos_of(order: list[int], asked: list[Asked]) -> list[tuple[Asked, Asked]]:
    return [(asked[a], asked[b]) for a, b in zip(order[::2], order[1::2], strict=True)]


def stage(name: str, steps: int = 1, difficulty: tuple[float, float] | None = None) -> Stage:
    return Stage(name, ("acc",), (1.0,), steps, (), difficulty)


def test_units_are_pairs_in_order_of_their_variants_and_single_questions() -> None:
    units = units_of(range(len(ASKED)), ASKED)
    assert [len(unit) for unit in units] == [2] * 4 + [1] * 5
    assert all(ASKED[a].variant == 0 and ASKED[b].variant == 1 for a, b in units[:4])
    assert units_of([0, 8], ASKED) == [(0,), (8,)]


def test_twos_join_single_questions_and_leave_out_what_cannot_be_joined() -> None:
    lone_half = Asked("half-0", "half", 0)
    asked = [lone_half, *SINGLE, *PAIRED]
    twos = in_twos(units_of(range(len(asked)), asked), asked)
    joined = [tuple(asked[place].question_id for place in unit) for unit in twos]
    assert joined[:2] == [("s0", "s1"), ("s2", "s3")] and len(joined) == 6
    assert not {"half-0", "s4"} & {name for unit in joined for name in unit}


@pytest.mark.parametrize("in_twos_of_pairs", [False, True])
def test_from_easy_to_hard_every_question_once_a_pair_by_its_mean(in_twos_of_pairs: bool) -> None:
    rates = {row.question_id: 0.5 for row in SINGLE} | {row.question_id: 0.0 for row in PAIRED}
    rates |= {"p1-0": 1.0, "p1-1": 0.2, "s3": 0.9, "s4": 0.1, "p2-0": 1.0, "p2-1": 1.0}
    schedule = Schedule(7, in_twos=in_twos_of_pairs, easy_first=True)
    order = training_order(ASKED, schedule, rates)
    names = [ASKED[place].question_id for place in order]
    assert len(set(names)) == len(names) == (12 if in_twos_of_pairs else 13)
    assert len(training_order(ASKED, schedule)) == len(order)  # the length is known before the rates are
    if in_twos_of_pairs:
        assert all(a.pair_id == b.pair_id for a, b in twos_of(order, ASKED))
        assert names[:2] == ["p2-0", "p2-1"] and names[-2:] != ["p1-0", "p1-1"]
    else:
        assert names[:5] == ["p2-0", "p2-1", "s3", "p1-0", "p1-1"]
        assert names[8] == "s4" and {name[0] for name in names[9:]} == {"p"}


def test_ties_come_in_an_order_of_the_seed_alone() -> None:
    rates = {row.question_id: 0.5 for row in ASKED}
    orders = [training_order(ASKED, Schedule(seed, easy_first=True), rates) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_a_stage_has_exactly_its_rows_in_reshuffled_passes() -> None:
    asked = staged(ASKED, 0) + staged(SINGLE, 1)
    schedule = Schedule(3, stages=(stage("cut"), stage("again")), rows_per_stage=(4, 12))
    order = training_order(asked, schedule)
    assert len(order) == 16 and order == training_order(asked, schedule)
    assert {asked[place].stage for place in order[:4]} == {0} and len(set(order[:4])) == 4
    again = order[4:]
    assert {asked[place].stage for place in again} == {1}
    assert sorted(again[:5]) == sorted(again[5:10]) and again[:5] != again[5:10]
    assert max(Counter(again).values()) == 3 and min(Counter(again).values()) == 2


def test_pairs_stand_at_even_places_of_every_stage_however_often_it_goes_round() -> None:
    asked = staged(ASKED, 0) + staged(PAIRED, 1)
    schedule = Schedule(5, True, False, (stage("a"), stage("b")), (6, 22))
    for easy_first in (False, True):
        told = Schedule(schedule.seed, True, easy_first, schedule.stages, schedule.rows_per_stage)
        rates = {row.question_id: place / 20 for place, row in enumerate(ASKED)}
        order = training_order(asked, told, rates)
        assert len(order) == 28
        for a, b in twos_of(order, asked):
            assert a.pair_id == b.pair_id and a.stage == b.stage
            assert a.pair_id is None or (a.variant, b.variant) == (0, 1)


def test_difficulty_keeps_what_lies_within_its_bounds_a_pair_by_its_mean() -> None:
    rates = {row.question_id: 0.0 for row in ASKED} | {"p0-0": 1.0, "s1": 0.5, "s2": 0.75, "s3": 1.0}
    schedule = Schedule(0, stages=(stage("half", 1, (0.5, 0.75)),), rows_per_stage=(8,), source="stages.yaml")
    names = {ASKED[place].question_id for place in training_order(ASKED, schedule, rates)}
    assert names == {"p0-0", "p0-1", "s1", "s2"}
    assert len(training_order(ASKED, schedule)) == 8
    with pytest.raises(ValueError, match=r"stages.yaml, stage 1 \(half\): there are no questions with a pass rate in"):
        training_order(ASKED, schedule, {row.question_id: 0.0 for row in ASKED})
