"""Patches embedded by a matrix product: values and gradients of the stock convolution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from training.linear_patches import embed_patches_linearly
from training.model import load_model


@pytest.fixture
def embed() -> Any:
    loaded = load_model("mini", device="cpu")
    embed = loaded.model.model.visual.patch_embed
    embed.proj.requires_grad_(True)
    return embed


def learnt(embed: Any, patches_PC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What it gives, and the gradient of the sum of its squares."""
    embed.zero_grad()
    given = embed(patches_PC)
    given.square().sum().backward()
    return given.detach(), embed.proj.weight.grad.clone()


@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_values_and_gradients_are_those_of_the_convolution(
    embed: Any, precision: torch.dtype, tolerance: float
) -> None:
    patches_PC = torch.randn(40, 3 * 2 * 14 * 14, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        ours, our_gradient = learnt(embed, patches_PC)
        del embed.forward
        stock, stock_gradient = learnt(embed, patches_PC)
    assert ours.dtype == stock.dtype == precision
    assert (ours - stock).norm() < tolerance * stock.norm()
    assert (our_gradient - stock_gradient).norm() < tolerance * stock_gradient.norm()


def test_a_wrapped_convolution_is_called_as_it_is(embed: Any) -> None:
    class Doubled(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer
            self.weight = layer.weight

        def forward(self, patches: torch.Tensor) -> torch.Tensor:
            return 2 * self.layer(patches)

    patches_PC = torch.randn(8, 3 * 2 * 14 * 14, generator=torch.Generator().manual_seed(0))
    plain = embed(patches_PC)
    embed.proj = Doubled(embed.proj)
    torch.testing.assert_close(embed(patches_PC), 2 * plain, rtol=1e-4, atol=1e-4)


def test_models_without_such_a_tower_stay_as_they_are() -> None:
    text = nn.Linear(2, 2)
    embed_patches_linearly(text)
    assert "forward" not in vars(text)
