"""What a reward function gives back is checked before it counts: a fault ends the run on every process at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from accelerate.utils import gather_object

from rewards import RewardFunction, limits_of
from rewards.settings import completion_text

ROUNDING = 1e-6
_SHOWN_CHARACTERS = 200


class RewardError(RuntimeError):
    """A reward function raised, or gave back what is no reward."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a reward, and what the reward raised, if it did."""

    text: str
    cause: Exception | None = None


class CheckedRewards:
    """Mix-in for TRL's GRPOTrainer.

    Raises RewardError, naming the reward, the question and the value, on all processes when a reward function of any
    process raises, gives another number of values, a value that is neither None nor a finite number or lies outside
    the reward's range, or when no paid reward applies to a completion.
    """

    def _calculate_rewards(
        self: Any, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> torch.Tensor:
        """Rewards of all processes, shape (completions of all processes, reward functions)."""
        ids, functions, faults = [str(row["question_id"]) for row in inputs], self.reward_funcs, list[Fault]()
        self.reward_funcs = [
            _guarded(function, name, ids, faults)
            for function, name in zip(functions, self.reward_func_names, strict=True)
        ]
        try:
            rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)  # type: ignore[misc]
        finally:
            self.reward_funcs = functions
        start = self.accelerator.process_index * len(ids)
        if not faults and (fault := _unpaid(rewards[start : start + len(ids)], self.reward_weights, inputs)):
            faults.append(fault)
        # A process that raised alone would leave the others waiting for it.
        told = gather_object([fault.text for fault in faults])
        if told:
            raise RewardError("; ".join(dict.fromkeys(told))) from (faults[0].cause if faults else None)
        return rewards


def problem_of(value: object, limits: tuple[float, float] | None) -> str | None:
    """Why a value is no reward, or None. limits: lowest and highest value, None for any finite number."""
    if value is None:
        return None
    if not isinstance(value, Real):
        return f"a number or None is needed, got {_short(value)} of type {type(value).__name__}"
    number: Any = value
    if not abs(number) <= torch.finfo(torch.float32).max:  # NaN compares false too
        return f"a finite number is needed, got {value}"
    if limits and not limits[0] - ROUNDING <= number <= limits[1] + ROUNDING:
        return f"{value} lies outside its range {limits[0]} to {limits[1]}"
    return None


def _guarded(function: RewardFunction, name: str, ids: Sequence[str], faults: list[Fault]) -> RewardFunction:
    """The function, its faults put into `faults` instead of raised; then none of its values applies."""

    def reward(completions: Sequence[object], **columns: Any) -> list[float | None]:
        values, error = _called(function, completions, columns)
        if error:
            place = _raises_at(function, error, completions, columns)
            where = f"one of {len(ids)} questions" if place is None else _where(ids, completions, place)
            faults.append(Fault(f"reward {name} raised {type(error).__name__}: {error}, at {where}", error))
        elif problem := _first_problem(values, limits_of(function), ids, completions):
            faults.append(Fault(f"reward {name}: {problem}"))
        return [None] * len(ids) if faults else list(values)

    return reward


def _called(
    function: RewardFunction, completions: Sequence[object], columns: dict[str, Any]
) -> tuple[Any, Exception | None]:
    """What the function gives back, or what it raises."""
    try:
        return function(completions=completions, **columns), None
    except Exception as error:  # anything, from code that is not ours: told to all processes, and raised there
        return None, error


def _first_problem(
    values: Any, limits: tuple[float, float] | None, ids: Sequence[str], completions: Sequence[object]
) -> str | None:
    """What is wrong with what a reward function gave back, with the question, or None."""
    if isinstance(values, str) or not hasattr(values, "__len__"):
        return f"a list of a number or None per completion is needed, got {type(values).__name__} for question {ids[0]}"
    if len(values) != len(ids):
        return f"{len(values)} values for {len(ids)} completions, of questions {ids[0]} to {ids[-1]}"
    for place, value in enumerate(values):
        if problem := problem_of(value, limits):
            return f"{problem}, at {_where(ids, completions, place)}"
    return None


def _unpaid(rewards: torch.Tensor, weights: torch.Tensor, rows: Sequence[dict[str, Any]]) -> Fault | None:
    """The fault of the first row on which every reward of a weight other than 0 is None. rewards: (rows, rewards)."""
    lost = rewards[:, weights.to(rewards.device) != 0].isnan().all(dim=1).nonzero().flatten().tolist()
    if not lost:
        return None
    row = rows[lost[0]]
    return Fault(
        f"every paid reward is None for question {row['question_id']} of the task {row['task']}; name a reward that "
        "applies to it, such as acc, or leave such questions out"
    )


def _raises_at(
    function: RewardFunction, error: Exception, completions: Sequence[object], columns: dict[str, Any]
) -> int | None:
    """The first row on which the function raises the same alone; None when it needs several rows for that."""
    count = len(completions)
    for place in range(count):
        row = {
            name: [value[place]] if isinstance(value, list) and len(value) == count else value
            for name, value in columns.items()
        }
        again = _called(function, [completions[place]], row)[1]
        if type(again) is type(error) and str(again) == str(error):
            return place
    return None


def _where(ids: Sequence[str], completions: Sequence[object], place: int) -> str:
    return f"question {ids[place]}, completion {_short(completion_text(completions[place]))}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
