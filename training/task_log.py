"""The part of the GRPO trainer that logs every reward per task."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import gather_object


class TaskLog:
    """Mix-in for TRL's GRPOTrainer: figures per task, over the completions of all processes."""

    def _calculate_rewards(
        self: Any, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> torch.Tensor:
        """Rewards of all processes, shape (completions of all processes, reward functions)."""
        rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)  # type: ignore[misc]
        self._log_per_task(gather_object([row["task"] for row in inputs]), rewards)
        return rewards

    def _log_per_task(self: Any, tasks: list[str], rewards: torch.Tensor) -> None:
        """Mean of every reward over the completions of each task, of all processes."""
        mode = "train" if self.model.training else "eval"
        for task in sorted(set(tasks)):
            of_task = rewards[[place for place, name in enumerate(tasks) if name == task]]
            for name, column in zip(self.reward_func_names, of_task.T, strict=True):
                self._metrics[mode][f"rewards/{name}/{task}"].append(torch.nanmean(column).item())
