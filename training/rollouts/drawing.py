"""Tokens drawn as a trainer's generation config says, for a loop of our own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from training.going_on import Choose, draw

_ANY = frozenset({
    "max_new_tokens", "pad_token_id", "bos_token_id", "eos_token_id", "temperature", "suppress_tokens", "do_sample",
    "disable_compile", "transformers_version",
})  # fmt: skip
# Other settings that a trainer gives, with the values that leave them off.
_OFF = {"top_k": (None, 0), "top_p": (None, 1.0), "min_p": (None,), "repetition_penalty": (None, 1.0)}


def draws_plainly(config: Any) -> bool:
    """Whether a generation config asks for draws at a temperature and for nothing else than tokens to suppress."""
    told = {name: value for name, value in config.to_diff_dict().items() if name not in _ANY}
    return bool(config.do_sample) and all(value in _OFF.get(name, ()) for name, value in told.items())


def drawn_at_random(config: Any, batch_size: int) -> Choose:
    """For a config that `draws_plainly`; random numbers are torch's own, one a row and step."""
    suppressed = torch.tensor(config.suppress_tokens or [], dtype=torch.long)

    def choose(_: int, rows: Tensor, logits_BV: Tensor) -> Tensor:
        # Also for rows that have left the batch: what the others draw depends on their own place alone.
        uniforms = torch.rand(batch_size)[rows]
        return draw(logits_BV.index_fill(1, suppressed, -torch.inf), uniforms, config.temperature or 1.0)

    return choose
