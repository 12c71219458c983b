"""DriveMLLM's page: one self-contained HTML file with the tables, and pictures with true and predicted boxes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.drivemllm.records import TASKS, DriveMLLMQuestion
from data_gen.files import write_whole
from data_gen.pages import Picture, page_template, picture_if_readable
from eval.drivemllm_grading import Outcome
from eval.drivemllm_summary import DriveMLLMSummary, notes
from eval.drivemllm_table import EXPLANATION, published_cells, score_rows

TEMPLATE = Path(__file__).with_name("drivemllm_template.html")
PER_TASK = 2
CHOICE_SEED = 0


@dataclass(frozen=True)
class Card:
    """One question of the gallery with its picture and what was made of it."""

    picture: Picture
    question: DriveMLLMQuestion
    outcome: Outcome


def write_report(summary: DriveMLLMSummary, outcomes: Sequence[Outcome], root: Path, out: Path) -> None:
    """Write the page; everything that came from a model is escaped."""
    cards = make_cards(outcomes, root)
    page = page_template(TEMPLATE).render(
        summary=summary,
        scores=score_rows(summary),
        published=published_cells(summary),
        notes=notes(summary),
        explanation=EXPLANATION,
        titles=TASKS,
        cards=cards,
        pictures={card.picture.key: card.picture for card in cards}.values(),
    )
    write_whole(out, page)


def make_cards(outcomes: Sequence[Outcome], root: Path) -> list[Card]:
    """Some questions of every task, drawn at random, the same ones every time."""
    rng = random.Random(CHOICE_SEED)
    pictures: dict[str, Picture] = {}
    cards = []
    for task in TASKS:
        there = [outcome for outcome in outcomes if outcome.question.task == task]
        for outcome in rng.sample(there, min(PER_TASK, len(there))):
            question = outcome.question
            if question.image not in pictures:
                key = f"image{len(pictures)}"
                pictures[question.image] = picture_if_readable(root / question.image, question.image_size, key)
            cards.append(Card(pictures[question.image], question, outcome))
    return cards
