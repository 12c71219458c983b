"""Works through the units of a sweep, several at a time, each command a process with its output in a log of the unit.

A unit that fails leaves the others to go on, but for those that need it. Whoever calls `advance` again and again sees
the sweep to its end; `stop` ends all processes.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ablation.commands import Command, executable
from ablation.plan import Place, Unit
from ablation.progress import Step, duration, has_own_bar, last_step, tail
from ablation.state import DONE, REPLACED, Mark, Marks, how, is_finished, state_of
from ablation.study import ROOT, StudyError

GRACE_S = 20


@dataclass
class Running:
    """A unit in work. way: --resume or --overwrite. log_start: bytes of the log of earlier commands.

    begun_s: by the clock, of this command; before_s: spent on it by earlier calls. first: the first step seen, when.
    at_work: it has shown a bar of its own, so that what it replaces is gone.
    """

    unit: Unit
    command: Command
    way: str
    process: subprocess.Popen[bytes]
    log_start: int
    begun_s: float
    before_s: float
    first: tuple[Step, float] | None = None
    now: Step | None = None
    at_work: bool = False

    def look(self, log: Path) -> None:
        """Read from the log how far the command is."""
        said = tail(log, self.log_start)
        self.now = last_step(said)
        self.at_work = self.at_work or has_own_bar(said)
        # What resumes shows step 0 and then leaps to where it goes on: no pace is reckoned from there.
        if self.now is not None and (
            self.first is None or self.first[0].total != self.now.total or not self.first[0].number
        ):
            self.first = (self.now, time.monotonic())


@dataclass
class Work:
    """The units that are left and how they stand.

    environment: of each command. order: names of the units, those first that should begin first. plan_anew: digests of
    the units by the configs as they are at that time. overwrite: replace what no mark tells of. locks: open files that
    hold the run folder, for as long as any command lives.
    """

    units: Sequence[Unit]
    place: Place
    parallel: int
    marks: Marks
    environment: Mapping[str, str]
    order: Sequence[str]
    plan_anew: Callable[[], Mapping[str, str]]
    overwrite: bool = False
    locks: tuple[int, ...] = ()
    running: dict[str, Running] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)

    def advance(self) -> list[str]:
        """Look after what runs, begin what can begin; what happened, a line each."""
        events = [line for name in list(self.running) if (line := self._look_after(self.running[name]))]
        by_name = {unit.name: unit for unit in self.units}
        for name in self.order:
            if len(self.running) < self.parallel and self._can_begin(by_name[name]):
                events.append(self._next(by_name[name]) or f"{name}: begins")
        return events

    @property
    def blocked(self) -> list[str]:
        """Units that need one that failed, directly or not."""
        names: list[str] = []
        for unit in self.units:
            if any(need in self.failed or need in names for need in unit.needs):
                names.append(unit.name)
        return names

    @property
    def over(self) -> bool:
        """Whether nothing is left that could be done."""
        return len(self.done) + len(self.failed) + len(self.blocked) == len(self.units)

    def log(self, unit: Unit) -> Path:
        """The file with the output of a unit's commands."""
        return ROOT / self.place.run / "logs" / f"{unit.name}.log"

    def stop(self) -> None:
        """End all processes of all commands, and note the time that they took."""
        for running in self.running.values():
            os.killpg(running.process.pid, signal.SIGTERM)
        for running in self.running.values():
            try:
                running.process.wait(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(running.process.pid, signal.SIGKILL)
                running.process.wait()
            self._mark(running, finished=False)
        self.running.clear()

    def _can_begin(self, unit: Unit) -> bool:
        seen = unit.name in self.running or unit.name in self.done or unit.name in self.failed
        names = {other.name for other in self.units}
        return not seen and all(need in self.done or need not in names for need in unit.needs)

    def _next(self, unit: Unit) -> str | None:
        """Begin the first command that is not finished; what happened where none is begun."""
        told = self.marks.read(unit)
        for command in unit.commands:
            if command.resumable and is_finished(command, told.get(command.stage)):
                continue
            if self.plan_anew()[unit.name] != unit.digest:
                return self._failure(unit, "its configs were changed since the sweep began; give the same line again")
            mark = told.get(command.stage)
            way = how(command, mark, self.overwrite)
            unfinished = mark is not None and way == "--resume" and not mark.finished
            self._begin(unit, command, way, mark.seconds if mark is not None and unfinished else 0.0)
            return None
        return self._ended(unit)

    def _begin(self, unit: Unit, command: Command, way: str, before_s: float) -> None:
        log = self.log(unit)
        log.parent.mkdir(parents=True, exist_ok=True)
        digest = command.digest if way == "--resume" else REPLACED
        self.marks.write(unit, command.stage, Mark(digest, False, before_s))
        with log.open("ab") as file:
            file.write(f"\n$ {command.line(way)}\n".encode())
            file.flush()
            log_start = file.tell()
            words = executable([*command.words, way] if command.resumable else command.words)
            # A session of its own, so that it ends with all its processes.
            process = subprocess.Popen(
                words, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True, pass_fds=self.locks,
            )  # fmt: skip
        self.running[unit.name] = Running(unit, command, way, process, log_start, time.monotonic(), before_s)

    def _look_after(self, running: Running) -> str | None:
        status = running.process.poll()
        if status is None:
            running.look(self.log(running.unit))
            return None
        del self.running[running.unit.name]
        if status:
            self._mark(running, finished=False)
            return self._failure(running.unit, f"{running.command.stage} ended with status {status}")
        self._mark(running, finished=True)
        if running.command == running.unit.commands[-1]:
            return self._ended(running.unit)
        if not is_finished(running.command, self.marks.read(running.unit)[running.command.stage]):
            return self._failure(running.unit, f"{running.command.stage} ended well without {running.command.out}")
        return self._next(running.unit)

    def _ended(self, unit: Unit) -> str:
        """A unit has come to its end; it failed all the same when its result is not there."""
        if state_of(unit, self.marks) == DONE:
            self.done.add(unit.name)
            spent_s = sum(mark.seconds for mark in self.marks.read(unit).values())
            return f"{unit.name}: done in {duration(spent_s)}"
        return self._failure(unit, f"its commands ended well, but {unit.commands[-1].out} is not there or not of them")

    def _failure(self, unit: Unit, reason: str) -> str:
        self.failed[unit.name] = reason
        return f"{unit.name}: FAILED, {reason}"

    def _mark(self, running: Running, finished: bool) -> None:
        if running.way == "--overwrite" and not finished and not running.at_work:
            return  # it may not have emptied the folder yet: the mark stays REPLACED
        seconds = running.before_s + time.monotonic() - running.begun_s
        self.marks.write(running.unit, running.command.stage, Mark(running.command.digest, finished, seconds))


def lock(folder: Path) -> int:
    """An open file that only one sweep has for a run folder; commands that inherit it keep it when the sweep is gone.

    Raises StudyError when another one has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise StudyError(f"another sweep, or a command that it left running, works in {folder}; end it first") from None
    return file
