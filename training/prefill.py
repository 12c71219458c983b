"""One prefill, many continuations: what several prompts share in front is computed once and its cache copied.

For Qwen2.5-VL, whose image tokens have places in height and width: text after an image counts on from an offset of
its own (`rope_deltas`), which must be that of the prefix, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FAMILIES = ("qwen2_5_vl",)


@dataclass(frozen=True)
class Prefixes:
    """What prompts begin with, as the processor gives it: N texts with all their images, padded on the left.

    input_ids, attention_mask: (N, L). pixel_values: (patches of all images in order, channels).
    image_grid_thw: (images, 3), in patches.
    """

    input_ids: Tensor
    attention_mask: Tensor
    pixel_values: Tensor
    image_grid_thw: Tensor


@dataclass(frozen=True)
class Continuation:
    """One prompt: the index of its prefix, and the token ids that follow it (at least one)."""

    prefix: int
    ids: tuple[int, ...]


def can_share(model: Any) -> bool:
    """Whether prompts of this model can share a prefix: it must number image tokens as Qwen2.5-VL does."""
    return model.config.model_type in FAMILIES


@torch.inference_mode()
def generate_from(model: Any, prefixes: Prefixes, rows: Sequence[Continuation], pad_id: int, **settings: Any) -> Tensor:
    """Generate after every row's prefix and ids; as `model.generate` of the whole prompts would, up to rounding.

    settings: of `generate`, such as `max_new_tokens`. Returns the new tokens (rows, longest), padded on the right.
    """
    of_row = torch.tensor([row.prefix for row in rows], device=prefixes.input_ids.device)
    cache, deltas_N1 = prefill(model, prefixes)
    cache.batch_select_indices(of_row)
    tails, tail_mask = _padded_left([row.ids for row in rows], pad_id, of_row.device)
    # The pads of shorter rows lie between prefix and continuation; the mask hides them and positions skip them.
    input_ids = torch.cat([prefixes.input_ids[of_row], tails], dim=1)
    mask = torch.cat([prefixes.attention_mask[of_row], tail_mask], dim=1)
    model.model.rope_deltas = deltas_N1[of_row]  # set before every call: another image leaves its own behind
    sequences = model.generate(
        input_ids=input_ids, attention_mask=mask, past_key_values=cache, pad_token_id=pad_id, **settings
    )
    return sequences[:, input_ids.shape[1] :]


def prefill(model: Any, prefixes: Prefixes) -> tuple[Any, Tensor]:
    """The cache of N prefixes, and (N, 1) offsets from a text token's count in its row to its position."""
    from transformers import DynamicCache

    base = model.model
    is_image = (prefixes.input_ids == model.config.image_token_id).int()
    positions_3NL, deltas_N1 = base.get_rope_index(
        prefixes.input_ids,
        mm_token_type_ids=is_image,
        image_grid_thw=prefixes.image_grid_thw,
        attention_mask=prefixes.attention_mask,
    )
    cache = DynamicCache(config=model.config)
    base(
        input_ids=prefixes.input_ids,
        attention_mask=prefixes.attention_mask,
        position_ids=positions_3NL,
        pixel_values=prefixes.pixel_values,
        image_grid_thw=prefixes.image_grid_thw,
        past_key_values=cache,
        use_cache=True,
    )
    return cache, deltas_N1


def _padded_left(rows: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(rows, longest) ids and their mask."""
    longest = max(map(len, rows))
    ids = [[pad_id] * (longest - len(row)) + list(row) for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
