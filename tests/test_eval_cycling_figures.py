"""CyclingVQA's figures: floors, means, intervals, and the published table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from shared import need

from data_gen.cycling.records import TASKS, CyclingItem
from eval.cycling_scores import RULE, Outcome, floors_of, summarise
from eval.cycling_summary import published


def ordering_items(first: int, second: int) -> list[CyclingItem]:
    """TO items, `first` of them with Image 1 as the earlier one."""
    choices = ("Image 1", "Image 2")
    letters = "A" * first + "B" * second
    return [
        CyclingItem(f"TO-{n}", "TO", (f"{n}a", f"{n}b"), "Which first?", choices, letter)
        for n, letter in enumerate(letters)
    ]


def test_one_and_the_same_answer_scores_what_13_of_29_models_score() -> None:
    items = ordering_items(57, 54)
    floors = floors_of(items)
    assert floors == {"chance": 0.5, "constant_letter": 57 / 111, "constant_text": 57 / 111}
    always_a = summarise([Outcome(item, "A", 1, "A", RULE) for item in items])
    figures = always_a.tasks["TO"]
    assert figures.score == floors["constant_letter"] and round(100 * figures.score, 1) == 51.4
    assert (figures.given, figures.right) == ({"A": 111}, {"A": 57, "B": 54})
    other = summarise([Outcome(item, "B", 1, "B", RULE) for item in items])
    assert round(100 * other.score, 1) == 48.6, "and the other letter scores what some others score"
    models = [row for row in published().rows if row.model != "Random"]
    assert (sum(row.scores["TO"] == 51.4 for row in models), len(models)) == (13, 29)


def test_chance_follows_each_item_s_own_number_of_choices() -> None:
    items = [
        CyclingItem(f"RED-{n}", "RED", ("a",), "Which?", tuple(f"<{k}>" for k in range(1, n + 1)), "A")
        for n in (2, 4, 8)
    ]
    assert floors_of(items)["chance"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 8) / 3)


def test_plain_mean_and_micro_mean_and_what_counts() -> None:
    lane = CyclingItem("LR-0", "LR", ("l",), "Which?", ("Lane 0", "Lane 1"), "A")
    outcomes = [Outcome(item, "", 2, "A", RULE) for item in ordering_items(3, 0)]
    outcomes += [Outcome(lane, "?", 6, None, "none")]
    figures = summarise(outcomes)
    assert (figures.score, figures.micro, figures.valid_rate, figures.mean_tokens) == (0.5, 0.75, 0.75, 3)
    assert figures.tasks["LR"].given == {"none": 1} and figures.tasks["LR"].valid_accuracy is None
    assert figures.read_by == {"rule": 3, "judge": 0, "none": 1}


def test_intervals_draw_photographs_not_items() -> None:
    item = CyclingItem("TSG-0", "TSG", ("0.jpg",), "Which?", ("<1>", "<2>"), "A", ("p0",))
    items = [replace(item, id=f"TSG-{n}", images=(f"{n}.jpg",), photos=(f"p{n // 10}",)) for n in range(80)]
    right = [n // 10 % 2 == 0 for n in range(80)]
    together = summarise([Outcome(i, "", 0, "A" if ok else "B", RULE) for i, ok in zip(items, right, strict=True)])
    alone = summarise(
        [Outcome(replace(i, photos=()), "", 0, "A" if ok else "B", RULE) for i, ok in zip(items, right, strict=True)]
    )
    assert together.ci95 and alone.ci95 and together.score == alone.score
    assert together.ci95[1] - together.ci95[0] > 2 * (alone.ci95[1] - alone.ci95[0])


def test_published_rows_are_those_of_the_table() -> None:
    table = json.loads(need("tables/cyclingvqa.json").read_text())
    ours = {row.model: ([row.scores[task] for task in TASKS], row.mean, row.rank) for row in published().rows}
    theirs = {
        "Random" if row["model"].startswith("Random") else row["model"]: (
            [row[task] for task in TASKS], row["Avg"], row["rank"]
        )
        for row in table["rows"]
    }  # fmt: skip
    assert ours == theirs and published().questions == table["questions"] and len(ours) == len(table["rows"])
