"""Resuming that continues: a checkpoint's weights are loaded under the names the live model has, or not at all."""

from __future__ import annotations

from typing import Any

from accelerate.utils import is_peft_model
from torch import nn


class StrictResume:
    """Mix-in for a `Trainer`.

    The stock method loads full weights with `strict=False` under the names on disk, which lack the prefixes of the
    live Qwen2.5-VL; nothing matches and training silently restarts from its first weights. (DeepSpeed has a loader
    of its own; FSDP and adapters are left to the stock method.)
    """

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        own: Any = self.model  # type: ignore[attr-defined]
        if model is not None or self.is_fsdp_enabled or is_peft_model(own):  # type: ignore[attr-defined]
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        saved = type(own).from_pretrained(resume_from_checkpoint, dtype=own.dtype)
        own.load_state_dict(saved.state_dict(), strict=True)
