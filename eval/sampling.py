"""Pure sampling with a seed for each row: its uniform numbers, and draws inside of transformers' greedy generation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.going_on import draw


def uniform_numbers(seeds: Sequence[int], steps: int) -> Tensor:
    """(rows, steps) uniform numbers, 0 to 1 - 2**-24, those of a row from its own seed."""
    rows = [torch.rand(steps, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(rows).double()


class DrawTokens:
    """A logits processor for greedy generation: draws a token a row and rules out all others.

    seeds: one a row; neither its place in a batch nor the other rows matter. steps: tokens that may be drawn.
    """

    def __init__(self, seeds: Sequence[int], steps: int, temperature: float) -> None:
        self._uniforms = iter(uniform_numbers(seeds, steps).T)
        self._temperature = temperature

    def __call__(self, input_ids: Tensor, scores_BV: Tensor) -> Tensor:
        """Scores that leave the token drawn: 0 for it, -inf for the others."""
        drawn_B = draw(scores_BV, next(self._uniforms).to(scores_BV.device), self._temperature)
        return torch.full_like(scores_BV, -torch.inf).scatter(1, drawn_B[:, None], 0.0)
