"""Items before they are drawn, photographs that give none, and the chance in both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_gen.cycling.marks import Region, Shaded
from data_gen.cycling.records import LETTERS


@dataclass(frozen=True)
class Draft:
    """An item before it is drawn: one photograph with marks, or two without."""

    task: str
    photos: tuple[str, ...]
    question: str
    choices: tuple[str, ...]
    place: int
    regions: tuple[Region, ...] = ()
    lanes: tuple[Shaded, ...] = ()

    @property
    def answer(self) -> str:
        """The letter of the right choice."""
        return LETTERS[self.place]


@dataclass(frozen=True)
class Drop:
    """A photograph that gives no item of a task, and why."""

    task: str
    photo: str
    reason: str


Made = Draft | Drop


@dataclass
class Dealer:
    """Chance: the seed, the number of choices wanted, the labels to draw from, and the decks of right places."""

    seed: int
    choices: int
    labels: Sequence[str]
    decks: dict[tuple[str, int], tuple[random.Random, list[int]]] = field(default_factory=dict)

    def rng(self, task: str, photo: str) -> random.Random:
        """The randomness of one photograph in one task, whatever else there is."""
        return random.Random(f"{self.seed}-{task}-{photo}")

    def place(self, task: str, count: int) -> int:
        """Where the right one of `count` choices stands; over `count` calls every place comes once."""
        rng, deck = self.decks.setdefault((task, count), (random.Random(f"{self.seed}-{task}-{count}"), []))
        if not deck:
            deck.extend(rng.sample(range(count), count))
        return deck.pop()


def with_truth_at(place: int, truth: str, others: Sequence[str]) -> tuple[str, ...]:
    """The other choices in their order, the right one at its place."""
    return (*others[:place], truth, *others[place:])
