"""Two runs held against each other on the questions that both were asked: blind or not, a model or the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.records import Trace, read_records, trace_from_row
from data_gen.teaching.records import VERIFIED_FILE, Verified, read_lines
from data_gen.teaching.state import TRACES_FILE
from data_gen.trace_checks import ends_with_answer, holds_answer
from rewards.boxes import Size
from rewards.grading import TASKS, same_answer


@dataclass(frozen=True)
class Outcome:
    """What became of one question. answer: what the teacher reached; the other figures only where the trace is kept."""

    task: str
    answer: str
    kept: bool = False
    words: int = 0
    holds_answer: bool = False
    ends_with_answer: bool = False
    image_size: Size | None = None


@dataclass(frozen=True)
class Side:
    """One run on the questions of both. kept: traces; the others are means and shares of these, None without any."""

    kept: int
    words: float | None
    holds_answer: float | None
    ends_with_answer: float | None


@dataclass(frozen=True)
class Comparison:
    """One run beside another on `questions`, of one task or all.

    agreement: share of the questions for which both reach an answer where it is the same, points within 1 %.
    """

    questions: int
    run: Side
    against: Side
    agreement: float | None


def read_outcomes(folder: Path) -> dict[str, Outcome]:
    """What became of each question of a run, by id; of the oracle's only the kept ones are known."""
    outcomes: dict[str, Outcome] = {}
    path = folder / VERIFIED_FILE
    for item in read_lines(path, Verified) if path.is_file() else ():
        if item.id not in outcomes or not item.verdict:
            outcomes[item.id] = Outcome(item.task, item.answer)
    for trace in iterate_traces(folder):
        written = outcomes.get(trace.question.id)
        outcomes[trace.question.id] = _kept(trace, written.answer if written else trace.question.answer_text)
    return outcomes


def iterate_traces(folder: Path) -> Iterable[Trace]:
    """The traces of a run, one at a time, none where it kept none."""
    path = folder / TRACES_FILE
    return (trace for _, trace in read_records(path, trace_from_row)) if path.is_file() else ()


def compare(run: Mapping[str, Outcome], against: Mapping[str, Outcome]) -> dict[str, Comparison]:
    """The comparison of each task that both have questions of, then of all together under `all`; empty without any."""
    shared = [name for name in run if name in against]
    tasks = {task: [name for name in shared if run[name].task == task] for task in TASKS}
    named = {**{task: names for task, names in tasks.items() if names}, **({"all": shared} if shared else {})}
    return {
        task: Comparison(
            len(names),
            _side([run[name] for name in names]),
            _side([against[name] for name in names]),
            _agreement([(run[name], against[name]) for name in names]),
        )
        for task, names in named.items()
    }


def _kept(trace: Trace, answer: str) -> Outcome:
    question = trace.question
    return Outcome(
        question.task,
        answer,
        True,
        len(trace.reasoning.split()),
        holds_answer(question, trace.reasoning),
        ends_with_answer(question, trace.reasoning),
        question.image_size,
    )


def _side(outcomes: Sequence[Outcome]) -> Side:
    kept = [outcome for outcome in outcomes if outcome.kept]
    return Side(
        len(kept),
        _mean([outcome.words for outcome in kept]),
        _mean([outcome.holds_answer for outcome in kept]),
        _mean([outcome.ends_with_answer for outcome in kept]),
    )


def _agreement(pairs: Sequence[tuple[Outcome, Outcome]]) -> float | None:
    return _mean([_same(one, other) for one, other in pairs if one.answer and other.answer])


def _same(one: Outcome, other: Outcome) -> bool:
    """Points are compared by the size of the image; where neither trace was kept it is not known, nor the tolerance."""
    return same_answer(one.answer, other.answer, one.image_size or other.image_size)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
