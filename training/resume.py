"""Resuming that continues: a checkpoint's weights are loaded under the names the live model has, or not at all."""

from __future__ import annotations

from typing import Any

from accelerate.utils import is_peft_model
from torch import nn


class StrictResume:
    """Mix-in for a `Trainer`.

    The stock method loads full weights with `strict=False` under the names on disk, which lack the prefixes of the
    live Qwen2.5-VL; nothing matches and training silently restarts from its first weights. (DeepSpeed and FSDP have
    loaders of their own, adapters load correctly.)
    """

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        target: Any = model if model is not None else self.model  # type: ignore[attr-defined]
        if is_peft_model(target):
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        saved = type(target).from_pretrained(resume_from_checkpoint, dtype=target.dtype)
        target.load_state_dict(saved.state_dict(), strict=True)
