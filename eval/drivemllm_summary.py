"""DriveMLLM's `summary.json`, the published rows to show beside it, and the lines that qualify the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from data_gen.drivemllm.records import TASKS
from eval.drivemllm_scores import SCORING_VERSION, Figures
from eval.runner import RunFacts
from eval.summary import SYNTHETIC_NOTE, TINY_NOTE

PUBLISHED_FILE = Path(__file__).with_name("drivemllm_published.json")
PUBLISHED_NOTE = "published rows: from the paper, with its prompts and its 880 images"
PUBLISHED_PROMPTS = "official (published outputs)"
PUBLISHED_QUESTIONS = {
    "left_right": 382, "front_behind": 382, "horizontal_distance": 191, "object_distance": 191,
    "position": 880, "box": 880, "depth": 880, "camera_distance": 880,
}  # fmt: skip
SHOTS_OF_TABLE = {"0-shot": "Zero-shot", "1-shot": "One-shot", "5-shot": "Five-shot"}


@dataclass(frozen=True)
class DriveMLLMSummary:
    """The figures of a run, fractions, under its main scoring and under the other one; `prompts` as in RunFacts."""

    benchmark: str
    source: str
    scoring: str
    scoring_version: int
    score: float
    acc_s: float
    eff_s: float
    ci95: tuple[float, float] | None
    tasks: dict[str, Any]
    floors: dict[str, float]
    other_scorings: dict[str, Figures]
    questions: int
    mean_tokens: float | None
    label: str
    engine: str
    model: str
    tiny: bool
    prompt_style: str
    asked: str
    prompts: str
    fingerprint: str


@dataclass(frozen=True)
class PublishedRow:
    """One model of the paper's tables: scores of the tasks by field name, AccS, EffS and Score; fractions."""

    model: str
    scores: dict[str, float]
    acc_s: float
    eff_s: float
    score: float


def make_summary(
    facts: RunFacts, source: str, figures_of: dict[str, Figures], scoring: str, counts: tuple[int, float | None]
) -> DriveMLLMSummary:
    """Facts and figures of a run as its summary. counts: questions, mean tokens of an answer."""
    return DriveMLLMSummary(
        source=source,
        scoring=scoring,
        scoring_version=SCORING_VERSION,
        **facts.in_summary,
        **vars(figures_of[scoring]),
        other_scorings={name: figures for name, figures in figures_of.items() if name != scoring},
        questions=counts[0],
        mean_tokens=counts[1],
        prompts=facts.prompts,
    )


def figures_of(summary: DriveMLLMSummary, scoring: str) -> Figures:
    """The figures under one of the scorings."""
    if scoring != summary.scoring:
        return summary.other_scorings[scoring]
    return Figures(summary.score, summary.acc_s, summary.eff_s, summary.ci95, summary.tasks, summary.floors)


def published_rows(prompt_style: str) -> list[PublishedRow]:
    """The paper's models at the same number of shots, one shot where it has none such; its random row first.

    A task's score is its accuracy times its efficiency, of Tables 1 and 2.
    """
    tables = msgspec.json.decode(PUBLISHED_FILE.read_bytes())
    wanted = (None, SHOTS_OF_TABLE.get(prompt_style, "One-shot"))
    efficiency = {(row["shot"], row["model"]): row for row in tables["efficiency"]}
    rows = []
    for row in tables["accuracy"]:
        if row["shot"] in wanted:
            effective = efficiency[row["shot"], row["model"]]
            scores = {task: row[name] * effective[name] / 1e4 for task, name in TASKS.items()}
            totals = (row["AccS"] / 100, effective["EffS"] / 100, row["Score"] / 100)
            rows.append(PublishedRow(row["model"], scores, *totals))
    return rows


def notes(summary: DriveMLLMSummary) -> list[str]:
    """What a reader has to know before comparing the numbers."""
    lines = []
    if "synthetic" in summary.source:
        lines.append(SYNTHETIC_NOTE)
    if summary.tiny:
        lines.append(f"{TINY_NOTE} ({summary.label})")
    if missing := [name for task, name in TASKS.items() if task not in summary.tasks]:
        lines.append(f"no questions for {', '.join(missing)}: AccS, EffS and Score are means of the other tasks only")
    return [*lines, "; ".join([PUBLISHED_NOTE, *caveats(summary)])]


def caveats(summary: DriveMLLMSummary) -> list[str]:
    """What keeps the published rows from being held against a run; empty if nothing does."""
    lines = []
    if summary.prompts != PUBLISHED_PROMPTS:
        lines.append(f"this run: {summary.prompts} prompts, not comparable")
    if {task: figures.asked for task, figures in summary.tasks.items()} != PUBLISHED_QUESTIONS:
        lines.append("other questions, not comparable")
    return lines
