"""Short GRPO runs on the tiny model, with rewards that differ between the completions of an untrained model."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_gen.records import Question, read_questions
from rewards.settings import completion_text
from training import grpo
from training.grpo_arguments import parse_grpo
from training.scoring.held_out_questions import HeldOut, check_schedule

OPTIONS = [
    "--gradient_checkpointing", "false", "--gradient_accumulation_steps", "1", "--per_device_train_batch_size", "8",
    "--max_completion_length", "8", "--learning_rate", "1e-3", "--max_steps", "1", "--save_strategy", "no",
]  # fmt: skip


def hashed(completions: Sequence[object], **_: Any) -> list[float | None]:
    """A reward that depends on the text alone and differs between nearly all texts."""
    return [zlib.crc32(completion_text(item).encode()) % 1000 / 1000 for item in completions]


def rehashed(completions: Sequence[object], **_: Any) -> list[float | None]:
    """Another such reward."""
    return [zlib.crc32(completion_text(item).encode()[::-1]) % 1000 / 1000 for item in completions]


def of_pixels(completions: Sequence[object], task: Sequence[str], **_: Any) -> list[float | None]:
    """A reward that applies to one task."""
    return [1.0 if name == "pixel" else None for name in task]


def pair(completions: Sequence[object], **_: Any) -> list[float | None]:
    """A reward under the name of one of ours."""
    return [None for _ in completions]


NO_FUNCTION = 7  # something of this module that cannot be called


def reward_trainer(
    questions: Path, out: Path, *options: str, held_out: Sequence[Question] = (), model: str = "tiny"
) -> Any:
    """The real trainer as the command line makes it; the images of `held_out` lie beside `questions`."""
    told = parse_grpo(["--data", str(questions), "--out", str(out), "--model", model, *OPTIONS, *options])
    scored = HeldOut(tuple(held_out), questions.parent) if held_out else None
    if scored:
        told.schedule.held_out = str(questions)
    check_schedule(told.schedule, told.config)
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, questions.parent, scored)
    return trainer


def logged(trainer: Any) -> dict[str, Any]:
    """The last value of every key in the log."""
    return {name: value for entry in trainer.state.log_history for name, value in entry.items()}
