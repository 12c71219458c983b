"""Four SGD steps by TRL's own path and with shared prefixes, from the same weights: how far apart do they end?

torchrun --nproc_per_node 2 tests/prefix_processes.py CASE questions.jsonl MODEL OUT
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from accelerate.state import AcceleratorState
from sharp_model import SHARPER, sharp_tiny
from trl.trainer import grpo_trainer

from data_gen.records import read_questions
from training import grpo
from training.grpo_arguments import parse_grpo
from training.model import save_frame
from training.update.packing import shuffle_blocks

GROUP = 4


def zero_config(stage: int) -> str:
    """DeepSpeed's configuration as JSON; what is `auto` follows the trainer's options."""
    settings = {"zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
    auto = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    return json.dumps(settings | dict.fromkeys(auto, "auto"))


OPTIONS = [
    "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2", "--num_generations", str(GROUP),
    "--max_completion_length", "12", "--max_steps", "4", "--optim", "sgd", "--learning_rate", "0.05",
    "--lr_scheduler_type", "constant", "--gradient_checkpointing", "false", "--beta", "0", "--rewards", "format",
    "--save_strategy", "no", "--disable_tqdm", "true",
]  # fmt: skip
CASES = {
    "full": [],
    "checkpointed": ["--gradient_checkpointing", "true"],
    "iterations": ["--num_iterations", "2"],
    "reference": ["--beta", "0.1"],
    "lora": ["--use_peft", "--lora_r", "4", "--beta", "0.1", "--num_iterations", "2"],
    "frozen": ["--freeze", "vision", "--beta", "0.1"],
    "masked": ["--mask_truncated_completions", "true", "--max_completion_length", "6"],
    "subgroups": ["--per_device_train_batch_size", "6", "--gradient_accumulation_steps", "4"],
    "spanning": ["--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1"],  # two processes' group
    "everything": ["--gradient_checkpointing", "true", "--num_iterations", "2", "--beta", "0.1"],
}
CASES |= {f"zero{stage}": [*CASES["everything"], "--deepspeed", zero_config(stage)] for stage in (2, 3)}


@dataclass(frozen=True)
class Trained:
    """What one run left behind: start and end of every trained parameter, token ids of all completions, its log."""

    start: dict[str, torch.Tensor]
    end: dict[str, torch.Tensor]
    completions: list[list[int]]
    log: list[dict[str, Any]]
    shared: bool

    def moved(self) -> float:
        """Relative change of all parameters together by training."""
        start, end = (torch.cat([one.flatten() for one in of.values()]) for of in (self.start, self.end))
        return relative(end, start)


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    """Norm of the difference over the norm of the other."""
    return ((one - other).norm() / (other.norm() + 1e-12)).item()


def apart(one: Trained, other: Trained) -> float:
    """Largest relative difference of a parameter between two runs."""
    assert one.end.keys() == other.end.keys()
    return max(relative(one.end[name], other.end[name]) for name in other.end)


def save_sharp(folder: Path, sharper: float = SHARPER / 3) -> str:
    """The tiny model with sharp attention as a checkpoint; one token in eight ends a completion.

    A third as sharp as elsewhere: through several steps, rounding errors of the sharpest grow tenfold each.
    """
    loaded = sharp_tiny()
    with torch.no_grad():
        for layer in loaded.model.model.language_model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight.mul_(sharper / SHARPER)
    vocabulary = range(8, loaded.model.config.text_config.vocab_size)
    loaded.model.generation_config.eos_token_id = [loaded.processor.tokenizer.eos_token_id, *vocabulary[::8]]
    loaded.model.save_pretrained(folder)
    loaded.processor.save_pretrained(folder)
    save_frame(folder, loaded.frame, tiny=True)
    return str(folder)


def make_trainer(questions: Path, model: str, out: Path, *options: str) -> Any:
    """The real trainer on the questions."""
    words = ["--data", str(questions), "--model", model, "--out", str(out), *OPTIONS, *options]
    told = parse_grpo(words)
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, questions.parent)
    return trainer


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    """Copies of all trained parameters, whole ones under ZeRO-3 too."""
    gathered: Callable[[Any], Any] = lambda _: nullcontext()  # noqa: E731
    if trainer.is_deepspeed_enabled:
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters
    found = {}
    for name, parameter in trainer.accelerator.unwrap_model(trainer.model).named_parameters():
        if parameter.requires_grad:
            with gathered([parameter]):
                found[name] = parameter.detach().clone()
    return found


def train(trainer: Any) -> Trained:
    """Train with a reward that has spread in every group, whatever is written."""
    seen: list[list[int]] = []

    def tokens(completion_ids: list[list[int]], **_: Any) -> list[float]:
        seen.extend(completion_ids)
        return [sum(token % 7 for token in ids) / (4.0 * len(ids)) + len(ids) / 40 for ids in completion_ids]

    trainer.reward_funcs[0] = tokens
    start = weights(trainer)
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    return Trained(start, weights(trainer), seen, log, trainer.shared_prefix)


def train_stock(questions: Path, model: str, out: Path, *options: str) -> Trained:
    """TRL's own path, but for the order of the rows: groups (or `block` rows of them) stay together, as in ours."""
    trainer = make_trainer(questions, model, out, *options, "--shared_prefix", "false")
    from training.update.prefix import train_block

    kept = functools.partial(shuffle_blocks, block=train_block(trainer))
    with mock.patch.object(grpo_trainer, "shuffle_sequence_dict", kept):
        return train(trainer)


def train_both(questions: Path, model: str, out: Path, *options: str) -> tuple[Trained, Trained]:
    """(TRL's own path, shared prefixes) from the same weights and seeds."""
    stock = train_stock(questions, model, out / "stock", *options)
    return stock, train(make_trainer(questions, model, out / "shared", *options))


def main() -> None:
    """Both runs in this process, one of several; the first one writes what it saw."""
    case, questions, model, out = sys.argv[1:]
    stock, shared = train_both(Path(questions), model, Path(out), *CASES[case])
    plugin = AcceleratorState().deepspeed_plugin
    seen = {
        "zero_stage": plugin.zero_stage if plugin else 0,
        "world": torch.distributed.get_world_size(),
        "same_completions": stock.completions == shared.completions,
        "shared": [stock.shared, shared.shared],
        "apart": apart(shared, stock),
        "moved": stock.moved(),
        "losses": [[entry["loss"] for entry in run.log] for run in (stock, shared)],
    }
    if torch.distributed.get_rank() == 0:
        (Path(out) / "seen.json").write_text(json.dumps(seen))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
