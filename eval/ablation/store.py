"""Reading and writing the files under `results/STUDY/`: compact JSON, a value of interest a line, short numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from data_gen.command_line import UsageError
from data_gen.files import write_whole
from eval.ablation.records import QUESTIONS_FILE, RESULT_VERSION, RowResult, TestQuestions

Kept = TypeVar("Kept", TestQuestions, RowResult)
DIGITS, SMALL, SMALL_DIGITS = 4, 0.1, 3
_ONE_LINE_BELOW = 2


def row_file(folder: Path, row: str, seed: int) -> Path:
    """Where the result of a row of one seed lies."""
    return folder / f"{row}-{seed}.json"


def keep_questions(questions: TestQuestions, folder: Path) -> TestQuestions:
    """Write the questions of a study, once; what is there by then, which another row may have written meanwhile.

    Raises UsageError when others are there.
    """
    path = folder / QUESTIONS_FILE
    if not path.exists():
        write_whole(path, to_json(questions))
    there = read_kept(path, TestQuestions)
    if there.fingerprint != questions.fingerprint:
        raise UsageError(
            f"{path} is of other questions ({there.fingerprint} there, {questions.fingerprint} now), and rows are put "
            "together only when they were scored on the same; give --out in another folder, or delete the old results"
        )
    return there


def read_questions_of(folder: Path) -> TestQuestions:
    """The questions of a study. Raises UsageError when there are none."""
    path = folder / QUESTIONS_FILE
    if not path.is_file():
        raise UsageError(f"no results in {folder}: it has no {QUESTIONS_FILE}; run: python launch/ablate.py --table 4")
    return read_kept(path, TestQuestions)


def read_rows(folder: Path, questions: TestQuestions) -> dict[str, dict[int, RowResult]]:
    """Row -> seed -> result, of all results of a study. Raises UsageError for one that does not belong there."""
    found: dict[str, dict[int, RowResult]] = {}
    for path in sorted(folder.glob("*-*.json")):
        result = read_kept(path, RowResult)
        _check(path, result, questions)
        found.setdefault(result.row, {})[result.seed] = result
    return {row: dict(sorted(seeds.items())) for row, seeds in found.items()}


def read_kept(path: Path, kind: type[Kept]) -> Kept:
    """One file. Raises UsageError when it holds something else, or was written by another version."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no result of an ablation ({error}); delete it and make it anew") from error
    if kept.version != RESULT_VERSION:
        raise UsageError(f"{path} has version {kept.version}, this code reads {RESULT_VERSION}; make it anew")
    return kept


def to_json(kept: TestQuestions | RowResult) -> str:
    """The text of a file: numbers of four decimals, small ones of three digits, lists on one line each."""
    return _lines(_short(asdict(kept)), 0) + "\n"


def _check(path: Path, result: RowResult, questions: TestQuestions) -> None:
    if path.name != row_file(path.parent, result.row, result.seed).name:
        raise UsageError(f"{path} holds row {result.row}, seed {result.seed}; name it so, or delete it")
    if result.questions != questions.fingerprint:
        raise UsageError(
            f"{path} was scored on other questions ({result.questions}) than {QUESTIONS_FILE} beside it holds "
            f"({questions.fingerprint}); run the row again, or delete it"
        )
    units = sum(len(group.names) for group in questions.units)
    for mode, scores in result.scores.items():
        if len(scores.unit_scores) != units:
            raise UsageError(f"{path} holds {len(scores.unit_scores)} {mode} scores of {units} units; run it again")


def _short(value: Any) -> Any:
    """The value with its fractions rounded, and those that are whole written without a point."""
    if isinstance(value, float):
        rounded = round(value, DIGITS) if abs(value) >= SMALL else float(f"{value:.{SMALL_DIGITS}g}")
        return int(rounded) if rounded.is_integer() else rounded
    if isinstance(value, dict):
        return {name: _short(item) for name, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list | tuple) else value


def _lines(value: Any, depth: int) -> str:
    """JSON with a line for every item of the outer two levels."""
    if depth < _ONE_LINE_BELOW and value and isinstance(value, dict | list) and not _plain(value):
        ends, inner = ("{}" if isinstance(value, dict) else "[]"), " " * (depth + 1)
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        told = [("" if name is None else f"{json.dumps(name)}: ") + _lines(item, depth + 1) for name, item in items]
        return f"{ends[0]}\n{inner}" + f",\n{inner}".join(told) + f"\n{' ' * depth}{ends[1]}"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> bool:
    """Whether a list or dict holds no other ones."""
    return not any(isinstance(item, dict | list) for item in (value.values() if isinstance(value, dict) else value))
