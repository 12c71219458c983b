"""Run by torchrun in two processes: which questions each process's rewards see, under all that sets their order.

torchrun --nproc_per_node 2 tests/schedule_processes.py questions.jsonl stages.yaml OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from data_gen.records import read_questions
from training import grpo
from training.grpo_arguments import parse_grpo

OPTIONS = [
    "--model", "tiny", "--per_device_train_batch_size", "4", "--num_generations", "2", "--max_completion_length", "2",
    "--gradient_checkpointing", "false", "--gradient_accumulation_steps", "2", "--beta", "0", "--learning_rate", "1e-3",
    "--save_strategy", "no",
]  # fmt: skip


def runs(stages: str) -> dict[str, list[str]]:
    """Options of each run; a process's share of a generation batch is 4 or 8 prompts."""
    return {
        "epochs": ["--rewards", "acc,pair", "--num_iterations", "2", "--num_train_epochs", "2", "--limit", "24"],
        "longer batches": ["--rewards", "acc,pair", "--steps_per_generation", "4", "--max_steps", "2"],
        "stages": ["--stages", stages, "--curriculum", "pass-rate", "--dynamic_sampling", "3"],
    }


class Watched:
    """A reward that notes the groups of every call; spread in about half of all questions."""

    __name__ = "acc"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, completions: list[Any], question_id: list[str], **_: Any) -> list[float]:
        assert len(completions) == len(question_id)
        assert question_id[::2] == question_id[1::2], "a group does not lie together"
        self.calls.append(question_id[::2])
        return [float(place % 2 and sum(map(ord, name)) % 3 > 0) for place, name in enumerate(question_id)]


def final_batches(trainer: Any) -> list[list[float]]:
    """Filled with the spread of the advantages of every group that reaches the update."""
    spreads: list[list[float]] = []
    generate = trainer._generate_and_score_completions

    def noted(inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = generate(inputs)
        groups = batch["advantages"].view(-1, trainer.num_generations)
        spreads.append((groups.amax(1) - groups.amin(1)).tolist())
        return batch

    trainer._generate_and_score_completions = noted
    return spreads


def one_run(questions: Path, out: Path, options: list[str]) -> dict[str, Any]:
    """Train, and say what this process saw."""
    told = parse_grpo(["--data", str(questions), "--out", str(out), *OPTIONS, *options])
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, questions.parent)
    trainer.reward_funcs[trainer.reward_func_names.index("acc")] = reward = Watched()
    spreads = final_batches(trainer)
    trainer.train()
    weights = torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()]).double()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "calls": reward.calls, "order": trainer.order, "spreads": spreads, "weights": weights.norm().item(),
        "steps": trainer.state.global_step, "logged": [{k: v for k, v in e.items() if "/" in k} for e in logged],
    }  # fmt: skip


def main() -> None:
    """All runs, one after another."""
    questions, stages, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    seen: dict[str, Any] = {}
    for number, (name, options) in enumerate(runs(stages).items()):
        seen[name] = one_run(questions, out / str(number), options)
    process = torch.distributed.get_rank()
    (out / f"process-{process}.json").write_text(json.dumps(seen))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
