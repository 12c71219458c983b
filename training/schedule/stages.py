"""Successive stages of a GRPO run, each with its own rewards, weights, questions and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch

from training.schedule.order import OwnOrder, Schedule
from training.schedule.stage_file import Stage, union_of_rewards


class StagedRewards(OwnOrder):
    """Mix-in for TRL's GRPOTrainer: each generation batch is scored by the rewards and weights of its stage alone.

    One trainer, optimiser and learning rate schedule go through all stages. A row says its stage, from 0, in the
    column `stage`; the reward functions are those of all stages, in the order of `union_of_rewards`.
    """

    def __init__(self, *args: Any, schedule: Schedule | None = None, **kwargs: Any) -> None:
        self.stages = schedule.stages if schedule else ()
        super().__init__(*args, schedule=schedule, **kwargs)
        trainer: Any = self
        self._all_reward_names = list(trainer.reward_func_names)

    def applies(self, reward: str, row: dict[str, Any]) -> bool:
        """Whether a reward is paid, or metered, on a row of the dataset."""
        if not self.stages or "stage" not in row:
            return True
        return self._all_reward_names.index(reward) in self._places(self.stages[row["stage"]])

    def _places(self, stage: Stage) -> list[int]:
        """Places of a stage's rewards among the reward functions."""
        union = union_of_rewards(self.stages)
        return [union.index(name) for name in stage.rewards]

    def _calculate_rewards(
        self: Any, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> torch.Tensor:
        """Rewards of all processes, shape (completions of all processes, reward functions); NaN outside the stage."""
        if not self.stages or "stage" not in inputs[0]:
            rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)  # type: ignore[misc]
            return rewards
        (number,) = {row["stage"] for row in inputs}
        stage = self.stages[number]
        places = self._places(stage)
        with self._only(places, torch.tensor(stage.weights)):
            of_stage = super()._calculate_rewards(inputs, prompts, completions, completion_ids)  # type: ignore[misc]
        rewards = of_stage.new_full((len(of_stage), len(self.reward_funcs)), torch.nan)
        rewards[:, places] = of_stage
        self.reward_weights = torch.zeros(len(self.reward_funcs))
        self.reward_weights[places] = torch.tensor(stage.weights)
        return rewards

    @contextmanager
    def _only(self: Any, places: Sequence[int], weights: torch.Tensor) -> Iterator[None]:
        """The trainer with these reward functions alone: others are not computed, verified or logged per task."""
        names = ("reward_funcs", "reward_processing_classes", "reward_func_names")
        kept = {name: getattr(self, name) for name in (*names, "reward_weights")}
        for name in names:
            setattr(self, name, [kept[name][place] for place in places])
        self.reward_weights = weights
        try:
            yield
        finally:
            for name, value in kept.items():
                setattr(self, name, value)

    def log(self: Any, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Add the stage that the last step belonged to: its number, from 1, and its name."""
        if self.stages:
            last_steps = accumulate(stage.steps for stage in self.stages)
            number = next(
                (number for number, last in enumerate(last_steps, 1) if self.state.global_step <= last),
                len(self.stages),
            )
            logs |= {"stage": number, "stage_name": self.stages[number - 1].name}
        super().log(logs, start_time)  # type: ignore[misc]
