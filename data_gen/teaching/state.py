"""What a folder of teaching has come to: with which settings each stage was made, and whether it is finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from data_gen.command_line import UsageError
from data_gen.files import write_json
from data_gen.teaching.records import (
    DISTILLED_FILE,
    DRAFTS_FILE,
    REASONED_FILE,
    RULES_FOLDER,
    RUN_FILE,
    STAGES,
    TURNS_FILE,
    VERIFIED_FILE,
)

TRACES_FILE, SUMMARY_FILE = "cot.jsonl", "summary.json"
EARLIER_FOLDER = "earlier"
# The first is there as soon as the stage has begun.
FILES_OF = {
    "reason": (REASONED_FILE,),
    "rules": (RULES_FOLDER, DISTILLED_FILE),
    "write": (DRAFTS_FILE,),
    "verify": (VERIFIED_FILE, TURNS_FILE, TRACES_FILE, SUMMARY_FILE),
}


@dataclass(frozen=True)
class StageState:
    """settings: what decides what the stage writes. wall_s: how long it took, but for seconds before a kill."""

    settings: dict[str, Any]
    finished: bool = False
    wall_s: float = 0.0


@dataclass(frozen=True)
class RunState:
    """The content of run.json. stages: by name, those that were begun. prices: per million tokens, for the report."""

    stages: dict[str, StageState] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)

    def is_finished(self, stage: str) -> bool:
        """Whether a stage is finished."""
        return stage in self.stages and self.stages[stage].finished

    def with_stage(self, stage: str, state: StageState) -> RunState:
        """The same with another state of one stage."""
        return replace(self, stages={**self.stages, stage: state})

    def before(self, first: str) -> RunState:
        """The same without a stage and all that build on it."""
        stale = from_stage(first)
        return replace(self, stages={name: held for name, held in self.stages.items() if name not in stale})


def read_state(out: Path) -> RunState:
    """The state of a folder; a stage without its file was not begun. Raises UsageError for a broken file."""
    path = out / RUN_FILE
    if not path.is_file():
        return RunState()
    try:
        state = msgspec.json.decode(path.read_bytes(), type=RunState)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no state of a run ({error}); start anew with --overwrite") from error
    begun = {stage: held for stage, held in state.stages.items() if (out / FILES_OF[stage][0]).exists()}
    return replace(state, stages=begun)


def write_state(out: Path, state: RunState) -> None:
    """Write run.json."""
    write_json(out / RUN_FILE, asdict(state))


def check_settings(out: Path, stage: str, held: StageState, wanted: dict[str, Any]) -> None:
    """Raise UsageError naming what differs between what a stage was made with and what is asked for now."""
    wanted = json.loads(json.dumps(wanted))
    differing = [name for name in {**held.settings, **wanted} if held.settings.get(name) != wanted.get(name)]
    if differing:
        told = "; ".join(f"{name} {held.settings.get(name)!r} -> {wanted.get(name)!r}" for name in differing)
        anew = f"make this stage and the later ones anew with --stages {stage}, " if held.finished else ""
        raise UsageError(
            f"the stage {stage} in {out} was made with other settings ({told}); choose another --out, {anew}or start "
            "all anew with --overwrite"
        )


def set_aside(out: Path, state: RunState, first: str) -> RunState:
    """Move the files of a stage and of all later ones to a folder of their own; the state without these stages."""
    stale = from_stage(first)
    there = [out / name for stage in reversed(stale) for name in reversed(FILES_OF[stage]) if (out / name).exists()]
    if there:
        folder = _next_folder(out / EARLIER_FOLDER)
        folder.mkdir(parents=True)
        for path in there:
            path.rename(folder / path.name)
        print(f"{', '.join(path.name for path in reversed(there))} moved to {folder}")
    state = state.before(first)
    write_state(out, state)
    return state


def from_stage(first: str) -> tuple[str, ...]:
    """A stage and all that build on it."""
    return STAGES[STAGES.index(first) :]


def unfinished(state: RunState, stages: Sequence[str]) -> list[str]:
    """Those of some stages that are not finished."""
    return [stage for stage in stages if not state.is_finished(stage)]


def _next_folder(parent: Path) -> Path:
    taken = [int(path.name) for path in parent.glob("*") if path.name.isdigit()]
    return parent / str(max(taken, default=0) + 1)
