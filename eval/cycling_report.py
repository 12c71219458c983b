"""CyclingVQA's page: one self-contained HTML file with tables, answer histograms, and items with their images."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.cycling.records import LETTERS, TASKS
from data_gen.files import write_whole
from data_gen.pages import Picture, page_template, picture_if_readable
from eval.cycling_scores import NO_CHOICE, Outcome
from eval.cycling_summary import CyclingSummary, notes, published
from eval.cycling_table import EXPLANATION, published_rows, reading, score_rows

TEMPLATE = Path(__file__).with_name("cycling_template.html")
PER_TASK = 2
CHOICE_SEED = 0
TITLES = {
    "TSG": "Traffic sign grounding",
    "SU": "Spatial understanding",
    "TO": "Temporal ordering",
    "LR": "Lane recognition",
    "RED": "Referring expression detection",
    "TSR+S": "Traffic sign recognition, region marked",
    "TSR": "Traffic sign recognition",
    "SAA": "Sign-action association",
}


@dataclass(frozen=True)
class Bar:
    """One letter of a histogram: how often it was given and is right, and both as percent of the highest."""

    letter: str
    given: int
    right: int
    given_height: float
    right_height: float


@dataclass(frozen=True)
class Card:
    """One item of the gallery with its images and what was made of it."""

    pictures: tuple[Picture, ...]
    outcome: Outcome


def write_report(summary: CyclingSummary, outcomes: Sequence[Outcome], root: Path, out: Path) -> None:
    """Write the page; everything that came from a model is escaped."""
    page = page_template(TEMPLATE).render(
        summary=summary,
        scores=score_rows(summary),
        published=published_rows(summary, published().rows),
        source=published().source,
        histograms={task: histogram(summary, task) for task in summary.tasks},
        notes=notes(summary),
        reading=reading(summary),
        explanation=EXPLANATION,
        titles=TITLES,
        cards=make_cards(outcomes, root),
    )
    write_whole(out, page)


def histogram(summary: CyclingSummary, task: str) -> list[Bar]:
    """The letters of a task, and `none` where a reply settled on none."""
    figures = summary.tasks[task]
    shown = [letter for letter in (*LETTERS, NO_CHOICE) if letter in figures.given or letter in figures.right]
    highest = max(*figures.given.values(), *figures.right.values())
    counts = [(letter, figures.given.get(letter, 0), figures.right.get(letter, 0)) for letter in shown]
    return [Bar(name, given, right, 100 * given / highest, 100 * right / highest) for name, given, right in counts]


def make_cards(outcomes: Sequence[Outcome], root: Path) -> list[Card]:
    """Some items of every task, drawn at random, the same ones every time."""
    rng = random.Random(CHOICE_SEED)
    cards = []
    for task in TASKS:
        there = [outcome for outcome in outcomes if outcome.item.task == task]
        for outcome in rng.sample(there, min(PER_TASK, len(there))):
            paths = [root / name for name in outcome.item.images]
            cards.append(Card(tuple(picture_if_readable(path, None, path.name) for path in paths), outcome))
    return cards
