"""Run by torchrun in two processes: figures and held-out scores over both, and a fault in one of them.

torchrun --nproc_per_node 2 tests/two_reward_processes.py questions.jsonl MODEL

`here.py` with a reward `length` lies in the current folder.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any

from reward_runs import logged, reward_trainer

from data_gen.records import read_questions
from training.scoring.checked_rewards import RewardError
from training.scoring.held_out import Graded

HELD_OUT = 9  # no multiple of two processes or of batches


def fingerprinted(trainer: Any) -> list[list[float]]:
    """(place, a number that stands for the answer) of each held-out question; an untrained model scores nothing."""
    trainer._grade = lambda place, row, text: Graded(place, zlib.crc32(text.encode()) / 2**32, True)
    return [[item.place, item.score] for item in trainer._graded(list(trainer.eval_dataset))]


def fault_of(trainer: Any) -> str:
    """What a reward that raises in the second process says in this one."""

    def raises(completions: list[Any], **_: Any) -> list[float]:
        if trainer.accelerator.process_index == 1:
            raise LookupError("only in process 1")
        return [0.0 for _ in completions]

    trainer.reward_funcs[0] = raises
    try:
        trainer.train()
    except RewardError as fault:
        return str(fault)
    return "no fault"


def main() -> None:
    """Write what each process saw."""
    questions, model = Path(sys.argv[1]), sys.argv[2]
    asked = read_questions(questions)[:HELD_OUT]
    size = ["--per_device_eval_batch_size", "2", "--max_steps", "2", "--rewards", "reward_runs.hashed,here.length"]
    trainer = reward_trainer(questions, Path("run"), *size, held_out=asked, model=model)
    graded = fingerprinted(trainer)
    trainer.train()
    timed = ("time", "per_second", "runtime")
    seen = {
        "world": trainer.accelerator.num_processes,
        "graded": graded,
        "log": {name: value for name, value in logged(trainer).items() if not any(word in name for word in timed)},
        "fault": fault_of(reward_trainer(questions, Path("run"), "--rewards", "reward_runs.hashed")),
    }
    Path(f"process-{trainer.accelerator.process_index}.json").write_text(json.dumps(seen))
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
