"""Starts a test's script in two processes, over gloo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest


def torchrun(*words: str, cwd: Path | None = None, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """`torchrun --nproc_per_node 2 WORDS`, finished; one that hangs fails the test and shows the stacks of all."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment
    ) as agent:
        try:
            stdout, stderr = agent.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            # The workers hold the pipes too: to kill the agent alone would be to wait for them for ever.
            for process in [*psutil.Process(agent.pid).children(recursive=True), psutil.Process(agent.pid)]:
                process.send_signal(signal.SIGABRT)
            pytest.fail(f"still running after {timeout_s:g} s: {words[0]}\n{agent.communicate()[1]}", pytrace=False)
    return subprocess.CompletedProcess(command, agent.returncode, stdout, stderr)
