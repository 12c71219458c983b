"""The part of the GRPO trainer that encodes image and prompt once per group in the update."""

from __future__ import annotations

from typing import Any


class SharedPrefix:
    """Mix-in for TRL's GRPOTrainer.

    shared_prefix: off, everything is TRL's own.
    """

    def __init__(self, *args: Any, shared_prefix: bool = True, **kwargs: Any) -> None:
        self.shared_prefix = shared_prefix
        super().__init__(*args, **kwargs)
