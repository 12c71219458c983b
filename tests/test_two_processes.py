"""Two processes over gloo: nothing hangs when one has nothing to verify, and both hold the same weights afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_two_processes(traces: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(traces.with_name("questions.jsonl")), str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"process-{rank}.json").read_text()) for rank in (0, 1))
    assert (first["world"], second["world"]) == (2, 2)
    assert first["verdicts"] == [True, False, False] and second["verdicts"] == [False, False, False]
    assert first["weights"] == second["weights"]
    assert first["logged"] == second["logged"] and "rewards/logic/mean" in first["logged"]
