"""The fourth stage: the writer judges and corrects each draft, then our own checks decide; what fails goes back.

A trace is written at most `attempts` times in all, the draft included. A blind writer's wrong answer ends its draft at
once, since there is nothing to correct it by; of several right samples of a question the first is kept, and the later
ones, which then cost nothing, are `surplus`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.append_file import AppendFile, cut_unfinished_line, record_at, records_with_offsets
from data_gen.records import Question
from data_gen.teaching.records import (
    DRAFTS_FILE,
    SURPLUS,
    TURNS_FILE,
    VERIFIED_FILE,
    Draft,
    Verified,
    read_lines,
)
from data_gen.teaching.stage import Amount, run_jobs
from data_gen.teaching.turns import Turn, first_turn, is_final, is_last, next_turn
from data_gen.teaching.write import Desk
from data_gen.teaching.writing import problems_of
from data_gen.trace_checks import TraceBudget


@dataclass(frozen=True)
class _Case:
    """The drafts of a question that are to be verified, and whether another of its samples is kept already.

    turns: the last one of drafts that a killed run has left on their way, by sample.
    """

    question: Question
    drafts: tuple[Draft, ...]
    has_kept: bool
    turns: dict[int, Turn]


@dataclass(frozen=True)
class _Bench:
    """What the drafts are verified with. turns: the file that outlives a kill between two requests for one draft."""

    desk: Desk
    budget: TraceBudget
    turns: AppendFile


def run_verify(out: Path, questions: Sequence[Question], desk: Desk, budget: TraceBudget, concurrency: int) -> None:
    """Add to verify.jsonl what becomes of the drafts that it does not hold yet."""
    path, turns_path = out / VERIFIED_FILE, out / TURNS_FILE
    places, kept = _left_to_do(out)
    turns = _stored_turns(turns_path)

    def cases() -> Iterator[_Case]:
        with (out / DRAFTS_FILE).open("rb") as file:
            for question in questions:
                drafts = [record_at(file, offset, Draft) for offset in places[question.id]]
                if drafts:
                    drafts.sort(key=lambda draft: draft.sample)
                    yield _Case(question, tuple(drafts), question.id in kept, turns.pop(question.id, {}))

    amount = Amount(len(questions), len(questions) - sum(map(bool, places.values())))
    with AppendFile(turns_path) as turns_file:
        bench = _Bench(desk, budget, turns_file)
        run_jobs(path, lambda case: _verify_case(case, bench), cases(), amount, desk.teacher.client, concurrency)
    turns_path.unlink()


def _left_to_do(out: Path) -> tuple[dict[str, list[int]], set[str]]:
    """Offsets of the drafts without a line in verify.jsonl, by question, and the questions of which one is kept."""
    done, kept = defaultdict[str, set[int]](set), set[str]()
    cut_unfinished_line(out / VERIFIED_FILE)
    for item in read_lines(out / VERIFIED_FILE, Verified) if (out / VERIFIED_FILE).is_file() else ():
        done[item.id].add(item.sample)
        if not item.verdict:
            kept.add(item.id)
    places = defaultdict[str, list[int]](list)
    for offset, draft in records_with_offsets(out / DRAFTS_FILE, Draft):
        if draft.sample not in done[draft.id]:
            places[draft.id].append(offset)
    return places, kept


def _stored_turns(path: Path) -> dict[str, dict[int, Turn]]:
    """The last turn of each draft that a killed run has left on its way, by question and sample."""
    cut_unfinished_line(path)
    turns: dict[str, dict[int, Turn]] = defaultdict(dict)
    for _, turn in records_with_offsets(path, Turn):
        turns[turn.id][turn.sample] = turn
    return turns


def _verify_case(case: _Case, bench: _Bench) -> list[Verified]:
    verified: list[Verified] = []
    has_kept = case.has_kept
    for draft in case.drafts:
        verified.append(_verify(case, draft, has_kept, bench))
        has_kept = has_kept or not verified[-1].verdict
    return verified


def _verify(case: _Case, draft: Draft, has_kept: bool, bench: _Bench) -> Verified:
    """What becomes of one draft."""
    question, desk = case.question, bench.desk
    turn = first_turn(draft)
    first_verdict = problems_of(question, turn.writing, bench.budget)
    if is_final(first_verdict, draft.task, draft.blind):
        return _verified(draft, turn, first_verdict, first_verdict)
    if has_kept:
        return _verified(draft, turn, (SURPLUS,), first_verdict)
    turn = case.turns.get(draft.sample, turn)
    while not is_last(turn, draft.task, desk):
        turn = next_turn(turn, question, desk, bench.budget)
        if not is_last(turn, draft.task, desk) or draft is not case.drafts[-1]:
            bench.turns.append([turn])
    return _verified(draft, turn, turn.verdict, first_verdict)


def _verified(draft: Draft, turn: Turn, verdict: Sequence[str], first_verdict: Sequence[str]) -> Verified:
    return Verified(
        draft.id,
        draft.task,
        draft.sample,
        draft.model,
        draft.rules,
        draft.blind,
        turn.writing.reasoning,
        turn.writing.answer,
        turn.corrected,
        turn.attempts,
        tuple(verdict),
        tuple(first_verdict),
        turn.spent,
    )
