"""The `pair` reward: an estimate of the metric on mirrored questions, which pays only when both are right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rewards.acc import acc_reward
from rewards.settings import RewardSettings


def pair_reward(
    completions: Sequence[object],
    *,
    settings: RewardSettings,
    pair_id: Sequence[str | None],
    variant: Sequence[int],
    **columns: Any,
) -> list[float | None]:
    """For a right completion the share of the partner question's completions that are right, else 0.

    None for a question without partner. Raises ValueError when a partner is not among the rows: partners belong into
    one generation batch on one rank.
    """
    plain = RewardSettings(frame=settings.frame)
    right = [float(value or 0) for value in acc_reward(completions, settings=plain, **columns)]
    of_question: dict[tuple[str, int], list[float]] = defaultdict(list)
    for pair, side, score in zip(pair_id, variant, right, strict=True):
        if pair is not None:
            of_question[pair, side].append(score)
    rewards: list[float | None] = []
    for pair, side, score in zip(pair_id, variant, right, strict=True):
        if pair is None:
            rewards.append(None)
        elif (pair, 1 - side) not in of_question:
            raise ValueError(f"the partner of question {pair}-{side} is not in the batch; keep mirrored pairs together")
        else:
            rewards.append(settings.pay(score * fmean(of_question[pair, 1 - side])))
    return rewards
