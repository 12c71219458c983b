"""A study: the commands that make the rows of the tables, read from configs/ablation/.

`rows.yaml` says which rows there are and what each is trained with; a study file says by which commands, as a person
would type them, with {placeholders}. `configs/ablation/mini.yaml` explains the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROWS_FILE = ROOT / "configs" / "ablation" / "rows.yaml"
KEYS = {"study", "model", "gpus", "data", "training", "evaluation", "summary", "table", "estimates"}
OPTIONAL = {"gpus", "estimates"}
OWN_MODELS = ("mini", "tiny")  # names of models that come with the checkout or are built from it


class StudyError(ValueError):
    """What a study or the command line asks for cannot be done; the message says what can."""


@dataclass(frozen=True)
class Row:
    """A row of the tables. start: the row that its training goes on from, None: nothing is trained.

    rewards: names separated by commas, None for a row that is trained on traces.
    """

    name: str
    title: str
    start: str | None
    rewards: str | None
    reward_values: str

    @property
    def trained(self) -> bool:
        """Whether there is anything to train."""
        return self.start is not None


@dataclass(frozen=True)
class Rows:
    """All rows, each after the one that it starts from, and the names of those that a table shows."""

    rows: dict[str, Row]
    tables: dict[str, tuple[str, ...]]

    def of_tables(self, tables: tuple[str, ...]) -> list[Row]:
        """The rows of these tables, each once, in the order of the file. Raises StudyError for an unknown table."""
        if unknown := [table for table in tables if table not in self.tables]:
            raise StudyError(f"no table {unknown[0]}; there are {', '.join(self.tables)}")
        shown = {name for table in tables for name in self.tables[table]}
        return [row for name, row in self.rows.items() if name in shown]

    def starts(self) -> set[str]:
        """Names of the trained rows whose checkpoint others go on from."""
        return {row.start for row in self.rows.values() if row.start and self.rows[row.start].trained}


@dataclass(frozen=True)
class Estimate:
    """What a command is thought to take before one of its kind has run."""

    steps: float
    seconds_per_step: float

    @property
    def seconds(self) -> float:
        """Seconds by the clock."""
        return self.steps * self.seconds_per_step


@dataclass(frozen=True)
class Study:
    """The commands of a study by name, not yet filled in.

    gpus: how many each command of training and evaluation keeps busy. estimates: name of a command -> what it takes.
    """

    name: str
    model: str
    gpus: int
    data: dict[str, str]
    training: dict[str, str]
    evaluation: dict[str, str]
    summary: str
    table: str
    estimates: dict[str, Estimate]

    @property
    def model_is_here(self) -> bool:
        """Whether the model is one of the checkout's or a folder, so that no hub is asked for it."""
        return self.model in OWN_MODELS or (ROOT / self.model).is_dir()

    def training_of(self, row: Row) -> str:
        """Name of the command that trains a row: its own, else `grpo` where there are rewards, else `sft`."""
        for name in (row.name, "grpo" if row.rewards else "sft"):
            if name in self.training:
                return name
        raise StudyError(f"study {self.name} has no command to train {row.name}; it has {', '.join(self.training)}")


def read_rows(path: Path = ROWS_FILE) -> Rows:
    """The rows and tables of a file. Raises StudyError, saying what is wrong in it."""
    content = _mapping(path)
    rows: dict[str, Row] = {}
    for name, told in content["rows"].items():
        rows[name] = _row(name, told, rows, path)
    tables = {str(number): tuple(table["rows"]) for number, table in content["tables"].items()}
    for number, names in tables.items():
        if unknown := [name for name in names if name not in rows]:
            raise StudyError(f"{path}: table {number} shows the row {unknown[0]}, which is not there")
    return Rows(rows, tables)


def _row(name: str, told: Mapping[str, Any], before: Mapping[str, Row], path: Path) -> Row:
    start, rewards, traces = told.get("start"), told.get("rewards"), bool(told.get("traces"))
    if start is not None and start not in before:
        raise StudyError(f"{path}: {name} starts from {start}, which is no row above it")
    if (start is not None) != (bool(rewards) + traces == 1):
        raise StudyError(f"{path}: {name} needs a start with either rewards or traces, or none of the three")
    return Row(name, str(told.get("title", name)), start, rewards, str(told.get("reward_values", "0,1")))


def read_study(path: Path, model: str | None = None) -> Study:
    """The study of a file, with another model if given, which then is part of its name. Raises StudyError."""
    content = _mapping(path)
    if unknown := sorted(content.keys() - KEYS):
        raise StudyError(f"{path}: unknown key {unknown[0]}; known: {', '.join(sorted(KEYS))}")
    if missing := sorted(KEYS - OPTIONAL - content.keys()):
        raise StudyError(f"{path}: {missing[0]} is missing")
    name, own = str(content["study"]), str(content["model"])
    if model not in (None, own):
        name = f"{name}-{slug(str(model))}"
    estimates = {key: Estimate(**value) for key, value in content.get("estimates", {}).items()}
    commands = {part: dict(content[part]) for part in ("data", "training", "evaluation")}
    if strange := sorted(estimates.keys() - {stage for part in commands.values() for stage in part}):
        raise StudyError(f"{path}: there is an estimate of {strange[0]}, but no such command")
    return Study(
        name, model or own, int(content.get("gpus", 0)), **commands,
        summary=content["summary"], table=content["table"], estimates=estimates,
    )  # fmt: skip


def slug(model: str) -> str:
    """The last part of a model's name, fit for a file."""
    return re.sub(r"[^a-z0-9.]+", "-", Path(model).name.lower()).strip("-")


def _mapping(path: Path) -> dict[str, Any]:
    import yaml

    if not path.is_file():
        raise StudyError(f"no file {path}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise StudyError(f"{path} is no YAML: {error}") from error
    if not isinstance(content, dict):
        raise StudyError(f"{path} must hold `key: value` lines")
    return content
