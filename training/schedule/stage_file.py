"""The file of `--stages`: successive stages of one run, each with its own rewards, weights, questions and steps.

- name: boxes first
  rewards: [format, loc]
  weights: [1, 0.5]        # default: all 1; 0 = computed and logged, not paid
  tasks: [pixel, depth]    # default: all
  difficulty: [0.1, 0.9]   # default: all; bounds of the model's own pass rate, both included
  steps: 100               # optimiser steps
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from data_gen.command_line import UsageError
from rewards.grading import TASKS

KEYS = ("name", "rewards", "weights", "tasks", "difficulty", "steps")


@dataclass(frozen=True)
class Stage:
    """A stretch of a run. weights: one per reward, 0 for a meter. tasks: empty for all. difficulty: lowest and highest
    pass rate of its questions. steps: optimiser steps."""

    name: str
    rewards: tuple[str, ...]
    weights: tuple[float, ...]
    steps: int
    tasks: tuple[str, ...] = ()
    difficulty: tuple[float, float] | None = None


def read_stages(path: Path) -> tuple[Stage, ...]:
    """The stages of a file. Raises UsageError that names the file, the stage and what is allowed there."""
    items = _content(path)
    if not isinstance(items, list) or not items:
        raise UsageError(f"{path} must hold a list of stages, each `- name: ...` with {', '.join(KEYS)}")
    stages: list[Stage] = []
    for number, item in enumerate(items, start=1):
        label = f"{path}, stage {number}"
        if isinstance(item, dict) and "name" in item:
            label += f" ({item['name']})"
        try:
            stages.append(_stage(item))
        except ValueError as error:
            raise UsageError(f"{label}: {error}") from error
    if len({stage.name for stage in stages}) < len(stages):
        raise UsageError(f"{path}: two stages have the same name: {', '.join(stage.name for stage in stages)}")
    return tuple(stages)


def same_content(path: Path, sha256: str | None) -> str:
    """sha256 of what a stage file says; comments and layout do not count. Raises UsageError if it is not `sha256`."""
    found = hashlib.sha256(json.dumps(_content(path), sort_keys=True, default=str).encode()).hexdigest()
    if sha256 not in (None, found):
        raise UsageError(
            f"{path} says something else than when stages_sha256 was recorded; restore it, or drop that option"
        )
    return found


def union_of_rewards(stages: Sequence[Stage]) -> list[str]:
    """Every reward of the stages once, in the order in which they first appear."""
    return list(dict.fromkeys(name for stage in stages for name in stage.rewards))


def _content(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--stages {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--stages {path} is no YAML: {error}") from error


def _stage(item: Any) -> Stage:
    if not isinstance(item, dict):
        raise ValueError(f"must hold `key: value` lines, got {item!r}")
    if unknown := [str(key) for key in item if key not in KEYS]:
        raise ValueError(f"unknown key {', '.join(map(repr, unknown))}; known: {', '.join(KEYS)}")
    if missing := [key for key in ("name", "rewards", "steps") if key not in item]:
        raise ValueError(f"{', '.join(missing)} missing")
    rewards = _names(item, "rewards")
    return Stage(
        name=str(item["name"]),
        rewards=rewards,
        weights=_weights(item.get("weights"), len(rewards)),
        steps=_steps(item["steps"]),
        tasks=_tasks(item),
        difficulty=_difficulty(item.get("difficulty")),
    )


def _names(item: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = item[key]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} must be a list of names such as [format, acc], got {names!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"{key} names one twice: {', '.join(names)}")
    return tuple(names)


def _tasks(item: Mapping[str, Any]) -> tuple[str, ...]:
    if "tasks" not in item:
        return ()
    tasks = _names(item, "tasks")
    if unknown := [task for task in tasks if task not in TASKS]:
        raise ValueError(f"unknown task {', '.join(map(repr, unknown))}; known: {', '.join(TASKS)}")
    return tasks


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _weights(weights: Any, count: int) -> tuple[float, ...]:
    if weights is None:
        return (1.0,) * count
    if not isinstance(weights, list) or not all(map(_is_number, weights)):
        raise ValueError(f"weights must be a list of numbers, got {weights!r}")
    if len(weights) != count:
        raise ValueError(f"{len(weights)} weights for {count} rewards")
    if not any(weights):
        raise ValueError("all weights are 0: nothing would be learned")
    return tuple(map(float, weights))


def _steps(steps: Any) -> int:
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps must be a whole number of at least 1, got {steps!r}")
    return steps


def _difficulty(bounds: Any) -> tuple[float, float] | None:
    if bounds is None:
        return None
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(map(_is_number, bounds)):
        raise ValueError(f"difficulty must be two pass rates such as [0.1, 0.9], got {bounds!r}")
    low, high = map(float, bounds)
    if not 0 <= low <= high <= 1:
        raise ValueError(f"difficulty must be two pass rates with 0 <= low <= high <= 1, got {bounds!r}")
    return low, high
