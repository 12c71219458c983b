"""Generation batches as TRL holds them: groups of one put into the places of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

Batch = dict[str, Any]

# Prompts are padded on their left, what belongs to completions on the right; these hold a prompt and a completion.
_LEFT = {"prompt_ids", "prompt_mask"}
_BOTH = {"token_type_ids", "mm_token_type_ids"}


def merge_groups(
    into: Batch, drawn: Batch, replacements: Sequence[tuple[int, int]], group: int, pad_token_id: int
) -> Batch:
    """`into`, with the group at the first of each two places replaced by the group at the second place in `drawn`.

    Tensors of prompts, completions and log-probabilities are padded to the longer of both batches, images go with
    their completions. Scalars stay those of `into`. Raises ValueError for batches that hold different things.
    """
    if into.keys() != drawn.keys():
        raise ValueError(f"two generation batches hold different things: {sorted(into.keys() ^ drawn.keys())}")
    sources = [split_pixel_values_by_grid(into), split_pixel_values_by_grid(drawn)]
    rows = [(0, row) for row in range(len(into["completion_ids"]))]
    for place, new in replacements:
        rows[place * group : (place + 1) * group] = [(1, row) for row in range(new * group, (new + 1) * group)]
    fill = {"prompt_ids": pad_token_id, "completion_ids": pad_token_id, "tool_mask": 1}
    merged: Batch = {}
    for name, value in into.items():
        values = [source[name] for source in sources]
        if value is None or (isinstance(value, torch.Tensor) and value.ndim == 0):
            merged[name] = value
        elif isinstance(values[0], torch.Tensor):
            first, second = _same_width(name, sources, fill.get(name, 0))
            merged[name] = torch.stack([(first, second)[source][row] for source, row in rows])
        else:
            merged[name] = [values[source][row] for source, row in rows]
    whole: Batch = unsplit_pixel_values_by_grid(merged)
    return whole


def completion_tokens(batch: Batch) -> torch.Tensor:
    """How many tokens of this process the loss counts, as a scalar."""
    mask = batch["completion_mask"]
    return (mask * batch["tool_mask"] if "tool_mask" in batch else mask).sum()


def _same_width(name: str, sources: Sequence[Batch], fill: int) -> list[torch.Tensor]:
    """A tensor of each batch, padded to the same width; those of one dimension as they are."""
    tensors = [source[name] for source in sources]
    if tensors[0].ndim == 1:
        return tensors
    if name not in _BOTH:
        width = max(tensor.shape[1] for tensor in tensors)
        return [_padded(tensor, width, name in _LEFT, fill) for tensor in tensors]
    prompts = [source["prompt_ids"].shape[1] for source in sources]
    left = [tensor[:, :length] for tensor, length in zip(tensors, prompts, strict=True)]
    right = [tensor[:, length:] for tensor, length in zip(tensors, prompts, strict=True)]
    widths = [max(part.shape[1] for part in parts) for parts in (left, right)]
    return [
        torch.cat([_padded(a, widths[0], True, fill), _padded(b, widths[1], False, fill)], dim=1)
        for a, b in zip(left, right, strict=True)
    ]


def _padded(tensor: torch.Tensor, width: int, on_the_left: bool, fill: int) -> torch.Tensor:
    missing = width - tensor.shape[1]
    return pad(tensor, (missing, 0) if on_the_left else (0, missing), value=fill) if tensor.ndim == 2 else tensor
