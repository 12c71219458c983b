"""Run by torchrun in two processes: the verifier in lockstep, and GRPO steps that keep the processes equal.

torchrun --nproc_per_node 2 tests/two_processes.py questions.jsonl OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from data_gen.records import read_questions
from training import grpo
from training.grpo_arguments import parse_grpo
from training.verification.verifier import VerifierJob, greedy_agreement

OPTIONS = [
    "--model", "tiny", "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "1", "--max_steps", "2",
    "--max_completion_length", "12", "--gradient_checkpointing", "false", "--learning_rate", "1e-3",
]  # fmt: skip


def spread(completions: list[Any], **_: Any) -> list[float]:
    """A reward with spread in every group."""
    return [float(index % 3) for index, _ in enumerate(completions)]


def lone_verifier(model: Any, accelerator: Accelerator) -> list[bool]:
    """Jobs on the first process only: the second must still make its forward passes, and get nothing."""
    prefix = tuple(range(40, 60))
    ids = torch.tensor([prefix])
    out = model.generate(input_ids=ids, max_new_tokens=3, min_new_tokens=3, do_sample=False)[0, len(prefix) :].tolist()
    right, wrong = VerifierJob(prefix, tuple(out)), VerifierJob(prefix, (out[0], out[1], (out[2] + 1) % 300))
    jobs = [right, wrong, None] if accelerator.process_index == 0 else [None, None, None]
    passes = 0

    def counted(**inputs: Any) -> Any:
        nonlocal passes
        passes += 1
        return model(**inputs)

    verdicts = greedy_agreement(counted, jobs, 0, 1, accelerator)
    assert passes == 2, f"process {accelerator.process_index} made {passes} forward passes"
    return verdicts


def main() -> None:
    """Do both, and write what each process saw."""
    questions, out = sys.argv[1], Path(sys.argv[2])
    told = parse_grpo(["--data", questions, "--out", str(out / "run"), *OPTIONS])
    chosen = grpo.choose_questions(read_questions(Path(questions)), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, Path(questions).parent)
    trainer.reward_funcs[0] = spread
    verdicts = lone_verifier(trainer.model, trainer.accelerator)
    trainer.train()
    weights = torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])
    logged = sorted({name for entry in trainer.state.log_history for name in entry if name.startswith("rewards/")})
    seen = {
        "world": trainer.accelerator.num_processes,
        "verdicts": verdicts,
        "weights": [weights.double().sum().item(), weights.double().norm().item()],
        "logged": logged,
    }
    (out / f"process-{trainer.accelerator.process_index}.json").write_text(json.dumps(seen))
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
