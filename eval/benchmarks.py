"""Which benchmark a file of questions is of, told from its first row, and the command that scores it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError
from data_gen.records import iterate_rows

TITLES = {"surds": "SURDS", "drivemllm": "DriveMLLM", "cyclingvqa": "CyclingVQA"}
# How question files are called in the folders that this project builds.
FILE_NAMES = ("questions.jsonl", "items.jsonl")


def benchmark_of_row(row: Mapping[str, Any]) -> str | None:
    """The benchmark whose questions have fields like these; None where nothing tells."""
    if {"kind", "paper_task"} & row.keys():
        return "drivemllm"
    if "choices" in row:
        return "cyclingvqa"
    return "surds" if "options" in row else None


def question_file(given: Path) -> Path:
    """The question file in a folder, or what is given where it is none or holds none by the usual names."""
    return next((given / name for name in FILE_NAMES if (given / name).is_file()), given)


def check_benchmark(path: Path, own: str) -> None:
    """Raise UsageError, with the command that scores it, for a question file of another benchmark than `own`."""
    if not path.is_file():
        return
    number, row = next(iterate_rows(path), (0, {}))
    found = benchmark_of_row(row)
    if found not in (None, own):
        raise UsageError(
            f"{path}, line {number}: a question of {TITLES[str(found)]}, not of {TITLES[own]}; score it with: "
            f"python eval/{found}.py --data {path}"
        )
