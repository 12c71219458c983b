"""A finished run on SURDS questions as read from its folder, and the questions that it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError
from data_gen.records import Question, iterate_rows, read_questions
from eval.runner import PREDICTIONS_FILE, RunFacts, asked_words, read_facts, read_summary, told_apart
from eval.summary import Summary

BENCHMARK = "surds"


@dataclass(frozen=True)
class FinishedRun:
    """Scores, facts, and the lines of `predictions.jsonl` by question id."""

    summary: Summary
    facts: RunFacts
    predictions: dict[str, dict[str, Any]]

    @property
    def question_scores(self) -> dict[str, float]:
        """Question id -> score of that single question under the run's main scoring."""
        scoring = self.summary.scoring
        return {name: row["score"][scoring] for name, row in self.predictions.items()}


def read_run(folder: Path) -> FinishedRun:
    """A finished run. Raises UsageError when the folder holds none or one of another benchmark, RecordError."""
    facts = read_facts(folder)
    if facts.benchmark.split("-")[0] != BENCHMARK:
        raise UsageError(
            f"{folder} is a run on {facts.benchmark}, whose tasks and scores are its own; this page compares runs of "
            f"eval/surds.py. Its table and page come from: python eval/{facts.benchmark.split('-')[0]}.py"
        )
    summary = read_summary(folder, Summary)
    return FinishedRun(summary, facts, {row["id"]: row for _, row in iterate_rows(folder / PREDICTIONS_FILE)})


def named_apart(runs: Sequence[FinishedRun], folders: Sequence[Path]) -> list[FinishedRun]:
    """The runs with labels that tell them apart."""
    labels = told_apart([run.summary.label for run in runs], folders)
    return [replace(run, summary=replace(run.summary, label=name)) for run, name in zip(runs, labels, strict=True)]


def asked_questions(run: FinishedRun) -> list[Question]:
    """The questions that a run was asked, in file order.

    Raises UsageError when their file is gone or holds others by now, RecordError when it is broken.
    """
    path = Path(run.facts.data)
    if not path.is_file():
        raise UsageError(f"the question file {path} is no longer there")
    questions = [question for question in read_questions(path) if question.id in run.predictions]
    if asked_words(questions) != run.facts.identity.get("questions"):
        raise UsageError(f"the question file {path} has changed since {run.summary.label} was asked")
    return questions


def comparable(runs: Sequence[FinishedRun]) -> list[int]:
    """Places of the runs that answered the same questions under the same scoring as the first one."""
    return [place for place, run in enumerate(runs) if _terms(run.summary) == _terms(runs[0].summary)]


def _terms(summary: Summary) -> tuple[str, str, int]:
    return summary.asked, summary.scoring, summary.scoring_version
