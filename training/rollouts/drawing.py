"""Tokens drawn as transformers' `generate` draws them, for a loop of our own: the same ones from the same seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, SuppressTokensLogitsProcessor, TemperatureLogitsWarper

from training.going_on import Choose

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


def draw_like_generate(config: Any, batch_size: int) -> Choose:
    """For a config that `draws_plainly`."""
    processors = LogitsProcessorList()
    if config.suppress_tokens:
        processors.append(SuppressTokensLogitsProcessor(config.suppress_tokens))
    if config.temperature not in (None, 1.0):
        processors.append(TemperatureLogitsWarper(config.temperature))

    def choose(_: int, rows: Tensor, logits_BV: Tensor) -> Tensor:
        shares_BV = processors(None, logits_BV).softmax(dim=-1)
        # Random numbers are drawn for rows that have left the batch too: those of the others depend on their place.
        whole = shares_BV.new_ones(batch_size, shares_BV.shape[1]).index_copy(0, rows, shares_BV)
        return torch.multinomial(whole, num_samples=1)[rows, 0]

    return choose
