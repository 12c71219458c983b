"""Tokens drawn by inverting their distribution: a random number a row, where torch.multinomial draws one a token."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(logits_BV: Tensor, uniforms_B: Tensor, temperature: float = 1.0) -> Tensor:
    """(B,) tokens from softmax(logits / temperature); what is drawn in a row follows from its uniform number in [0, 1).

    Tokens rarer than one in 17 million may never be drawn: the distribution is summed in single precision.
    """
    cumulated_BV = (logits_BV.float() / temperature).softmax(dim=-1).cumsum(dim=-1).double()
    # Below the end of the distribution, as no uniform number is 1; and never a token of probability 0.
    places_B1 = uniforms_B.double()[:, None] * cumulated_BV[:, -1:]
    return torch.searchsorted(cumulated_BV, places_B1, right=True)[:, 0]
