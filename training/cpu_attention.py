"""Attention for models on a CPU, and mixed precision for what is left.

Half precision makes linear layers several times faster on CPUs that know it, and the backward pass of attention several
times slower: attention stays in single precision, whatever autocast says. Keys and values of a head that several heads
of queries share are not repeated, as transformers' `sdpa` does wherever there is a mask.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from training.behind_prompts import SharedPrompts, attend_behind

NAME = "sdpa_on_cpu"


def attend_on_cpu(model: Any) -> None:
    """Set this attention for all parts of a model that has transformers' `sdpa`; others stay as they are."""
    if model.config._attn_implementation != "sdpa":
        return
    AttentionInterface.register(NAME, cpu_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def mixed_precision() -> torch.autocast:
    """The context in which linear layers compute in bfloat16; for models with this attention."""
    return torch.autocast("cpu", torch.bfloat16)


def cpu_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    behind: SharedPrompts | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Query (B, heads, L, channels), key and value (B, key heads, places, channels) -> (B, L, heads, channels).

    behind: prompts that are seen too, for one new token (L of 1) of every row.
    """
    with torch.autocast("cpu", enabled=False):
        parts = query.float(), key.float(), value.float()
        if behind is not None:
            scale = query.shape[-1] ** -0.5 if scaling is None else scaling
            mixed = attend_behind(behind, module.layer_idx, *parts, scale)
            return mixed.transpose(1, 2).to(query.dtype), None
        if attention_mask is None:
            options = {"dropout": dropout, "scaling": scaling, **settings}
            return sdpa_attention_forward(module, *parts, None, **options)[0].to(query.dtype), None
        mixed = scaled_dot_product_attention(
            *parts, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, enable_gqa=True
        )
    return mixed.transpose(1, 2).contiguous().to(query.dtype), None
