"""Processor time of the steps of a training command, one thread; run by hand with other trainings beside it.

    python tests/benchmarks/cpu_steps.py sft --model mini --data cot.jsonl --max_steps 6 --out OUT [--bf16 true] ...
    python tests/benchmarks/cpu_steps.py grpo --model mini --data questions.jsonl --max_steps 3 --out OUT ...

Takes the options of training/sft.py or training/grpo.py. The first two steps are printed, and left out of the mean.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

WARM_UP = 2


class StepTimes(TrainerCallback):
    """Prints the processor seconds of this process from step to step, rollouts and data loading included."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Called before the first step."""
        self.at.append(time.process_time())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Called after each step."""
        self.at.append(time.process_time())

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Called after the last step."""
        seconds = [end - start for start, end in zip(self.at, self.at[1:], strict=False)]
        counted = seconds[WARM_UP:]
        mean = f"{sum(counted) / len(counted):.2f}" if counted else "none, too few steps"
        print(f"CPU s per step: {' '.join(f'{value:.2f}' for value in seconds)}; mean {mean}")


def main() -> None:
    """Run the training with its steps timed."""
    if len(sys.argv) < 2 or sys.argv[1] not in ("sft", "grpo"):
        print(__doc__)
        raise SystemExit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)
    torch.set_num_threads(1)
    DEFAULT_CALLBACKS.append(StepTimes)
    importlib.import_module(f"training.{sys.argv[1]}").main([*sys.argv[2:], "--save_strategy", "no"])


if __name__ == "__main__":
    main()
