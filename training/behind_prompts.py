"""Attention of rows that are generated behind shared prompts: the keys of a prompt are read once for all its rows.

Rows keep a cache of their own tokens only. The attention over both parts is that over each alone, joined by the sums of
their exponentials (Juravsky et al. 2024, "Hydragen: High-Throughput LLM Inference with Shared Prefixes").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

HIDDEN = -1e9  # finite: a prompt that is all pads must weigh nothing, not be none


@dataclass(frozen=True)
class SharedPrompts:
    """The prompts of rows: U of them, of P places, padded anywhere; no more than `most_rows` rows behind one.

    layers: keys and values (U, key heads, P, channels) of every layer. pad_bias: (U, 1, 1, P) 0, or HIDDEN at pads.
    slots: (B,) for every row prompt x most_rows + its number among the rows behind that prompt.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]
    pad_bias: Tensor
    slots: Tensor
    most_rows: int

    @property
    def length(self) -> int:
        """Places of a prompt, pads included."""
        return self.pad_bias.shape[-1]

    def only(self, rows: Tensor) -> SharedPrompts:
        """The same for some of the rows."""
        return replace(self, slots=self.slots[rows])


def shared_prompts(cache: Any, mask_UP: Tensor, of_row: Sequence[int]) -> SharedPrompts:
    """From the cache of the prompts, their mask, and the index of every row's prompt."""
    numbers, counts = [], [0] * len(mask_UP)
    for prompt in of_row:
        numbers.append(counts[prompt])
        counts[prompt] += 1
    slots = [prompt * max(counts) + number for prompt, number in zip(of_row, numbers, strict=True)]
    layers = tuple((layer.keys, layer.values) for layer in cache.layers)
    bias = torch.where(mask_UP == 0, HIDDEN, 0.0)[:, None, None]
    return SharedPrompts(layers, bias, torch.tensor(slots, device=mask_UP.device), max(counts))


def attend_behind(behind: SharedPrompts, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """One new token of every row over its prompt and over the row so far, itself included.

    query: (B, heads, 1, channels). key, value: (B, key heads, places of the row, channels). Returns the query's shape.
    """
    prompt_key, prompt_value = behind.layers[layer]
    prompts, key_heads, _, channels = prompt_key.shape
    rows, heads = query.shape[:2]
    per_key = heads // key_heads
    query_BKRC = query.view(rows, key_heads, per_key, channels)
    slotted = query.new_zeros(prompts * behind.most_rows, key_heads, per_key, channels)
    slotted[behind.slots] = query_BKRC
    # (U, key heads, most_rows x heads of a key, channels): all that look at the same keys.
    gathered = slotted.view(prompts, behind.most_rows, key_heads, per_key, channels).transpose(1, 2).flatten(2, 3)
    over_prompt, log_sums = _attend(gathered, prompt_key, prompt_value, scale, behind.pad_bias)
    over_prompt, log_sums = (
        part.unflatten(2, (behind.most_rows, per_key)).transpose(1, 2).flatten(0, 1)[behind.slots]
        for part in (over_prompt, log_sums)
    )
    over_row, own_log_sums = _attend(query_BKRC, key, value, scale)
    mixed = torch.lerp(over_row, over_prompt, torch.sigmoid(log_sums - own_log_sums))
    return mixed.reshape(query.shape)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention (..., queries, channels), and (..., queries, 1) the logs of the sums that normalise it."""
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if bias is not None:
        scores = scores + bias
    largest = scores.amax(dim=-1, keepdim=True)
    shares = (scores - largest).exp()
    sums = shares.sum(dim=-1, keepdim=True)
    return torch.matmul(shares, value) / sums, largest + sums.log()
