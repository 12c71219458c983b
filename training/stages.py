"""Successive stages of a GRPO run, each with its own rewards, weights, questions and steps."""

from __future__ import annotations

from typing import Any


class StagedRewards:
    """Mix-in for TRL's GRPOTrainer."""

    def applies(self, reward: str, row: dict[str, Any]) -> bool:
        """Whether a reward is paid, or metered, on a row of the dataset."""
        return True
