"""The live overview of a sweep: what each unit does, what it took so far and what is left."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ablation.commands import Command
from ablation.plan import Unit
from ablation.progress import all_left, duration, expected_seconds, last_lines, seconds_left, tail
from ablation.study import Study
from ablation.work import Running, Work

HEAD = ("row", "seed", "stage", "step", "time", "left")
LOG_LINES = 12
PLAIN_EVERY_S = 60.0


def seconds_seen(units: Sequence[Unit], work: Work) -> dict[str, list[float]]:
    """Stage -> what its finished commands of this run folder took."""
    seen: dict[str, list[float]] = {}
    for unit in units:
        for stage, mark in work.marks.read(unit).items():
            if mark.finished:
                seen.setdefault(stage, []).append(mark.seconds)
    return seen


def unit_left(unit: Unit, work: Work, study: Study, seen: dict[str, list[float]]) -> float | None:
    """Seconds that a unit has left, None when nothing tells."""
    if unit.name in work.done:
        return 0.0
    running = work.running.get(unit.name)
    told = {stage: mark for stage, mark in work.marks.read(unit).items() if mark.finished}
    parts = []
    for command in unit.commands:
        if running is not None and command is running.command:
            parts.append(command_left(running, study, seen))
        elif command.stage not in told or told[command.stage].digest != command.digest:
            parts.append(_expected(command, study, seen))
    return None if None in parts else sum(part for part in parts if part is not None)


def command_left(running: Running, study: Study, seen: dict[str, list[float]]) -> float | None:
    """Seconds that a running command has left: by its own pace, else by what others like it took."""
    now_s = time.monotonic()
    if running.first is not None and running.now is not None:
        first, when_s = running.first
        own = seconds_left(first, running.now, now_s - when_s)
        if own is not None:
            return own
    whole = _expected(running.command, study, seen)
    return None if whole is None else max(0.0, whole - running.before_s - (now_s - running.begun_s))


def _expected(command: Command, study: Study, seen: dict[str, list[float]]) -> float | None:
    # What keeps a row takes seconds.
    return expected_seconds(command.stage, seen, study.estimates) if command.resumable else 0.0


def overview(work: Work, study: Study) -> list[str]:
    """The overview: a line for each unit that is at work, and one about the whole."""
    seen = seconds_seen(work.units, work)
    left = {unit.name: unit_left(unit, work, study, seen) for unit in work.units if unit.name not in work.done}
    open_units = {name: seconds for name, seconds in left.items() if name not in (*work.failed, *work.blocked)}
    needs = {unit.name: unit.needs for unit in work.units}
    rows = [HEAD, *(_line(running, left[name]) for name, running in work.running.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    waiting = len(open_units) - len(work.running)
    counts = f"{len(work.done)} of {len(work.units)} units done, {len(work.running)} at work, {waiting} waiting"
    if work.failed:
        counts += f", {len(work.failed)} FAILED ({', '.join(work.failed)}), {len(work.blocked)} not possible without"
    return [*lines, f"{counts}; about {duration(all_left(open_units, needs, work.parallel))} left"]


def _line(running: Running, left_s: float | None) -> tuple[str, ...]:
    unit = running.unit
    step = f"{running.now.number}/{running.now.total}" if running.now else ""
    spent_s = running.before_s + time.monotonic() - running.begun_s
    seed = "" if unit.seed is None else str(unit.seed)
    return (unit.row or unit.name, seed, running.command.stage, step, duration(spent_s), duration(left_s))


def failure(work: Work, name: str) -> list[str]:
    """Which unit failed, why, and the end of its log."""
    log = work.log(next(unit for unit in work.units if unit.name == name))
    return [f"{name}: {work.failed[name]}; {log} ends:", *(f"  {line}" for line in last_lines(tail(log), LOG_LINES))]


@dataclass
class Screen:
    """Shows the overview in place on a terminal, else anew when something happened and every minute."""

    live: bool = field(default_factory=lambda: sys.stdout.isatty())
    shown: int = 0
    last_s: float = float("-inf")

    def show(self, events: Sequence[str], lines: Sequence[str]) -> None:
        """Print the events for good, and the overview below them."""
        if self.live:
            up = f"\x1b[{self.shown}A\x1b[J" if self.shown else ""
            width = shutil.get_terminal_size().columns - 1  # a line that wraps would put the cursor off
            print(up + "\n".join([*events, *(line[:width] for line in lines)]), flush=True)
            self.shown = len(lines)
            return
        for event in events:
            print(event, flush=True)
        if events or time.monotonic() - self.last_s >= PLAIN_EVERY_S:
            self.last_s = time.monotonic()
            print("\n".join(lines), flush=True)
