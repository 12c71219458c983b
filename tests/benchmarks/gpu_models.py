"""The models of the check on a GPU: the tiny one, and one of Qwen2.5-VL-3B's shape with random weights."""

from __future__ import annotations

from typing import Any

import torch


def tiny(max_pixels: int) -> Any:
    """The tiny model with a pixel budget."""
    from training.model import load_model

    return load_model("tiny", max_pixels=max_pixels)


def full_size(max_pixels: int) -> Any:
    """Qwen2.5-VL-3B's shape with random weights, and the tiny model's tokenizer (its ids fit into the vocabulary)."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    from training.model import LoadedModel

    small = tiny(max_pixels)
    ids = {name: getattr(small.model.config, name) for name in ("image_token_id", "video_token_id")}
    ids["vision_start_token_id"] = small.model.config.vision_start_token_id
    text = {
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 2, "max_position_embeddings": 128000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        "tie_word_embeddings": True, "pad_token_id": small.processor.tokenizer.pad_token_id,
        "bos_token_id": None, "eos_token_id": small.processor.tokenizer.eos_token_id,
    }  # fmt: skip
    vision = {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "out_hidden_size": 2048,
        "fullatt_block_indexes": [7, 15, 23, 31],
    }  # fmt: skip
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)
    with torch.device("cuda"):
        model = Qwen2_5_VLForConditionalGeneration(config)
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(small.processor.tokenizer, name)
        setattr(model.config, name, value)
        setattr(model.generation_config, name, value)
    return LoadedModel(model, small.processor, small.frame, "3B, random weights")
