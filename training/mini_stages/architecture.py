"""The mini model: a Qwen2.5-VL of the stock classes, small enough to be trained on a CPU; and a larger one, for a GPU.

What made so small a model learn to place objects: a `rope_theta` that lets a name find its image token from far behind
a long prompt. Of 16 frequencies the text gives the slowest 12 to the width axis; at 1,000 the last makes a quarter of a
turn in a thousand tokens, at 10 it makes eighteen. The tower, which sees a picture only, has 100. An initial scale of
0.05, and numbers whose first embeddings vary smoothly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from training.tiny import LARGEST_NUMBER, SPECIAL_TOKENS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration

INITIAL_SCALE = 0.05  # of 128 channels; falls with the root of their number
_TEXT = {
    "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 2, 12]},
    "initializer_range": INITIAL_SCALE, "bos_token_id": None,
}  # fmt: skip
_VISION = {
    "depth": 3, "hidden_size": 128, "intermediate_size": 256, "num_heads": 4, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "out_hidden_size": 128,
    "fullatt_block_indexes": [0, 1, 2], "initializer_range": INITIAL_SCALE,
    "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
}  # fmt: skip
_MIDI_SCALE = INITIAL_SCALE / math.sqrt(3)
# Size -> settings of the language model and of the tower. Heads have 32 channels in mini, 64 in midi: vLLM takes both.
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mini": (_TEXT, _VISION),
    "midi": (
        _TEXT | {
            "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [4, 4, 24]},
            "initializer_range": _MIDI_SCALE,
        },
        _VISION | {
            "depth": 6, "hidden_size": 384, "intermediate_size": 768, "num_heads": 6, "out_hidden_size": 384,
            "fullatt_block_indexes": [0, 1, 2, 3, 4, 5], "initializer_range": _MIDI_SCALE,
        },
    ),
}  # fmt: skip


def new_mini(tokenizer: PreTrainedTokenizerFast, seed: int, size: str = "mini") -> Qwen2_5_VLForConditionalGeneration:
    """The model before any training. size: one of SIZES."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    pad, end = ids["<|endoftext|>"], ids["<|im_end|>"]
    text, vision = SIZES[size]
    config = Qwen2_5_VLConfig(
        text_config={**text, "vocab_size": len(tokenizer), "pad_token_id": pad, "eos_token_id": end},
        vision_config=dict(vision),
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=end,
    )
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config)
    model.generation_config.pad_token_id = pad
    model.generation_config.eos_token_id = end
    numbers = tokenizer.convert_tokens_to_ids([str(number) for number in range(LARGEST_NUMBER + 1)])
    embeddings = model.get_input_embeddings().weight.data
    embeddings[numbers] = 0.6 * embeddings[numbers] + 0.8 * smooth_embeddings(
        len(numbers), embeddings.shape[1], text["initializer_range"]
    )
    return model


def smooth_embeddings(count: int, width: int, scale: float) -> Tensor:
    """(count, width): sines and cosines of the number at random phases, slow ones the strongest.

    scale: their standard deviation.
    """
    frequencies = torch.exp(torch.linspace(math.log(0.5), math.log(24.0), width // 2)) * 2 * math.pi / count
    angles = torch.arange(count)[:, None] * frequencies + torch.rand(width // 2) * 2 * math.pi
    waves = torch.cat([angles.sin(), angles.cos()], dim=1) / frequencies.sqrt().repeat(2)
    return waves / waves.std() * scale


@torch.no_grad()
def standardise_tokens(merger: Any, tokens_NC: Tensor, scale: float) -> None:
    """Fold into the last layer of the merger that its output, of which tokens (N, C) are samples, has mean 0 and a
    standard deviation of `scale` in every channel: image tokens enter the language model as large as text does.
    """
    last = merger.mlp[2]
    factor = scale / (tokens_NC.std(dim=0) + 1e-6)
    last.weight.mul_(factor[:, None])
    last.bias.copy_((last.bias - tokens_NC.mean(dim=0)) * factor)
