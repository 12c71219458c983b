"""A tiny Qwen2.5-VL from a config, with a byte-level tokenizer of its own: random weights, under 5 MB.

    python training/tiny.py --out runs/tiny

It exists so that the whole chain runs in minutes on two cores by the code that trains the 3B. `--model tiny` builds it
on first use and caches it. It knows nothing: scores near the floors are expected.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from data_gen.compass import DIRECTIONS
from data_gen.folders import OutputFolder
from data_gen.oracle_wording import all_sentences
from data_gen.prompts import STYLES, located_response, prompt_text, question_text, verifier_text
from data_gen.questions import SAME, SAME_DEPTH
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration

TINY_SEED = 0
VOCABULARY = 1400
# Sides of the images a tiny model is meant for are below this: every whole coordinate becomes one token.
LARGEST_NUMBER = 255
MAX_PIXELS = 224 * 112
SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Tags, whole numbers, separators with their blank, and words are the pieces that merges stay inside of.
_PIECES = r"</?[a-z]+>|\d+|[\[\]<>/]|[,:.;] ?| ?[A-Za-z]+|[^\sA-Za-z\d\[\]<>/,:.;]+|\s+"
_LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_COLOURS = ("white", "black", "grey", "silver", "red", "blue", "green", "yellow", "orange", "brown", "purple")
_BODIES = ("car", "truck", "bus", "bicycle", "motorcycle", "trailer", "van")
_CLOTHES = ("adult wearing a {} shirt", "child wearing a {} shirt")


def build_tiny(out: Path) -> None:
    """Write config, random weights, tokenizer, image processor and `frame.json` into `out`."""
    from training.processor import ImageOnlyProcessor, Qwen2VLImageProcessorPil

    tokenizer = train_tokenizer()
    image_processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": MAX_PIXELS})
    out.mkdir(parents=True, exist_ok=True)
    tiny_model(tokenizer).save_pretrained(out)
    ImageOnlyProcessor(image_processor, tokenizer, CHAT_TEMPLATE).save_pretrained(out)
    frame = CoordinateFrame("resized", min_pixels=28 * 28, max_pixels=MAX_PIXELS)
    (out / "frame.json").write_text(json.dumps({**frame.as_dict(), "tiny": True}) + "\n")


def cached_tiny() -> Path:
    """The folder of the cached tiny model, built when it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "drive-spatial-rl" / f"tiny-{_version()}"
    if not (cache / "frame.json").exists():
        partial = cache.with_name(f"{cache.name}.{os.getpid()}")
        # In a process of its own: under a distributed launcher transformers writes on the first rank only.
        alone = {name: value for name, value in os.environ.items() if name not in _LAUNCHER_VARIABLES}
        stderr_fd = 2  # sys.stderr need not be a file
        subprocess.run([sys.executable, __file__, "--out", str(partial)], env=alone, check=True, stdout=stderr_fd)
        if cache.exists() and not (cache / "frame.json").exists():
            shutil.rmtree(cache)
        try:
            partial.rename(cache)
        except OSError:  # another process was first
            shutil.rmtree(partial)
    return cache


def _version() -> str:
    """Changes with this file, the sentences that its tokenizer is trained on, and how its processor is saved."""
    import hashlib

    from data_gen import oracle_wording, prompts
    from training import processor

    sources = [Path(__file__), *(Path(str(module.__file__)) for module in (prompts, oracle_wording, processor))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def train_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE over the project's own sentences, with Qwen's special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _sentences() -> Iterator[str]:
    """What the tiny model will read and write: prompts of every task, names, numbers, responses."""
    names = [f"{colour} {body}" for colour, body in itertools.product(_COLOURS, _BODIES)]
    names += [wording.format(colour) for colour, wording in itertools.product(_COLOURS, _CLOTHES)]
    frame = CoordinateFrame("resized", max_pixels=MAX_PIXELS)
    for number in range(LARGEST_NUMBER + 1):
        yield from [str(number)] * 20
    for index, (first, task) in enumerate(itertools.product(names, TASKS)):
        second = names[(index * 7 + 3) % len(names)]
        for style, variant in itertools.product(STYLES, (0, 1)):
            question = question_text(task, [first, second], variant if task not in ("pixel", "depth") else 0)
            options = [*DIRECTIONS, SAME, SAME_DEPTH, f"The {first}", "Yes", "No", "Between 4 meters and 10 meters"]
            yield prompt_text(task, question, options, frame, (224, 126), style)
        yield located_response([(first, (1, 2, 3, 4)), (second, (5, 6, 7, 8))], f"The {first} and the {second}.", "Yes")
    for _ in range(30):
        yield from all_sentences()
    yield verifier_text("")


def tiny_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLForConditionalGeneration:
    """A Qwen2.5-VL of about a million parameters with seeded random weights.

    rope_theta 10: at Qwen's own 1e6 the width axis keeps only the lowest frequencies of so few channels.
    """
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    text = {
        "vocab_size": len(tokenizer), "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10.0, "mrope_section": [4, 6, 6]},
        "tie_word_embeddings": True, "initializer_range": 0.05, "pad_token_id": ids["<|endoftext|>"],
        "bos_token_id": None, "eos_token_id": ids["<|im_end|>"],
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 160, "num_heads": 2, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "out_hidden_size": 128,
        "fullatt_block_indexes": [1], "initializer_range": 0.05,
    }  # fmt: skip
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
        pad_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|im_end|>"],
    )
    torch.manual_seed(TINY_SEED)
    model = Qwen2_5_VLForConditionalGeneration(config)
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    model.generation_config.eos_token_id = ids["<|im_end|>"]
    return model


def main() -> None:
    """Build the tiny model into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/tiny"), help="folder to write (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="empty the folder first")
    options = parser.parse_args()
    try:
        OutputFolder(out := options.out, "checkpoint", overwrite=options.overwrite).prepare()
    except FileExistsError as error:
        parser.exit(2, f"error: {error}\n")
    build_tiny(out)
    print(f"tiny model (random weights) written to {out}")


if __name__ == "__main__":
    main()
