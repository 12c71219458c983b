"""What must hold before vLLM may generate: it is installed, and it sees the same prompts as the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from data_gen.command_line import UsageError
from rewards.boxes import Size
from training.arguments import ModelArguments

INSTALL = 'pip install -e ".[vllm]"'
MOST_SIZES = 8


def require_vllm(config: Any, model: ModelArguments) -> None:
    """Raise UsageError when `use_vllm` is set and cannot be had here, or would wear the weights away.

    config: TRL's GRPOConfig.
    """
    if not config.use_vllm:
        return
    if find_spec("vllm") is None:
        raise UsageError(
            f"--use_vllm needs vLLM, in an environment of its own: {INSTALL}; without it transformers generates"
        )
    if config.vllm_mode == "server" and config.use_cpu:
        raise UsageError("--vllm_mode server sends the weights by NCCL, which needs a GPU; take --vllm_mode colocate")
    if model.use_peft and model.dtype != "float32":
        raise UsageError(
            f"--use_vllm adds the adapter to the weights and takes it out again at every step; in {model.dtype} each "
            "time leaves a rounding error behind: take --dtype float32"
        )


@dataclass(frozen=True)
class ImageTokens:
    """How many tokens an image of `size_px` (width, height) has in the update's prompt and in vLLM's."""

    size_px: Size
    update: int
    vllm: int


def one_pad_per_image(ids: Sequence[int], image_token_id: int) -> list[int]:
    """A prompt as vLLM takes it: every run of image tokens, one image each, is cut to one token.

    vLLM replaces one token by as many as the image needs. TRL hands over whole runs, whose first token would be
    replaced once more: the prompt would hold nearly twice the tokens, half of them without an image behind them.
    """
    before = [None, *ids]
    return [here for last, here in pairwise(before) if here is not None and not last == here == image_token_id]


def rows_to_check(sizes_px: Sequence[Size], most: int = MOST_SIZES) -> list[int]:
    """The places of the first image of each distinct size, from small to large; `most` of them, ends included."""
    first: dict[Size, int] = {}
    for place, size in enumerate(sizes_px):
        first.setdefault(size, place)
    ordered = sorted(first, key=lambda size: (size[0] * size[1], size))
    if len(ordered) > most:
        ordered = [ordered[round(step * (len(ordered) - 1) / (most - 1))] for step in range(most)]
    return [first[size] for size in ordered]


def check_image_tokens(counts: Sequence[ImageTokens], checkpoint: str, max_pixels: int) -> None:
    """Raise UsageError when an image has not as many tokens in the update as in vLLM.

    checkpoint: the folder or hub id from which vLLM reads its processor. max_pixels: the budget of the update.
    """
    wrong = [count for count in counts if count.update != count.vllm]
    if not wrong:
        return
    told = "; ".join(f"{c.size_px[0]}x{c.size_px[1]}: {c.update} here, {c.vllm} in vLLM" for c in wrong)
    raise UsageError(
        f"images have not as many tokens here as in vLLM ({told}): completions would be sampled from another prompt "
        f"than they are trained on. vLLM knows only the pixel budget in the processor_config.json or "
        f"preprocessor_config.json of {checkpoint}: set its size.longest_edge (and max_pixels, where it stands there) "
        f"to {max_pixels}, the budget of this run, or give a --max-pixels that is no larger than what stands there"
    )
