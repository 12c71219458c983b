"""The generation phase of GRPO with and without shared prefill, and image decodes per generation batch.

    python tests/benchmarks/grpo_generation.py [--pairs 5] [--groups 4 8]

A small random Qwen2.5-VL, prompts of about 1,200 tokens of which 1,000 are an image, completions of 200 tokens. CPU
time of one thread, both ways in turns. Completions of both ways are compared. Prints ratios last.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from PIL import ImageFile

sys.path.insert(0, str(Path(__file__).parents[1]))

import small_questions

from data_gen.records import question_to_row, read_questions, write_rows
from training import grpo
from training.grpo_arguments import parse_grpo
from training.model import resolve_name, save_frame

SIZE = (1120, 700)  # 40 x 25 cells
NEW_TOKENS = 200
ASIDE = "Look closely at every car in the picture before you answer. " * 5
TEXT = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6, "num_attention_heads": 8}
VISION = {"depth": 6, "hidden_size": 128, "intermediate_size": 320, "num_heads": 4, "out_hidden_size": 256}


def write_model(folder: Path) -> None:
    """A small model from the tiny one's configuration, with its tokenizer and a pixel budget for `SIZE`."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    from training.model import load_model

    loaded = load_model("tiny", max_pixels=SIZE[0] * SIZE[1])
    told = Qwen2_5_VLConfig.from_pretrained(resolve_name("tiny")).to_dict()
    told["text_config"] |= TEXT
    told["vision_config"] |= VISION
    told["text_config"].pop("layer_types", None)  # one per layer, of the tiny model
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**told))
    model.generation_config = loaded.model.generation_config
    model.save_pretrained(folder)
    loaded.processor.save_pretrained(folder)
    save_frame(folder, loaded.frame, tiny=True)


def write_questions(folder: Path) -> None:
    """Questions with a long text about large pictures."""
    small_questions.SIZE = SIZE
    path = small_questions.write_small_set(folder)
    rows = [replace(item, question=ASIDE + item.question) for item in read_questions(path)]
    write_rows(path, map(question_to_row, rows))


def make_trainer(folder: Path, group: int, prompts: int, new_tokens: int) -> Any:
    """The real trainer, whose generation batch is some groups."""
    questions = folder / "questions.jsonl"
    options = [
        "--data", str(questions), "--model", str(folder / "model"), "--out", str(folder / "run"), "--overwrite",
        "--num_generations", str(group), "--per_device_train_batch_size", str(group), "--gradient_accumulation_steps",
        str(prompts), "--max_completion_length", str(new_tokens), "--rewards", "format", "--max_steps", "1",
        "--generation_kwargs", f'{{"min_new_tokens": {new_tokens}}}', "--save_strategy", "no", "--beta", "0",
        "--disable_tqdm", "true",
    ]  # fmt: skip
    told = parse_grpo(options)
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, None)
    return grpo.make_trainer(told, chosen, folder)[0]


def rows_of(trainer: Any, group: int) -> list[Any]:
    """One prompt, once per completion, with its image, as TRL puts them together."""
    from trl.data_utils import prepare_multimodal_messages

    row = trainer.train_dataset[0]
    return [prepare_multimodal_messages(row["prompt"], images=row["images"])] * group


def generate(trainer: Any, inputs: Any, group: int, shared: bool) -> tuple[float, list[list[int]]]:
    """CPU seconds of one generation phase, and its completions."""
    trainer.shared_prefill = shared
    torch.manual_seed(0)
    start = time.process_time()
    completions = trainer._generate_single_turn(*inputs, group)[0]
    return time.process_time() - start, completions


def compare(folder: Path, group: int, pairs: int) -> str:
    """One line: seconds of both ways, medians of pairs, and their ratio."""
    trainer = make_trainer(folder, group, 1, NEW_TOKENS)
    inputs = trainer._tokenize_prompts(rows_of(trainer, group))
    ids = inputs[0][0]
    print(f"G {group}: prompts of {len(ids)} tokens, {ids.count(trainer.model.config.image_token_id)} of them image")
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(pairs):
        runs = {shared: generate(trainer, inputs, group, shared) for shared in (False, True)}
        for shared, (spent, _) in runs.items():
            seconds[shared].append(spent)
        same = sum(one == other for one, other in zip(runs[True][1], runs[False][1], strict=True))
    ratios = [stock / shared for stock, shared in zip(seconds[False], seconds[True], strict=True)]
    return (
        f"G {group}: {median(seconds[False]):.2f} s by TRL's path, {median(seconds[True]):.2f} s shared, "
        f"{median(ratios):.2f} times as fast (median of {pairs} pairs); {same} of {group} completions equal"
    )


def count_decodes(folder: Path, group: int) -> str:
    """One line: files that Pillow decodes in a step of the real trainer, and the distinct images among its prompts."""
    trainer = make_trainer(folder, group, 8, 4)
    decoded: Counter[str] = Counter()
    load = ImageFile.ImageFile.load

    def counted(image: ImageFile.ImageFile) -> Any:
        decoded[str(image.filename)] += bool(image.tile)
        return load(image)

    with mock.patch.object(ImageFile.ImageFile, "load", counted):
        trainer.train()
    shown = {message["content"][0]["image"] for (message,) in trainer._logs["prompt"]}
    rows = len(trainer._logs["prompt"])
    return f"{sum(decoded.values())} image decodes in a generation batch of {rows} rows, {len(shown)} distinct images"


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="runs of both ways (default: %(default)s)")
    parser.add_argument("--groups", type=int, nargs="+", default=[4, 8], help="completions per prompt (default: 4 8)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_questions(folder)
        write_model(folder / "model")
        lines = [compare(folder, group, options.pairs) for group in options.groups]
        lines.append(count_decodes(folder, options.groups[0]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
