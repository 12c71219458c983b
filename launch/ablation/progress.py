"""How far a command is, read from the end of its log, and how long what is left will take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablation.study import Estimate

TAIL_BYTES = 8192
# A progress bar of tqdm. Those that begin with words ("Loading weights: 50%|") are of something smaller.
BAR = re.compile(r"^\s*\d+%\|[^|]*\| *(\d+)/(\d+) \[")
NAMED_BAR = re.compile(r"^[^|\d][^|]*:\s+\d+%\|[^|]*\| *(\d+)/(\d+) \[")


@dataclass(frozen=True)
class Step:
    """So many of so many steps, questions or images."""

    number: int
    total: int


def tail(path: Path, start: int = 0) -> str:
    """The end of a log, nothing of it before the byte `start`; empty when there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(start, path.stat().st_size - TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")


def last_step(text: str) -> Step | None:
    """The last state of the last progress bar in a log; one without words before it goes first."""
    pieces = re.split(r"[\r\n]", text.replace("\x1b[A", ""))
    for pattern in (BAR, NAMED_BAR):
        found = [match for piece in pieces if (match := pattern.search(piece))]
        if found:
            return Step(int(found[-1][1]), int(found[-1][2]))
    return None


def has_own_bar(text: str) -> bool:
    """Whether a log shows a progress bar without words before it."""
    return any(BAR.search(piece) for piece in re.split(r"[\r\n]", text))


def last_lines(text: str, count: int) -> list[str]:
    """The last lines of a log that say something, without progress bars."""
    pieces = [piece.rstrip() for piece in re.split(r"[\r\n]", text)]
    return [piece for piece in pieces if piece and not BAR.search(piece) and not NAMED_BAR.search(piece)][-count:]


def expected_seconds(
    stage: str, seen: Mapping[str, Sequence[float]], estimates: Mapping[str, Estimate]
) -> float | None:
    """What a command of this name takes: the mean of those that finished, else the study's estimate, else None."""
    if times := seen.get(stage):
        return sum(times) / len(times)
    return estimates[stage].seconds if stage in estimates else None


def seconds_left(first: Step, now: Step, seconds_between: float) -> float | None:
    """What is left at the rate between two looks at a command; None when nothing moved."""
    moved = now.number - first.number
    if moved <= 0 or now.total != first.total:
        return None
    return (now.total - now.number) * seconds_between / moved


def all_left(chains: Mapping[str, float | None], needs: Mapping[str, Sequence[str]], parallel: int) -> float | None:
    """Seconds until the last unit ends: the longest way through what is left, and no less than the work shared out.

    chains: unit -> seconds of its own that are left; needs: unit -> units before it, done ones left out.
    None when nothing tells what some unit takes.
    """
    left = {name: seconds for name, seconds in chains.items() if seconds is not None}
    if len(left) < len(chains):
        return None
    ends: dict[str, float] = {}
    for name in chains:  # a unit stands after those that it needs
        ends[name] = left[name] + max((ends[need] for need in needs[name] if need in ends), default=0.0)
    return max([sum(left.values()) / parallel, *ends.values()], default=0.0)


def longest_first(seconds: Mapping[str, float], needs: Mapping[str, Sequence[str]]) -> list[str]:
    """The units by the time from their beginning to the end of what waits for them, longest first.

    seconds: unit -> its own, units standing after those that they need.
    """
    way = dict(seconds)
    for name in reversed(list(seconds)):
        for need in needs[name]:
            if need in way:
                way[need] = max(way[need], seconds[need] + way[name])
    return sorted(way, key=lambda name: -way[name])


def duration(seconds: float | None) -> str:
    """`1:05:09`, `12:30`, or `?`."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
