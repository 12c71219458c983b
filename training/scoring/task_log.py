"""The part of the GRPO trainer that logs every figure per task, and which rewards still tell completions apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS, Truth, grade_text
from rewards.settings import completion_text

SAME = 1e-6


@dataclass(frozen=True)
class Sampled:
    """What the log needs of a completion: its task, the evaluator's score (0..1), and its length in tokens."""

    task: str
    score: float
    tokens: int


class TaskLog:
    """Mix-in for TRL's GRPOTrainer: figures per task, over the completions of all processes.

    Per task: `rewards/NAME/TASK`, `accuracy/TASK` (the evaluator's strict score of a question, whether or not `acc`
    is a reward), `completions/mean_length/TASK` (tokens), and `spread/TASK`, the share of its groups in which the
    rewards as weighted differ. Per reward: `rewards/NAME/no_spread`, the share of the groups it applies to in which it
    pays all completions the same. A task that did not come, or to which a reward does not apply, has no key.

    TRL logs the plain mean of what is appended between two log lines. Completions and groups are appended one by one,
    no means of batches: so each counts the same, whichever batch it was in.
    """

    def _calculate_rewards(
        self: Any, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> Tensor:
        """Rewards of all processes, shape (completions of all processes, reward functions)."""
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)  # type: ignore[misc]
        own = [
            sampled(row, completion_text(item), len(ids), self.settings.frame)
            for row, item, ids in zip(inputs, completions, completion_ids, strict=True)
        ]
        mode, group = ("train", self.num_generations) if self.model.training else ("eval", self.num_generations_eval)
        figures = figures_of(gather_object(own), rewards, self.reward_weights, self.reward_func_names, group)
        for name, values in figures.items():
            self._metrics[mode][name].extend(values)
        return rewards


def truth_of(row: dict[str, Any]) -> Truth:
    """What grading needs to know, from a row of the dataset."""
    x1, y1, x2, y2 = row["objects"][0]["bbox"]
    return Truth(row["task"], row["answer"], tuple(row["options"]), (x1, y1, x2, y2), (row["width"], row["height"]))


def sampled(row: dict[str, Any], text: str, tokens: int, frame: CoordinateFrame) -> Sampled:
    """What the log needs of a completion of a row of the dataset."""
    return Sampled(row["task"], grade_text(text, truth_of(row), frame).score, tokens)


def figures_of(
    samples: Sequence[Sampled], rewards_NR: Tensor, weights_R: Tensor, names: Sequence[str], group: int
) -> dict[str, list[float]]:
    """Key of the log -> one value per completion or group, in the order of TASKS and of the rewards.

    samples: the N completions of all processes, whole groups in a row. rewards_NR: NaN where a reward does not apply.
    """
    figures: dict[str, list[float]] = {}
    total_N = (rewards_NR * weights_R.to(rewards_NR.device)).nansum(dim=1)
    spread = has_spread(total_N.view(-1, group)).tolist()
    for task in TASKS:
        places = [place for place, item in enumerate(samples) if item.task == task]
        for name, column in zip(names, rewards_NR[places].T, strict=True):
            figures[f"rewards/{name}/{task}"] = column[~column.isnan()].tolist()
        figures[f"accuracy/{task}"] = [samples[place].score for place in places]
        figures[f"completions/mean_length/{task}"] = [float(samples[place].tokens) for place in places]
        figures[f"spread/{task}"] = [float(spread[place // group]) for place in places if place % group == 0]
    for name, column in zip(names, rewards_NR.T, strict=True):
        groups = column.view(-1, group)
        applies = groups[~groups.isnan().all(dim=1)]
        figures[f"rewards/{name}/no_spread"] = (~has_spread(applies)).float().tolist()
    return {name: values for name, values in figures.items() if values}


def has_spread(values_NG: Tensor) -> Tensor:
    """Whether the values of each of N groups differ beyond rounding; NaN values are left out. Shape (N,), bool."""
    highest = values_NG.nan_to_num(nan=-torch.inf).amax(dim=1)
    lowest = values_NG.nan_to_num(nan=torch.inf).amin(dim=1)
    return highest - lowest > SAME
