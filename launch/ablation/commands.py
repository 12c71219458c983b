"""A command line from its template: filled in, shortened for a trial, and the digest that tells what it makes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ablation.study import ROOT, StudyError

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
VARIABLE = re.compile(r"\$\{?[A-Z_]+")
# What a trial of the whole has fewer of: options, and keys of the configs that commands name. Not scenes: depth ranges
# of a small world find no others beside them.
COUNTS = ("max_steps", "eval_steps", "save_steps", "logging_steps", "num_train_epochs",
          "limit", "limit_units", "held_out_limit")  # fmt: skip
DIGEST_LENGTH = 16
# Models that ship with the checkout: their files count, as those of configs do.
SHIPPED = {"mini": ROOT / "training" / "mini"}
NOT_OF_MODEL = ("README.md", "scores.json")
MODEL_FILE = "config.json"  # what makes a folder a checkpoint


@dataclass(frozen=True)
class Command:
    """A command of a unit.

    stage: its name in the study. words: as a person types them. out: the folder or file that it writes. digest: of
    these words, the configs they name and the commands whose outputs they name; the same on every machine. resumable:
    whether it takes --resume and --overwrite.
    """

    stage: str
    words: tuple[str, ...]
    out: str
    digest: str
    resumable: bool = True

    def line(self, how: str | None = None) -> str:
        """As typed, with --resume or --overwrite where given."""
        words = [*self.words, how] if how and self.resumable else self.words
        # Quoted such that a shell still puts in environment variables.
        return " ".join(f'"{word}"' if "$" in word else shlex.quote(word) for word in words)


def executable(words: Sequence[str]) -> list[str]:
    """The words with environment variables put in, and this interpreter in place of `python` and `accelerate`.

    Raises StudyError for a variable that is not set.
    """
    words = [os.path.expandvars(word) for word in words]
    if left := [word for word in words if VARIABLE.search(word)]:
        raise StudyError(f"{left[0]} is not set; export it, then start again")
    if words[0] == "accelerate":
        return [sys.executable, "-m", f"accelerate.commands.{words[1]}", *words[2:]]
    return [sys.executable, *words[1:]] if words[0] == "python" else list(words)


def fill(template: str, values: Mapping[str, str]) -> list[str]:
    """The words of a template, its {placeholders} replaced. Raises StudyError for an unknown one."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise StudyError(f"unknown placeholder {match[0]} in: {template}; known: {', '.join(sorted(values))}")
        return values[match[1]]

    return [PLACEHOLDER.sub(value, word) for word in shlex.split(template)]


def option(words: Sequence[str], name: str) -> str | None:
    """The value of `--name VALUE` or `--name=VALUE`, None without it; hyphens and underscores are the same."""
    for index, word in enumerate(words):
        key, equals, value = word.partition("=")
        if key.startswith("--") and key[2:].replace("-", "_") == name:
            return value if equals else words[index + 1]
    return None


def output_of(words: Sequence[str]) -> str:
    """The value of `--out`. Raises StudyError without one: nothing could tell which commands need this one's."""
    out = option(words, "out")
    if out is None:
        raise StudyError(f"a command without --out: {shlex.join(words)}")
    return out


def shortened(words: Sequence[str], factor: int) -> list[str]:
    """The words with all counts, those of the configs that they name too, divided by `factor`, at least 1."""
    if factor == 1:
        return list(words)
    short = list(words)
    for index, word in enumerate(words):
        key, equals, value = word.partition("=")
        if not key.startswith("--") or key[2:].replace("-", "_") not in COUNTS:
            continue
        fewer = divided(key[2:].replace("-", "_"), float(value if equals else words[index + 1]), factor)
        short[index + (not equals)] = f"{key}={fewer}" if equals else fewer
    of_configs = {name: value for path in configs(words) for name, value in _content(path).items() if name in COUNTS}
    left = {name: value for name, value in of_configs.items() if value and option(words, name) is None}
    return [*short, *(part for name, value in left.items() for part in (f"--{name}", divided(name, value, factor)))]


def divided(name: str, value: float, factor: int) -> str:
    """A count over `factor`: whole and at least 1, but for passes over the data."""
    return f"{value / factor:g}" if name == "num_train_epochs" else str(max(1, math.ceil(value / factor)))


def configs(words: Sequence[str]) -> list[Path]:
    """The YAML files of the checkout that are named by the words. Raises StudyError for one that is not there."""
    paths = [ROOT / word.rpartition("=")[2] for word in words if word.endswith((".yaml", ".yml"))]
    if missing := [path for path in paths if not path.is_file()]:
        raise StudyError(f"no file {missing[0]}, which is named in: {shlex.join(words)}")
    return paths


def _content(path: Path) -> dict[str, Any]:
    import yaml

    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return content


def digest(words: Sequence[str], made: Mapping[str, str]) -> str:
    """What a command makes, as a checksum. made: outputs of earlier commands -> their digests.

    Checkpoint folders that are named count with what they hold. Comments in configs do not count, nor do earlier
    commands whose outputs are not named.
    """
    paths = [path for word in words for path in re.split("[:=,]", word)]
    needed = [made[out] for out in made if any(path == out or path.startswith(f"{out}/") for path in paths)]
    models = [_files_digest(SHIPPED.get(word, ROOT / word)) for word in words if _is_checkpoint(word)]
    told = [list(words), [_content(path) for path in configs(words)], needed, *models]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]


def _is_checkpoint(word: str) -> bool:
    return word in SHIPPED or (ROOT / word / MODEL_FILE).is_file()


@cache
def _files_digest(folder: Path) -> str:
    """Of what a model folder holds, but for what is only told about it."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file() and path.name not in NOT_OF_MODEL):
        found.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()
