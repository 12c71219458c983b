"""Does vLLM hold the weights of a Qwen2.5-VL in training? Fused weights are compared part by part."""

from __future__ import annotations

import copy
import re
from typing import Any

import torch

# What vLLM keeps in one tensor, by the name it gives it.
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def plain_weights(model: Any) -> dict[str, torch.Tensor]:
    """Copies of the weights under their names in transformers; a LoRA adapter is merged into them."""
    if hasattr(model, "merge_and_unload"):
        model = copy.deepcopy(model).merge_and_unload()
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def names_in_policy(name: str) -> list[str]:
    """The names in transformers of the parts of a weight of vLLM, in their order.

    >>> names_in_policy("language_model.model.layers.0.mlp.gate_up_proj.weight")[1]
    'model.language_model.layers.0.mlp.up_proj.weight'
    """
    name = re.sub(r"^language_model\.model\.", "model.language_model.", name)
    name = re.sub(r"^language_model\.lm_head\.", "lm_head.", name)
    name = re.sub(r"^visual\.", "model.visual.", name)
    for fused, parts in FUSED.items():
        if f".{fused}." in name:
            return [name.replace(f".{fused}.", f".{part}.") for part in parts]
    return [name]


def compare_weights(policy: dict[str, torch.Tensor], engine: dict[str, torch.Tensor]) -> int:
    """The number of parts compared. Raises AssertionError for the first that differs, or that either side lacks."""
    seen = set()
    for name, fused in engine.items():
        start = 0
        for part in names_in_policy(name):
            assert part in policy, f"vLLM has {name}, the policy no {part}"
            rows = policy[part].shape[0]
            here = fused[start : start + rows].reshape(policy[part].shape)
            assert torch.equal(policy[part].to(here.dtype), here), f"{name} of vLLM is not the policy's {part}"
            start += rows
            seen.add(part)
        # The vocabulary may be padded to whole blocks.
        assert start == fused.shape[0] or "embed_tokens" in name or "lm_head" in name, f"{name} of vLLM has more rows"
    assert seen == set(policy), f"not in vLLM: {sorted(set(policy) - seen)[:5]}"
    return len(seen)
