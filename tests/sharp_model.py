"""The tiny model with sharp attention, for tests of caches, masks and positions.

Attention of random weights is nearly flat, and flat attention forgives every wrong position: greedy outputs stay the
same. With queries and keys several times as large, they do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import LogitsProcessorList, SuppressTokensLogitsProcessor, TemperatureLogitsWarper

from eval.engines import Request
from training.going_on import Choose
from training.model import LoadedModel, load_model

SHARPER = 6.0


def sharp_tiny(max_pixels: int | None = None) -> LoadedModel:
    """The tiny model in float32, queries and keys of its language half multiplied."""
    loaded = load_model("tiny", max_pixels=max_pixels)
    with torch.no_grad():
        for layer in loaded.model.model.language_model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight.mul_(SHARPER)
                projection.bias.normal_(generator=torch.Generator().manual_seed(0))
    return loaded


def write_noise(folder: Path, sizes: list[tuple[int, int]]) -> list[Path]:
    """One picture of coarse coloured noise per size: every picture and every region looks different."""
    paths = []
    for index, (width, height) in enumerate(sizes):
        noise = torch.randint(0, 256, (6, 8, 3), generator=torch.Generator().manual_seed(index), dtype=torch.uint8)
        paths.append(folder / f"noise-{index}.png")
        Image.fromarray(noise.numpy()).resize((width, height), Image.Resampling.NEAREST).save(paths[-1])
    return paths


def questions_about(paths: list[Path], sizes: list[tuple[int, int]], name: str, count: int) -> list[Request]:
    """Questions of very different length about the same pictures."""
    sentence = "How far is the red car from the blue truck, and which of them is closer to the camera? "
    words = (sentence * 3).split(" ")
    texts = [" ".join(words[index : 3 * index + 2]) for index in range(count)]
    return [Request(f"{name}-{index}", text, tuple(paths), tuple(sizes)) for index, text in enumerate(texts)]


def drawn_like_generate(config: Any, batch_size: int) -> Choose:
    """Draws of transformers' `generate` from the same random numbers, in the place of `drawn_at_random`."""
    processors = LogitsProcessorList()
    if config.suppress_tokens:
        processors.append(SuppressTokensLogitsProcessor(config.suppress_tokens))
    if config.temperature not in (None, 1.0):
        processors.append(TemperatureLogitsWarper(config.temperature))

    def choose(_: int, rows: torch.Tensor, logits_BV: torch.Tensor) -> torch.Tensor:
        shares_BV = processors(None, logits_BV).softmax(dim=-1)
        whole = shares_BV.new_ones(batch_size, shares_BV.shape[1]).index_copy(0, rows, shares_BV)
        return torch.multinomial(whole, num_samples=1)[rows, 0]

    return choose
