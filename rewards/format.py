"""The `format` reward: does the strict response format hold?"""

from __future__ import annotations

from collections.abc import Sequence

from rewards.response import parse
from rewards.settings import RewardSettings, completion_text


def format_reward(completions: Sequence[object], *, settings: RewardSettings, **_: object) -> list[float | None]:
    """1 for each completion with every tag once, in order, filled, nothing outside and a readable box; else 0."""
    return [settings.pay(float(parse(completion_text(item)).well_formed)) for item in completions]
