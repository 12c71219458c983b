"""The part of the GRPO trainer that asks the policy what its own reasoning leads to."""

from __future__ import annotations

from typing import Any

import torch
from trl.models.utils import disable_gradient_checkpointing

from rewards.logic import logic_target
from rewards.response import parse
from rewards.settings import RewardSettings, completion_text
from training.verifier import VerifierJob, greedy_agreement, verifier_job


class SelfVerification:
    """Mix-in for TRL's GRPOTrainer: the verdicts of the self-verifier reach the rewards as a column.

    settings: the frame and variants of the rewards.
    """

    def __init__(self, *args: Any, settings: RewardSettings, **kwargs: Any) -> None:
        self.settings = settings
        super().__init__(*args, **kwargs)

    def _calculate_rewards(
        self: Any, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> torch.Tensor:
        """Rewards of all processes, shape (completions of all processes, reward functions)."""
        if "logic" in self.reward_func_names:
            verdicts = self._verdicts(inputs, completions)
            inputs = [{**row, "verdicts": verdict} for row, verdict in zip(inputs, verdicts, strict=True)]
        rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)  # type: ignore[misc]
        return rewards

    def _verdicts(self: Any, inputs: list[dict[str, Any]], completions: list[Any]) -> list[str | None]:
        """The answer the policy reaches from each trace alone, or None; only well-formed completions are asked about.

        The target of the logic reward is teacher-forced; where greedy decoding would have written it, it is the
        verdict. All processes must call this.
        """
        targets = [self._target(row, item) for row, item in zip(inputs, completions, strict=True)]
        jobs: list[VerifierJob | None] = [
            None if target is None else verifier_job(self._tokenizer, *target) for target in targets
        ]
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            agreed = greedy_agreement(
                self.model, jobs, self._tokenizer.pad_token_id, self.args.per_device_train_batch_size, self.accelerator
            )
        self._log_metric("logic/verified", sum(job is not None for job in jobs) / len(jobs))
        return [target[1] if target and yes else None for target, yes in zip(targets, agreed, strict=True)]

    def _target(self, row: dict[str, Any], completion: Any) -> tuple[str, str] | None:
        """(trace, answer to reach) of a completion, or None when it is not well-formed."""
        response = parse(completion_text(completion))
        if not response.well_formed or not response.think or not response.answer:
            return None
        size = (row["width"], row["height"])
        return response.think, logic_target(response.answer, row["answer"], size, self.settings)
