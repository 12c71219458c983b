"""Run by torchrun in two processes: completions and losses of a run by TRL's own generation and with shared prefills.

torchrun --nproc_per_node 2 tests/sampling_processes.py questions.jsonl MODEL OUT [OPTION ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from sharp_model import drawn_like_generate

import training.rollouts.sampling
from data_gen.records import read_questions
from training import grpo
from training.grpo_arguments import parse_grpo

OPTIONS = [
    "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2", "--max_steps", "2", "--rewards",
    "format", "--max_completion_length", "12", "--learning_rate", "1e-3", "--save_strategy", "no", "--beta", "0",
]  # fmt: skip


def spread(completions: list[Any], **_: Any) -> list[float]:
    """A reward with spread in every group."""
    return [float(index % 3) for index, _ in enumerate(completions)]


def run(questions: Path, model: str, out: Path, options: list[str]) -> dict[str, Any]:
    """Completion ids of this process in all generation batches, losses, and how often each part of the model ran."""
    told = parse_grpo(["--data", str(questions), "--model", model, "--out", str(out), *OPTIONS, *options])
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, questions.parent)
    trainer.reward_funcs[0] = spread
    completions: list[list[int]] = []
    turn = trainer._generate_single_turn

    def recorded(*args: Any, **kwargs: Any) -> Any:
        ids, logps = turn(*args, **kwargs)
        completions.extend(ids)
        return ids, logps

    trainer._generate_single_turn = recorded
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        "world": trainer.accelerator.num_processes, "shared": trainer.shared_prefill, "completions": completions,
        "losses": losses, "zero3": bool(trainer._dist.is_zero3), "rank": trainer.accelerator.process_index,
    }  # fmt: skip


def main() -> None:
    """Both runs, one file per process."""
    training.rollouts.sampling.drawn_at_random = drawn_like_generate
    questions, model, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    seen = {
        name: run(questions, model, out / name, [*sys.argv[4:], *options])
        for name, options in (("shared", []), ("stock", ["--no_shared_prefill"]))
    }
    (out / f"process-{seen['shared']['rank']}.json").write_text(json.dumps(seen))
    # One that leaves while the other is still at work aborts it.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
