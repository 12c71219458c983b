"""Run by torchrun in two processes: every kind of question to the verifier when only the first process has claims.

torchrun --nproc_per_node 2 tests/verifier_processes.py questions.jsonl OUT
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from test_training import grpo_trainer
from test_verification import LOGIC, TEXTS, response, teach_yes

from training.verification.verifier_options import VerifierOptions


def counted(trainer: Any) -> Counter[str]:
    """How often the verifier's model is opened to generate, and called with logits to compare, from now on."""
    calls: Counter[str] = Counter()
    opened, forward = trainer._opened_verifier, trainer.model.forward

    @contextmanager
    def seen_open() -> Any:
        calls["opened"] += 1
        with opened() as model:
            yield model

    def seen_forward(*args: Any, **kwargs: Any) -> Any:
        calls["compared"] += not kwargs["use_cache"]
        return forward(*args, **kwargs)

    trainer._opened_verifier, trainer.model.forward = seen_open, seen_forward
    return calls


def main() -> None:
    """Ask in both modes, with all meters, and write what each process saw."""
    questions, out = Path(sys.argv[1]), Path(sys.argv[2])
    trainer = grpo_trainer(questions, out / "run", *LOGIC, reward=None)
    first = trainer.accelerator.process_index == 0
    teach_yes(trainer, trainer.model)
    calls = counted(trainer)
    row = {**trainer.train_dataset[0], "task": "front_behind", "options": ["Yes", "No"], "answer": "No"}
    seen: dict[str, Any] = {"world": trainer.accelerator.num_processes}
    for mode in ("forward", "generate"):
        for filled in (True, False):
            trainer.verifier, trainer._compared_batch = VerifierOptions(mode, compare_steps=1), None
            trainer._metrics["train"].clear()
            calls.clear()
            texts = [*TEXTS[:3], response("No")] if filled and first else [TEXTS[3]] * 4
            completions = [[{"role": "assistant", "content": text}] for text in texts]
            trainer.model.train()
            rewards = trainer._calculate_rewards([row] * 4, [row["prompt"]] * 4, completions, [[0]] * 4)
            figures = {name: values for name, values in trainer._metrics["train"].items() if name.startswith("logic/")}
            seen[f"{mode} {filled}"] = {"rewards": rewards[:, 0].tolist(), "calls": dict(calls), "figures": figures}
    (out / f"process-{trainer.accelerator.process_index}.json").write_text(json.dumps(seen))
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
