"""Two processes over gloo: nothing hangs when one has nothing to verify, and both hold the same weights afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from processes import torchrun


def test_verifier_and_grpo(traces: Path, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("two_processes.py"))
    done = torchrun(script, str(traces.with_name("questions.jsonl")), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"process-{rank}.json").read_text()) for rank in (0, 1))
    assert (first["world"], second["world"]) == (2, 2)
    assert first["verdicts"] == [True, False, False] and second["verdicts"] == [False, False, False]
    assert first["weights"] == second["weights"]
    assert first["logged"] == second["logged"] and "rewards/logic/mean" in first["logged"]


def losses(folder: Path) -> dict[int, float]:
    log = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {entry["step"]: entry["loss"] for entry in log if "loss" in entry}


def test_a_resumed_run_continues_and_a_full_folder_is_refused_by_all(traces: Path, tmp_path: Path) -> None:
    script = str(Path(__file__).parents[1] / "training" / "sft.py")
    options = [
        "--data", str(traces), "--model", "tiny", "--out", str(tmp_path), "--max_steps", "4", "--save_steps", "2",
        "--save_total_limit", "2", "--logging_steps", "1", "--learning_rate", "2e-3", "--per_device_train_batch_size",
        "4", "--gradient_accumulation_steps", "1", "--gradient_checkpointing", "false",
    ]  # fmt: skip
    done = torchrun(script, *options)
    assert done.returncode == 0, done.stderr[-3000:]
    whole = losses(tmp_path)
    # As a kill after the first checkpoint leaves it.
    for name in ("frame.json", "model.safetensors", "trainer_state.json"):
        (tmp_path / name).unlink()
    shutil.rmtree(tmp_path / "checkpoint-4")
    done = torchrun(script, *options, "--resume")
    assert done.returncode == 0, done.stderr[-3000:]
    assert losses(tmp_path) == pytest.approx(whole)
    refused = torchrun(script, *options)
    assert refused.returncode != 0
    assert refused.stderr.count("is not empty") == 2
