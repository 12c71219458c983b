"""The part of the GRPO trainer that samples completions: each distinct prompt is prefilled once."""

from __future__ import annotations

from typing import Any


class SharedPrefill:
    """Mix-in for TRL's GRPOTrainer.

    shared_prefill: off, generation by transformers is TRL's own.
    """

    def __init__(self, *args: Any, shared_prefill: bool = True, **kwargs: Any) -> None:
        self.shared_prefill = shared_prefill
        super().__init__(*args, **kwargs)
