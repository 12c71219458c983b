"""Pure sampling inside transformers' greedy generation: a token is drawn, and all others are ruled out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class DrawTokens:
    """A logits processor that draws a token a row from softmax(logits / temperature), by inverting its distribution.

    seeds: one a row. A row's tokens follow from its seed and its logits, so that neither its place in a batch nor the
    other rows matter. steps: tokens that may be drawn.
    """

    def __init__(self, seeds: Sequence[int], steps: int, temperature: float) -> None:
        rows = [torch.rand(steps, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        self._uniforms = iter(torch.stack(rows, dim=1).double())
        self._temperature = temperature

    def __call__(self, input_ids: Tensor, scores_BV: Tensor) -> Tensor:
        """Scores that leave the token drawn: 0 for it, -inf for the others."""
        cumulated_BV = (scores_BV.double() / self._temperature).softmax(dim=-1).cumsum(dim=-1)
        # A uniform number is at most 1 - 2**-24, so what is looked for lies below the end of the distribution.
        uniforms_B1 = next(self._uniforms)[:, None].to(scores_BV.device)
        drawn_B1 = torch.searchsorted(cumulated_BV, uniforms_B1 * cumulated_BV[:, -1:], right=True)
        return torch.full_like(scores_BV, -torch.inf).scatter(1, drawn_B1, 0.0)
