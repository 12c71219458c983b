"""The part of the GRPO trainer that replaces groups in which all completions earn the same."""

from __future__ import annotations

from typing import Any


class DynamicSampling:
    """Mix-in for TRL's GRPOTrainer.

    dynamic_sampling: how often a generation batch may draw other prompts; 0: never.
    """

    def __init__(self, *args: Any, dynamic_sampling: int = 0, **kwargs: Any) -> None:
        self.dynamic_sampling = dynamic_sampling
        super().__init__(*args, **kwargs)
