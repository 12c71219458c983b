"""What of a sweep is done: finished rows under results/, finished commands in the run folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ablation.commands import Command
from ablation.plan import Unit
from ablation.study import ROOT, StudyError

DONE, OPEN, OTHER = "done", "open", "made by other commands"
# In place of a digest while a command replaces what is there: nobody knows then whose it is.
REPLACED = "replaced"
# Beside the rows' results: what they are scored on, written by the first of them.
QUESTIONS_FILE = "questions.json"


@dataclass(frozen=True)
class Mark:
    """A command that was begun. digest: of the command as it was then, or REPLACED; seconds: spent on it so far."""

    digest: str
    finished: bool
    seconds: float


class Marks:
    """The marks of a run folder, a file for each unit: stage -> mark."""

    def __init__(self, run: str) -> None:
        self.folder = ROOT / run / "marks"

    def read(self, unit: Unit) -> dict[str, Mark]:
        """What was begun of a unit."""
        path = self.path(unit)
        if not path.is_file():
            return {}
        return {stage: Mark(**told) for stage, told in json.loads(path.read_text(encoding="utf-8")).items()}

    def write(self, unit: Unit, stage: str, mark: Mark) -> None:
        """Replace the mark of one stage."""
        marks = self.read(unit) | {stage: mark}
        path = self.path(unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps({name: asdict(told) for name, told in marks.items()}, indent=1), encoding="utf-8")
        part.replace(path)

    def path(self, unit: Unit) -> Path:
        """The file of a unit's marks."""
        return self.folder / f"{unit.name}.json"


def is_finished(command: Command, mark: Mark | None) -> bool:
    """Whether the output of a command is there and of these very words."""
    return mark is not None and mark.finished and mark.digest == command.digest and _is_there(command)


def how(command: Command, mark: Mark | None, overwrite: bool) -> str:
    """--overwrite for what other words had begun and, where `overwrite` is asked for, for what no mark tells of."""
    unknown = overwrite and mark is None and _is_there(command)
    return "--overwrite" if unknown or (mark is not None and mark.digest != command.digest) else "--resume"


def _is_there(command: Command) -> bool:
    return (ROOT / os.path.expandvars(command.out)).exists()


def state_of(unit: Unit, marks: Marks) -> str:
    """Whether a unit is done: a row by its file under results/, which needs no run folder; else by its marks."""
    if unit.result is not None and (ROOT / unit.result).is_file():
        return DONE if _digest_in(ROOT / unit.result) == unit.digest else OTHER
    told = marks.read(unit)
    if any(command.stage in told and told[command.stage].digest != command.digest for command in unit.commands):
        return OTHER
    whole = unit.result is None and all(is_finished(command, told.get(command.stage)) for command in unit.commands)
    return DONE if whole else OPEN


def _digest_in(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["commands"])
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{path} is no result of a row ({error}); remove it") from error


def refuse_others(units: Iterable[Unit], states: dict[str, str], marks: Marks) -> None:
    """Raise StudyError when something that is there was made by other commands, naming it."""
    others = [unit for unit in units if states[unit.name] == OTHER]
    if not others:
        return
    files = [_evidence(unit, marks) for unit in others]
    listed = "\n  ".join(str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path) for path in files)
    raise StudyError(
        f"made by other commands or configs than those of now:\n  {listed}\n"
        "--overwrite makes them anew; another --results and --out keeps them"
    )


def forget_results(units: Iterable[Unit]) -> None:
    """Delete the results of rows that are about to be made anew: no table shows them beside those of now.

    With the last result of a folder goes what they were scored on, which may be another test set now.
    """
    for path in [ROOT / unit.result for unit in units if unit.result is not None]:
        if path.is_file():
            path.unlink()
            if not any(path.parent.glob("*-*.json")):
                (path.parent / QUESTIONS_FILE).unlink(missing_ok=True)


def _evidence(unit: Unit, marks: Marks) -> Path:
    """The file that tells what a unit was made by."""
    result = ROOT / unit.result if unit.result else marks.path(unit)
    return result if result.is_file() else marks.path(unit)
