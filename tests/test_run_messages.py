"""What a training run tells a person: its first line, an interruption, and the card of what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import Trainer

from training import grpo, sft

FAST = ["--gradient_checkpointing", "false", "--gradient_accumulation_steps", "1", "--model", "tiny"]
SFT = [*FAST, "--per_device_train_batch_size", "4", "--max_steps", "3", "--save_steps", "2"]
GRPO = [*FAST, "--per_device_train_batch_size", "8", "--max_completion_length", "12", "--max_steps", "1"]


def test_an_interruption_tells_where_the_same_command_goes_on(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--data", str(traces), "--out", str(tmp_path / "run"), *SFT]
    steps, train_step = [0], Trainer.training_step

    def interrupted(self: Trainer, *inputs: Any, **named: Any) -> Any:
        steps[0] += 1
        if steps[0] in (1, 4):
            raise KeyboardInterrupt
        return train_step(self, *inputs, **named)

    monkeypatch.setattr(Trainer, "training_step", interrupted)
    for places in ("the start", "checkpoint-2"):
        with pytest.raises(SystemExit, match="130"):
            sft.main([*words, "--resume"])
        assert f"--resume goes on from {places}" in capsys.readouterr().err.replace(f"{tmp_path}/run/", "")
    sft.main([*words, "--resume"])
    assert (tmp_path / "run" / "frame.json").exists()


def test_an_adapter_has_our_card_and_the_first_line_names_weights_and_processes(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(traces.with_name("questions.jsonl")), "--out", str(tmp_path / "run"), *GRPO, "--use_peft"]
    grpo.main([*words, "--rewards", "format,loc,acc", "--reward_weights", "1", "0", "0.5"])
    first = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("tiny: "))
    assert "rewards format,loc,acc (weights 1, 0, 0.5); 1 process" in first
    card = (tmp_path / "run" / "README.md").read_text()
    assert card.startswith("# run\n") and "by GRPO from `tiny`" in card and "PEFT" not in card
