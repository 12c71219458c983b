"""A randomly initialised InstructBLIP of a few thousand weights, as a folder that transformers loads."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    InstructBlipConfig,
    InstructBlipForConditionalGeneration,
    InstructBlipProcessor,
    LlamaConfig,
    PreTrainedTokenizerFast,
    T5Config,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

WORDS = (
    "<pad>", "<s>", "</s>", "<unk>", "<image>", "white", "black", "red", "blue", "green", "shirt", "jacket", "car",
    "the", "is", "a", "not", "What", "colour", "Which", "garment", "does", "in", "middle", "wear", "Answer", "adult",
    "bus", "?", ":", ",",
)  # fmt: skip
QUERY_TOKENS, SIDE_PX = 4, 28
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LANGUAGES = {
    "vicuna": LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        initializer_range=0.5, **_SPECIAL,
    ),
    "t5": T5Config(
        vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, initializer_factor=5.0,
        decoder_start_token_id=0, **_SPECIAL,
    ),
}  # fmt: skip


def write_tiny_blip(folder: Path, language: str = "vicuna", seed: int = 0) -> Path:
    """Write config, weights and processor; the language model is a decoder (`vicuna`) or has an encoder too (`t5`)."""
    torch.manual_seed(seed)
    config = InstructBlipConfig(
        vision_config={
            "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": SIDE_PX, "patch_size": 14, "initializer_range": 0.5,
        },
        qformer_config={
            "vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 32, "max_position_embeddings": 64, "initializer_range": 0.5,
        },
        text_config=_LANGUAGES[language].to_dict(),
        num_query_tokens=QUERY_TOKENS,
        image_token_index=WORDS.index("<image>"),
    )  # fmt: skip
    InstructBlipForConditionalGeneration(config).save_pretrained(folder)
    image_processor = BlipImageProcessorPil(size={"height": SIDE_PX, "width": SIDE_PX})
    InstructBlipProcessor(image_processor, _tokenizer(), _tokenizer(), QUERY_TOKENS).save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
