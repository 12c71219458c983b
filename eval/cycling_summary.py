"""What a finished CyclingVQA run says of itself, the published rows, and what must be known before comparing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from data_gen.cycling.records import TASKS
from eval.cycling_scores import NO_CHOICE, SCORING_VERSION, Figures, TaskFigures
from eval.intervals import Interval
from eval.runner import RunFacts
from eval.summary import SYNTHETIC_NOTE, TINY_NOTE

PUBLISHED = Path(__file__).with_name("cycling_published.json")
SYNTHETIC = SYNTHETIC_NOTE.replace("nuScenes", "photographs")


@dataclass(frozen=True)
class JudgeUse:
    """How often a second model was asked what a reply settles on, and how often it found a choice."""

    model: str
    asked: int
    settled: int


@dataclass(frozen=True)
class CyclingSummary:
    """The scores of a run, fractions. read_by: how many choices were read by rule, by the judge, or not at all."""

    benchmark: str
    source: str
    scoring_version: int
    score: float
    ci95: Interval
    micro: float
    micro_ci95: Interval
    tasks: dict[str, TaskFigures]
    floors: dict[str, float]
    valid_rate: float
    items: int
    mean_tokens: float | None
    read_by: dict[str, int]
    judge: JudgeUse | None
    label: str
    engine: str
    model: str
    tiny: bool
    prompt_style: str
    asked: str
    fingerprint: str


@dataclass(frozen=True)
class PublishedRow:
    """One row of the published table, percent. mean: over the tasks, as printed there."""

    model: str
    rank: int
    scores: dict[str, float]
    mean: float


@dataclass(frozen=True)
class PublishedTable:
    """The published table. questions: the authors' items per task."""

    source: str
    questions: dict[str, int]
    rows: tuple[PublishedRow, ...]


def make_summary(facts: RunFacts, source: str, figures: Figures, judge: JudgeUse | None) -> CyclingSummary:
    """Facts and figures of a run as its summary."""
    return CyclingSummary(
        source=source,
        scoring_version=SCORING_VERSION,
        judge=judge,
        **facts.in_summary,
        **vars(figures),
    )


@cache
def published() -> PublishedTable:
    """The published rows, best first."""
    return msgspec.json.decode(PUBLISHED.read_bytes(), type=PublishedTable)


def notes(summary: CyclingSummary) -> list[str]:
    """What a reader has to know before comparing the numbers."""
    theirs = {task: figures.items for task, figures in summary.tasks.items()} == published().questions
    own = "own prompts and parser" if theirs else "own items, prompts and parser"
    lines = [f"{own}: not comparable with the published rows"]
    if "synthetic" in summary.source:
        lines.append(SYNTHETIC)
    if summary.tiny:
        lines.append(TINY_NOTE)
    if missing := [task for task in TASKS if task not in summary.tasks]:
        lines.append(f"no items for {', '.join(missing)}: the mean is that of the other tasks only")
    for task, figures in summary.tasks.items():
        if figures.items > 1 and len(figures.given) == 1 and NO_CHOICE not in figures.given:
            lines.append(f"{task}: {next(iter(figures.given))} is the answer to all {figures.items} items")
    if summary.judge is None and (left := summary.read_by[NO_CHOICE]):
        lines.append(
            f"{left} replies settle on no choice by the rules and count as wrong; --judge has a model read them"
        )
    return lines
