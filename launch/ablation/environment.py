"""The environment that the commands of a sweep run in."""

from __future__ import annotations

import os
import shutil

from ablation.study import ROOT, Study

CPU_SETTINGS = ROOT / "launch" / "cpu.env"


def environment(study: Study, parallel: int) -> dict[str, str]:
    """The environment of a study's commands, `parallel` at a time: this process's own and what it lacks.

    Without a GPU: the settings of `launch/cpu.env`, no hub where the model is here, and, whatever was set, the cores
    shared out as threads.
    """
    if shutil.which("nvidia-smi"):
        return {"TOKENIZERS_PARALLELISM": "false"} | dict(os.environ)
    hub = {"HF_HUB_OFFLINE": "1"} if study.model_is_here else {}
    threads = max(1, available_cores() // parallel)
    return cpu_settings() | hub | dict(os.environ) | {"OMP_NUM_THREADS": str(threads)}


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_settings() -> dict[str, str]:
    """The variables of `launch/cpu.env`."""
    lines = CPU_SETTINGS.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
