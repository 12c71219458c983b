"""Patches of an image embedded by one matrix product, for models on a CPU.

Qwen2.5-VL embeds patches by a 3-D convolution whose stride is its kernel: every patch is seen once and alone, so it
is a linear layer. Forward and backward, the convolution takes three to five times as long in single precision,
and seven times or more in bfloat16 (BENCHMARKS.md).
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import linear


def embed_patches_linearly(model: Any) -> None:
    """Let the vision tower of a Qwen-VL model embed patches by a matrix product; other models stay as they are.

    The weights, their names and their shapes stay those of the convolution.
    """
    embed = getattr(getattr(getattr(model, "model", None), "visual", None), "patch_embed", None)
    if embed is not None and _sees_patches_alone(embed.proj):
        embed.forward = MethodType(_embedded, embed)


def _sees_patches_alone(layer: nn.Module) -> bool:
    """Whether it is such a convolution, and nothing that wraps one, like an adapter."""
    return type(layer) is nn.Conv3d and layer.stride == layer.kernel_size and layer.groups == 1


def _embedded(embed: Any, patches_PC: Tensor) -> Tensor:
    """Patches as the processor lays them out, a row each (P, channels x time x height x width) -> (P, channels)."""
    if not _sees_patches_alone(embed.proj):
        return type(embed).forward(embed, patches_PC)
    weight = embed.proj.weight
    return linear(patches_PC.to(weight.dtype), weight.flatten(1), embed.proj.bias)
