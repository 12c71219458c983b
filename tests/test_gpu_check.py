"""The check for a GPU machine runs where there is none, by the same code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_dry_run_measures_every_phase(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = ["bash", str(ROOT / "launch" / "gpu_check.sh"), "--dry-run", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(out.read_text())
    assert set(figures["chain"]) == {"sft", "grpo"}
    for group in ("4", "8"):
        phases = figures["phases"][group]
        assert phases["image_tokens"] < phases["prompt_tokens"]
        for phase in ("generation", "update"):
            assert all(phases[phase][path]["seconds"] > 0 for path in ("trl", "shared"))
        assert phases["verifier"]["disagree"] == 0.0
        assert phases["log_probs_apart"]["shared_against_trl"] < 1e-5
