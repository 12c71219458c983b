"""Attention over a packed row without a mask: prompts causally, each branch after its own prompt.

Registered with transformers under a name of its own and set for the text part of a model. Every other call of the
model (generation, padded batches, caches) goes on to transformers' `sdpa`, masks included.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from training.cpu_attention import cpu_attention
from training.update.packing import GroupSpan, PackedRow

NAME = "shared_prefix"


def share_prefix(model: Any) -> None:
    """Let a Qwen2.5-VL model take `packed=PackedRow` in its forward pass, and score only what is to be scored."""
    AttentionInterface.register(NAME, attention)
    # A name without a mask function would mean no masks: left padding would be attended to in generation.
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation({"text_config": NAME})
    model.model.register_forward_hook(_keep_scored, with_kwargs=True)


def _keep_scored(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Of a packed row, hand only the hidden states of the scored places, (1, N, hidden), to the head."""
    packed: PackedRow | None = kwargs.get("packed")
    if packed is not None:
        output.last_hidden_state = output.last_hidden_state[:, packed.scored]
    return output


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: PackedRow | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Query (1, heads, S, channels), key and value (1, key heads, S, channels) -> (1, S, heads, channels)."""
    on_cpu = query.device.type == "cpu"
    if packed is None:
        forward = cpu_attention if on_cpu else sdpa_attention_forward
        out: tuple[Tensor, None] = forward(module, query, key, value, attention_mask, **settings)
        return out
    with torch.autocast("cpu", enabled=False) if on_cpu else nullcontext():
        mixed = packed_attention(*of_one_type(query, key, value), packed.spans, settings["scaling"])
    return mixed.transpose(1, 2).contiguous().to(value.dtype), None


def of_one_type(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Under autocast rotated queries and keys are float32 beside half-precision values; this makes them alike.

    On a CPU in single precision, see `training/cpu_attention.py`. Else in that of the values: sdpa's own mask-free
    kernels on CUDA are chosen before autocast would make them alike, and refuse.
    """
    dtype = torch.float32 if value.device.type == "cpu" else value.dtype
    return query.to(dtype), key.to(dtype), value.to(dtype)


def packed_attention(query: Tensor, key: Tensor, value: Tensor, spans: tuple[GroupSpan, ...], scale: float) -> Tensor:
    """Attention of each prompt within itself, and of each branch over its prompt and itself; shapes as the query's."""
    sizes = [size for span in spans for size in (span.prefix, *span.branches)]
    # One split each: its backward pass joins the gradients, where slices would each fill a whole row.
    queries, keys, values = (iter(part.split(sizes, dim=2)) for part in (query, key, value))
    outputs = []
    for span in spans:
        q, prompt_k, prompt_v = next(queries), next(keys), next(values)
        if span.prefix:
            outputs.append(_causal(q, prompt_k, prompt_v, scale))
        for _ in span.branches:
            k = torch.cat([prompt_k, next(keys)], dim=2)
            v = torch.cat([prompt_v, next(values)], dim=2)
            outputs.append(_causal(next(queries), k, v, scale))
    return torch.cat(outputs, dim=2)


def _causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Attention of the last places of a sequence (all of them, or fewer) over the whole of it, none ahead of itself."""
    count, total = query.shape[2], key.shape[2]
    grouped = query.shape[1] != key.shape[1]
    if grouped and query.is_cuda and query.dtype == torch.float32:
        # Of the kernels without a mask only flash takes fewer key heads, and it wants half precision.
        key, value = (repeat_kv(part, query.shape[1] // part.shape[1]) for part in (key, value))
        grouped = False
    if count == total:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=grouped)
    mask = last_places(count, total, query.device)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped)


def last_places(count: int, total: int, device: torch.device) -> Any:
    """The mask of the last `count` of `total` places, none ahead of itself: on CUDA a bias that flash kernels know."""
    if device.type == "cuda":
        return causal_lower_right(count, total)
    return torch.ones(count, total, dtype=torch.bool, device=device).tril(total - count)
