"""The figures of a finished run, whoever the teacher is: what was kept and why not, lengths, endings, and what it took.

`summarise_run` makes them of records that are read one at a time; `summary.json` holds them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from data_gen.command_line import UsageError
from data_gen.files import write_json
from data_gen.oracle import ENDINGS, ending_of
from data_gen.oracle_misread import ERRING
from data_gen.records import Question, Trace, read_records, trace_from_row
from data_gen.teaching.costs import StageFigures, per_minute, stage_figures
from data_gen.teaching.records import (
    DISTILLED_FILE,
    DRAFTS_FILE,
    REASONED_FILE,
    STAGES,
    SURPLUS,
    VERIFIED_FILE,
    Distilled,
    Draft,
    Reasoned,
    Spent,
    Verified,
    read_lines,
)
from data_gen.teaching.state import SUMMARY_FILE, TRACES_FILE, read_state
from data_gen.trace_checks import ends_with_answer, holds_answer
from rewards.grading import TASKS

ORACLE = "oracle"
_Costly = Reasoned | Distilled | Draft | Verified
_RECORDS: dict[str, tuple[str, type[_Costly]]] = {
    "reason": (REASONED_FILE, Reasoned),
    "rules": (DISTILLED_FILE, Distilled),
    "write": (DRAFTS_FILE, Draft),
    "verify": (VERIFIED_FILE, Verified),
}
STEPS = {"words": 10, "tokens": 20}  # of the histograms


@dataclass(frozen=True)
class Corrections:
    """What became of first drafts, those of surplus samples left out.

    sound: nothing was wrong with it, and the trace was kept; mended: something was, yet the trace was kept; spoiled: a
    sound draft ended as a trace that was dropped; lost: neither sound nor kept. changed: by the writer as it judged.
    """

    sound: int = 0
    mended: int = 0
    spoiled: int = 0
    lost: int = 0
    changed: int = 0


@dataclass(frozen=True)
class TaskFigures:
    """One task. drafts: of all samples; surplus: those of questions of which another sample is kept.

    dropped: reasons of the other drafts that did not become a kept trace; first_dropped: against first drafts. All that
    follows is about kept traces. kept_after: by how often they were written. words, tokens: histograms of their
    lengths, such as {"1-10": 3}, tokens where they were counted. holds_answer, ends_with_answer: shares that do so
    literally. endings: how the oracle meant them to end, of other teachers empty. erring: those that reason to a wrong
    answer on purpose.
    """

    questions: int
    kept: int
    drafts: int
    surplus: int
    dropped: dict[str, int]
    first_dropped: dict[str, int]
    corrections: Corrections
    kept_after: dict[str, int]
    words: dict[str, int]
    mean_words: float | None
    longest_words: int | None
    tokens: dict[str, int]
    mean_tokens: float | None
    longest_tokens: int | None
    holds_answer: float | None
    ends_with_answer: float | None
    endings: dict[str, int] = field(default_factory=dict)
    erring: int = 0

    @property
    def kept_share(self) -> float:
        """Kept traces per question."""
        return self.kept / self.questions


@dataclass(frozen=True)
class RunSummary:
    """A finished run. settings: what decides its traces; prices: per million tokens, as `costs.PRICES` names them."""

    settings: dict[str, Any]
    teacher: str
    questions: int
    kept: int
    tasks: dict[str, TaskFigures]
    stages: dict[str, StageFigures] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)

    @property
    def wall_s(self) -> float:
        """Seconds by the clock, of all stages."""
        return sum(stage.wall_s for stage in self.stages.values())

    @property
    def kept_per_minute(self) -> float | None:
        """Kept traces per minute of all stages; None where no time was measured."""
        return per_minute(self.kept, self.wall_s)


@dataclass(frozen=True)
class Expense:
    """What one record of a stage cost, and which model was asked."""

    stage: str
    model: str
    spent: Spent


def summarise_run(
    settings: Mapping[str, Any],
    asked: Mapping[str, int],
    verified: Iterable[Verified],
    traces: Iterable[Trace],
    expenses: Iterable[Expense] = (),
    wall_s: Mapping[str, float] | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> RunSummary:
    """The figures of a run. Every iterable is gone through once, in this order.

    asked: questions per task. verified: one record per draft, kept or not. traces: the kept ones. wall_s: seconds by
    the clock of each stage. count_tokens: as the model counts that is to be trained.
    """
    tallies = {task: _Tally() for task in TASKS if asked.get(task)}
    for item in verified:
        tallies[item.task].add_verified(item)
    teachers = set()
    for trace in traces:
        tallies[trace.question.task].add_trace(trace, count_tokens)
        teachers.add(trace.teacher)
    tasks = {task: tally.figures(asked[task]) for task, tally in tallies.items()}
    return RunSummary(
        dict(settings),
        str(settings.get("writer_model") or settings.get("teacher") or ", ".join(sorted(teachers))),
        sum(figures.questions for figures in tasks.values()),
        sum(figures.kept for figures in tasks.values()),
        tasks,
        _stages(expenses, wall_s or {}),
    )


def summarise_folder(
    folder: Path,
    settings: Mapping[str, Any],
    questions: Iterable[Question],
    count_tokens: Callable[[str], int] | None = None,
) -> RunSummary:
    """The figures of a folder in which all stages are finished, with the prices that run.json holds."""
    state = read_state(folder)
    summary = summarise_run(
        settings,
        Counter(question.task for question in questions),
        read_lines(folder / VERIFIED_FILE, Verified),
        (trace for _, trace in read_records(folder / TRACES_FILE, trace_from_row)),
        _expenses(folder),
        {name: stage.wall_s for name, stage in state.stages.items()},
        count_tokens,
    )
    return priced(summary, state.prices)


def priced(summary: RunSummary, prices: Mapping[str, float]) -> RunSummary:
    """The same with prices; those that are given win over those it has."""
    return replace(summary, prices={**summary.prices, **prices})


def write_summary(folder: Path, summary: RunSummary) -> None:
    """Write summary.json."""
    write_json(folder / SUMMARY_FILE, asdict(summary))


def read_summary(folder: Path) -> RunSummary:
    """The summary of a finished run. Raises UsageError where there is none."""
    path = folder / SUMMARY_FILE
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no finished run of traces (no {SUMMARY_FILE}); finish it: data_gen/build_cot.py --resume"
        )
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunSummary)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no summary of traces ({error}); make it with data_gen/build_cot.py") from error


class _Tally:
    """What is counted of one task as its records go by."""

    def __init__(self) -> None:
        self.kept = self.drafts = self.surplus = 0
        self.dropped: Counter[str] = Counter()
        self.first_dropped: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()
        self.kept_after: Counter[int] = Counter()
        self.endings: Counter[str] = Counter()
        self.holds = self.ends = self.erring = 0
        self.words: list[int] = []
        self.tokens: list[int] = []

    def add_verified(self, item: Verified) -> None:
        self.drafts += 1
        if SURPLUS in item.verdict:
            self.surplus += 1
            return
        self.dropped.update(item.verdict)
        self.first_dropped.update(item.first_verdict)
        self.fates[_fate(item)] += 1
        self.fates["changed"] += item.corrected
        if not item.verdict:
            self.kept_after[item.attempts] += 1

    def add_trace(self, trace: Trace, count_tokens: Callable[[str], int] | None) -> None:
        self.kept += 1
        self.holds += holds_answer(trace.question, trace.reasoning)
        self.ends += ends_with_answer(trace.question, trace.reasoning)
        self.erring += ERRING in trace.question.extra
        self.words.append(len(trace.reasoning.split()))
        if count_tokens:
            self.tokens.append(count_tokens(trace.reasoning))
        if trace.teacher == ORACLE:
            self.endings[ending_of(trace.question.id)] += 1

    def figures(self, asked: int) -> TaskFigures:
        return TaskFigures(
            asked,
            self.kept,
            self.drafts,
            self.surplus,
            dict(self.dropped.most_common()),
            dict(self.first_dropped.most_common()),
            Corrections(**self.fates),
            {str(attempts): self.kept_after[attempts] for attempts in sorted(self.kept_after)},
            *_lengths(self.words, STEPS["words"]),
            *_lengths(self.tokens, STEPS["tokens"]),
            self.holds / self.kept if self.kept else None,
            self.ends / self.kept if self.kept else None,
            {name: self.endings[name] for name in ENDINGS} if self.endings else {},
            self.erring,
        )


def _fate(item: Verified) -> str:
    if item.first_verdict:
        return "lost" if item.verdict else "mended"
    return "spoiled" if item.verdict else "sound"


def _lengths(values: Sequence[int], step: int) -> tuple[dict[str, int], float | None, int | None]:
    """A histogram by `step` without its empty places, the mean, and the longest."""
    places = Counter((value - 1) // step for value in values)
    histogram = {f"{place * step + 1}-{(place + 1) * step}": places[place] for place in sorted(places)}
    return histogram, sum(values) / len(values) if values else None, max(values, default=None)


def _expenses(folder: Path) -> Iterator[Expense]:
    """What each record of each stage cost."""
    for stage, (name, kind) in _RECORDS.items():
        path = folder / name
        for record in read_lines(path, kind) if path.is_file() else ():
            yield Expense(stage, record.model, record.spent)


def _stages(expenses: Iterable[Expense], wall_s: Mapping[str, float]) -> dict[str, StageFigures]:
    """The figures of each stage that something was asked in, in the order of the stages."""
    spent: dict[str, Spent] = defaultdict(Spent)
    models: dict[str, set[str]] = defaultdict(set)
    for expense in expenses:
        spent[expense.stage] += expense.spent
        models[expense.stage].add(expense.model)
    return {
        stage: stage_figures(models[stage], spent[stage], wall_s.get(stage, 0.0)) for stage in STAGES if stage in spent
    }
