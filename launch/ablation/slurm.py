"""A sweep as Slurm jobs: a batch script per unit, and submit.sh, which says which job waits for which.

Partition, account and time come from the environment that sbatch reads (SBATCH_PARTITION, SBATCH_ACCOUNT,
SBATCH_TIMELIMIT). Jobs of an interrupted sweep are written and submitted again: their commands keep what they finished.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablation.plan import DATA, Place, Unit
from ablation.state import Marks, how
from ablation.study import ROOT, Study, StudyError


def write_jobs(
    units: Sequence[Unit], tables: Mapping[str, Sequence[str]], place: Place, study: Study, marks: Marks,
    options: argparse.Namespace,
) -> int:  # fmt: skip
    """Write the scripts of the units and of the tables into the run folder; submit them if told. Raises StudyError."""
    folder = ROOT / place.run / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    for unit in units:
        told = marks.read(unit)
        lines = [command.line(how(command, told.get(command.stage), options.overwrite)) for command in unit.commands]
        gpus = 0 if unit.name == DATA else study.gpus
        (folder / f"{unit.name}.sh").write_text(job(unit.name, lines, folder, gpus), encoding="utf-8")
    if tables:
        lines = [shlex.join(words) for words in tables.values()]
        (folder / "tables.sh").write_text(job("tables", lines, folder, 0), encoding="utf-8")
    script = folder / "submit.sh"
    script.write_text(submission(units, folder, bool(tables)), encoding="utf-8")
    print(f"{len(units)} jobs written; submit them with: bash {script}")
    if not options.submit:
        return 0
    if shutil.which("sbatch") is None:
        raise StudyError("--submit needs sbatch, which is not on this machine")
    return subprocess.run(["bash", str(script)]).returncode


def job(name: str, lines: Sequence[str], folder: Path, gpus: int) -> str:
    """A batch script that runs the lines in the checkout and ends at the first that fails.

    Without GPUs it takes the settings of `launch/cpu.env`.
    """
    head = [f"#SBATCH --job-name={name}", f"#SBATCH --output={folder / name}.log", "#SBATCH --nodes=1"]
    head += [f"#SBATCH --gpus-per-node={gpus}"] if gpus else []
    begin = ["set -euo pipefail", f"cd {shlex.quote(str(ROOT))}"]
    begin += [] if gpus else ["set -a && source launch/cpu.env && set +a"]
    return "\n".join(["#!/usr/bin/env bash", *head, *begin, *lines, ""])


def submission(units: Sequence[Unit], folder: Path, tables: bool) -> str:
    """The script that submits the jobs, each after those that it needs, the tables when all have ended, well or not."""
    names = {unit.name for unit in units}
    lines = ["#!/usr/bin/env bash", "# Submits the jobs of the sweep, each to begin after those that it needs.",
             "set -euo pipefail", f"cd {shlex.quote(str(folder))}", "declare -A job"]  # fmt: skip
    lines += [_sbatch(unit.name, [need for need in unit.needs if need in names]) for unit in units]
    lines += [_sbatch("tables", [unit.name for unit in units], "afterany")] if tables else []
    return "\n".join([*lines, 'echo "submitted: ${job[*]}"', ""])


def _sbatch(name: str, needs: Sequence[str], when: str = "afterok") -> str:
    # What needs a job that failed is cancelled; left alone it would wait for ever.
    after = "".join(f":${{job[{need}]}}" for need in needs)
    waits = f"--dependency={when}{after} --kill-on-invalid-dep=yes " if after else ""
    return f"job[{name}]=$(sbatch --parsable {waits}{name}.sh)"
