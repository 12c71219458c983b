"""The rewards by name. One name everywhere: command line, file, function, log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from rewards.acc import acc_reward
from rewards.format import format_reward
from rewards.loc import loc_reward
from rewards.logic import logic_reward
from rewards.pair import pair_reward
from rewards.settings import RewardSettings

RewardFunction = Callable[..., list[float | None]]

REWARDS: dict[str, RewardFunction] = {
    "format": format_reward,
    "loc": loc_reward,
    "acc": acc_reward,
    "logic": logic_reward,
    "pair": pair_reward,
}

__all__ = ["REWARDS", "RewardSettings", "select_rewards"]


def select_rewards(names: str | Sequence[str], settings: RewardSettings | None = None) -> list[RewardFunction]:
    """The reward functions of `"format,loc"` or a list of names, in that order, bound to `settings`.

    Each is `(completions, **columns) -> list[float | None]` and carries its name as `__name__`.
    Raises ValueError for an unknown, repeated or missing name, listing the known ones.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    unknown = [name for name in wanted if name not in REWARDS]
    if unknown or not wanted:
        raise ValueError(f"unknown reward {', '.join(map(repr, unknown))}; known: {', '.join(REWARDS)}")
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"a reward is named twice in {','.join(wanted)}")
    return [_bound(name, settings or RewardSettings()) for name in wanted]


def _bound(name: str, settings: RewardSettings) -> RewardFunction:
    # A closure, no partial: TRL would log a partial under the name of the function inside.
    @wraps(REWARDS[name])
    def reward(completions: Sequence[object], **columns: Any) -> list[float | None]:
        return REWARDS[name](completions, settings=settings, **columns)

    reward.__name__ = name
    return reward
