"""What asking the teachers took: requests, tokens and time of each stage, and what that costs at given prices."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from data_gen.teaching.records import Spent

MILLION = 1_000_000
# Of a million tokens; the names of options, and of the prices in run.json and summary.json.
PRICES = {
    "price_in": "read",
    "price_out": "written",
    "reasoner_price_in": "read by the reasoner",
    "reasoner_price_out": "written by the reasoner",
}
_REASONER_STAGE = "reason"


@dataclass(frozen=True)
class StageFigures:
    """What a stage took. waited_s: summed over its requests, many of which wait at once; wall_s: by the clock."""

    model: str
    requests: int
    retries: int
    tokens_in: int
    tokens_out: int
    waited_s: float
    wall_s: float

    @property
    def requests_per_minute(self) -> float | None:
        """Requests sent per minute by the clock, those sent again too; None where no time was measured."""
        return per_minute(self.requests, self.wall_s)


def stage_figures(models: Iterable[str], spent: Spent, wall_s: float) -> StageFigures:
    """The figures of a stage. models: all that had a part in it."""
    named = ", ".join(sorted(set(models)))
    return StageFigures(
        named, spent.requests, spent.retries, spent.prompt_tokens, spent.new_tokens, round(spent.seconds, 1), wall_s
    )


def per_minute(count: int, wall_s: float) -> float | None:
    """A rate, or None where no time was measured."""
    return 60 * count / wall_s if wall_s > 0 else None


def cost_of(stage: str, figures: StageFigures, prices: Mapping[str, float]) -> float | None:
    """What a stage costs, in the currency of the prices; None where a price is missing.

    prices: per million tokens, by the names of `PRICES`; a price of its own that the reasoner lacks is that of all.
    """
    read, written = prices.get("price_in"), prices.get("price_out")
    if stage == _REASONER_STAGE:
        read, written = prices.get("reasoner_price_in", read), prices.get("reasoner_price_out", written)
    if read is None or written is None:
        return None
    return (figures.tokens_in * read + figures.tokens_out * written) / MILLION


def total_cost(stages: Mapping[str, StageFigures], prices: Mapping[str, float]) -> float | None:
    """What all stages cost together; None where there is none, or one's cost is not known."""
    costs = [cost_of(stage, figures, prices) for stage, figures in stages.items()]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def add_price_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add an option for each price."""
    for name, what in PRICES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=float, metavar="PRICE", help=f"price of a million tokens {what}")


def prices_of(arguments: argparse.Namespace) -> dict[str, float]:
    """The prices that a command line gives."""
    return {name: price for name in PRICES if (price := getattr(arguments, name)) is not None}
