"""The rewards by name. One name everywhere: command line, file, function, log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from rewards.acc import acc_reward
from rewards.format import format_reward
from rewards.loc import loc_reward
from rewards.logic import logic_reward
from rewards.own import own_reward
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

__all__ = ["REWARDS", "RewardSettings", "limits_of", "select_rewards"]


def select_rewards(names: str | Sequence[str], settings: RewardSettings | None = None) -> list[RewardFunction]:
    """The reward functions of `"format,my_module.my_reward"` or a list of names, in that order.

    Ours are bound to `settings`; a name with a dot is the path of a user's own function. Each is
    `(completions, **columns) -> list[float | None]` and carries its name as `__name__`. Raises ValueError for an
    unknown, repeated or missing name, listing the known ones.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    unknown = [name for name in wanted if name not in REWARDS and "." not in name]
    if unknown or not wanted:
        raise ValueError(f"unknown reward {', '.join(map(repr, unknown))}; {_KNOWN}")
    functions = [_bound(name, settings or RewardSettings()) if name in REWARDS else _own(name) for name in wanted]
    logged = [function.__name__ for function in functions]
    if len(set(logged)) < len(logged):
        raise ValueError(f"a reward is named twice in {','.join(logged)}")
    return functions


def limits_of(reward: RewardFunction) -> tuple[float, float] | None:
    """The lowest and highest value of one of our rewards as `select_rewards` gives it; None: any finite number."""
    return getattr(reward, "limits", None)


_KNOWN = f"known: {', '.join(REWARDS)}, or the dotted path of your own function: package.module.function"


def _bound(name: str, settings: RewardSettings) -> RewardFunction:
    # A closure, no partial: TRL would log a partial under the name of the function inside.
    @wraps(REWARDS[name])
    def reward(completions: Sequence[object], **columns: Any) -> list[float | None]:
        return REWARDS[name](completions, settings=settings, **columns)

    reward.__name__ = name
    reward.limits = settings.values  # type: ignore[attr-defined]
    return reward


def _own(path: str) -> RewardFunction:
    try:
        function = own_reward(path)
    except ValueError as error:
        raise ValueError(f"{error}; {_KNOWN}") from error
    name = path.rpartition(".")[2]
    if name in REWARDS:
        raise ValueError(f"reward {path!r} would be logged as {name}, which is one of ours; give it another name")

    def reward(completions: Sequence[object], **columns: Any) -> list[float | None]:
        return function(completions=completions, **columns)

    reward.__name__ = name
    return reward
