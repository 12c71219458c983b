"""A finished run on SURDS questions as read from its folder, and the questions that it was asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError
from data_gen.floors import units_of
from data_gen.records import Question, iterate_rows, read_questions
from eval.metrics import mean_unit_scores
from eval.runner import PREDICTIONS_FILE, RunFacts, asked_words, read_facts, read_summary, told_apart
from eval.summary import Summary

BENCHMARK = "surds"
Predictions = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class FinishedRun:
    """Scores, facts, and for every sample the lines of `predictions.jsonl` by question id."""

    summary: Summary
    facts: RunFacts
    samples: tuple[Predictions, ...]

    @property
    def predictions(self) -> Predictions:
        """The lines of the first sample by question id; of a greedy run there is no other."""
        return self.samples[0]

    def unit_scores(self, questions: Sequence[Question]) -> dict[str, float]:
        """Unit -> its score, 0..1, under the run's main scoring, the mean over the samples.

        questions: asked ones, pairs whole, as of `asked_questions`; the units come in their order.
        Raises KeyError for a question that the run was not asked, RecordError when a pair is not two questions.
        """
        scoring = self.summary.scoring
        scores_K = [{name: row["score"][scoring] for name, row in rows.items()} for rows in self.samples]
        return mean_unit_scores(units_of(questions), scores_K)


def read_run(folder: Path) -> FinishedRun:
    """A finished run. Raises UsageError when the folder holds none or one of another benchmark, RecordError."""
    facts = read_facts(folder)
    if facts.benchmark.split("-")[0] != BENCHMARK:
        raise UsageError(
            f"{folder} is a run on {facts.benchmark}, whose tasks and scores are its own; this page compares runs of "
            f"eval/surds.py. Its table and page come from: python eval/{facts.benchmark.split('-')[0]}.py"
        )
    summary = read_summary(folder, Summary)
    return FinishedRun(summary, facts, by_sample(row for _, row in iterate_rows(folder / PREDICTIONS_FILE)))


def by_sample(rows: Iterable[dict[str, Any]]) -> tuple[Predictions, ...]:
    """Lines of `predictions.jsonl` by sample and question id; a line that names no sample is of the first."""
    samples: dict[int, Predictions] = {}
    for row in rows:
        samples.setdefault(row.get("sample", 0), {})[row["id"]] = row
    return tuple(samples[number] for number in sorted(samples))


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
