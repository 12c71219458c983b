"""Token by token from rows that are begun; rows that have ended are left out of the batch. And how tokens are drawn."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from training.behind_prompts import SharedPrompts
    from training.prefill import BegunRows

# (step, rows, logits_BV) -> (B,) tokens; rows: places in the batch as it began, those that are left of it.
Choose = Callable[[int, Tensor, Tensor], Tensor]
FULL = "full_attention"  # transformers' name for the mask of layers without a window
DROPPED_SHARE = 0.25  # of a batch have ended before it is made smaller, as its cache is copied for that


@torch.no_grad()
def go_on(model: Any, begun: BegunRows, choose: Choose, ends: Collection[int], max_new_tokens: int) -> list[list[int]]:
    """The new tokens of every row, up to and with its first one of `ends`; the cache of `begun` is used up."""
    cache, mask, behind, device = begun.cache, begun.attention_mask, begun.behind, begun.input_ids.device
    known = cache.get_seq_length() + (behind.length if behind else 0)
    positions = (mask.cumsum(dim=1) - 1 + begun.offsets)[:, known:]
    ids, rows = begun.input_ids[:, known:], torch.arange(len(mask), device=device)
    end_ids = torch.tensor([*ends], device=device)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    written: list[list[int]] = [[] for _ in rows]
    for step in range(max_new_tokens):
        logits_BV = _next_logits(model, cache, ids, mask, positions, behind)
        tokens = choose(step, rows, logits_BV)
        for row, token, over in zip(rows.tolist(), tokens.tolist(), ended.tolist(), strict=True):
            if not over:
                written[row].append(token)
        ended = ended | torch.isin(tokens, end_ids)
        if ended.all():
            break
        if ended.float().mean() >= DROPPED_SHARE:
            left = (~ended).nonzero()[:, 0]
            cache.batch_select_indices(left)
            behind = behind and behind.only(left)
            rows, tokens, mask, positions, ended = (item[left] for item in (rows, tokens, mask, positions, ended))
        ids, positions = tokens[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
    return written


def _next_logits(
    model: Any, cache: Any, ids: Tensor, mask: Tensor, positions: Tensor, behind: SharedPrompts | None
) -> Tensor:
    """(B, vocabulary) after the last of `ids`, in single precision."""
    # Behind shared prompts nothing is hidden from a row but their pads, which they know themselves.
    seen = {"attention_mask": mask} if behind is None else {"attention_mask": {FULL: None}, "behind": behind}
    out = model(
        input_ids=ids,
        **seen,
        position_ids=positions.expand(3, -1, -1),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return out.logits[:, -1].float()


def draw(logits_BV: Tensor, uniforms_B: Tensor, temperature: float = 1.0) -> Tensor:
    """(B,) tokens from softmax(logits / temperature); what is drawn in a row follows from its uniform number in [0, 1).

    One random number a row: `torch.multinomial` draws one for every token there is.
    Tokens rarer than one in 17 million may never be drawn: the distribution is summed in single precision.
    """
    cumulated_BV = (logits_BV.float() / temperature).softmax(dim=-1).cumsum(dim=-1).double()
    # Below the end of the distribution, as no uniform number is 1; and never a token of probability 0.
    places_B1 = uniforms_B.double()[:, None] * cumulated_BV[:, -1:]
    return torch.searchsorted(cumulated_BV, places_B1, right=True)[:, 0]
