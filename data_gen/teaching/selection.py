"""Which questions are reasoned about, and where their images lie."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.command_line import UsageError
from data_gen.files import write_json
from data_gen.images import MANIFEST
from data_gen.records import Question, read_questions
from rewards.grading import TASKS

BUILD_COMMAND = "python data_gen/build_surds.py --nuscenes DIR --out data/surds"


@dataclass(frozen=True)
class Selection:
    """What decides the questions. data_sha256: of their file; limit: at most so many of them.

    balance_tasks: the limit is divided evenly among the tasks that are there.
    """

    data: str
    data_sha256: str
    seed: int
    tasks: tuple[str, ...]
    limit: int | None
    balance_tasks: bool = False


def read_selection(arguments: argparse.Namespace) -> tuple[Selection, list[Question]]:
    """The selection of a command line and its questions. Raises UsageError or RecordError with the remedy."""
    path = arguments.data
    if path is None or not path.is_file():
        problem = "--data is missing" if path is None else f"no file at {path} (--data)"
        raise UsageError(f"{problem}: a questions.jsonl; build one with: {BUILD_COMMAND}")
    wanted = [name.strip() for name in arguments.tasks.split(",")] if arguments.tasks else list(TASKS)
    if unknown := [name for name in wanted if name not in TASKS]:
        raise UsageError(f"unknown task {', '.join(map(repr, unknown))} in --tasks; known: {', '.join(TASKS)}")
    if arguments.balance_tasks and arguments.limit is None:
        raise UsageError("--balance-tasks divides a --limit among the tasks; give one")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    tasks = tuple(task for task in TASKS if task in wanted)
    selection = Selection(path.name, digest, arguments.seed, tasks, arguments.limit, arguments.balance_tasks)
    return selection, choose(read_questions(path), selection)


def choose(questions: Sequence[Question], selection: Selection) -> list[Question]:
    """The questions of the wanted tasks, at most `limit`, in file order. Raises UsageError when none is left.

    A limit draws whole units, so that both questions of a mirrored pair are there or none; each task has its share of
    all questions, or the same number, or all it has where that is less.
    """
    units: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        if question.task in selection.tasks:
            units[question.unit].append(question)
    if not units:
        raise UsageError(f"{selection.data} holds no question of the tasks {', '.join(selection.tasks)} (--tasks)")
    if selection.limit is None:
        return [question for unit in units.values() for question in unit]
    groups: dict[str, list[str]] = defaultdict(list)
    for name, unit in units.items():
        groups[unit[0].task if selection.balance_tasks else "all"].append(name)
    sizes = {name: len(unit) for name, unit in units.items()}
    each = selection.limit // len(groups)
    # One generator for all: tasks have their units in the order of the pictures, and would draw the same ones.
    rng = random.Random(selection.seed)
    drawn = {name for group in groups.values() for name in _drawn(group, sizes, each, rng)}
    if not drawn:
        raise UsageError(f"--limit {selection.limit} is less than one unit; a mirrored pair has 2 questions")
    return [question for name, unit in units.items() if name in drawn for question in unit]


def _drawn(names: Sequence[str], sizes: Mapping[str, int], limit: int, rng: random.Random) -> list[str]:
    """Units in random order, those left out that would exceed the limit."""
    order = list(names)
    rng.shuffle(order)
    drawn: list[str] = []
    left = limit
    for name in order:
        if sizes[name] <= left:
            drawn.append(name)
            left -= sizes[name]
    return drawn


def write_manifest(root: Path | None, out: Path) -> None:
    """Lead from `out` to the folder of the images, where it is known."""
    if root is None:
        return
    if not root.is_absolute():
        root = Path(os.path.relpath(root.resolve(), out.resolve()))
    write_json(out / MANIFEST, {"image_root": root.as_posix()})
