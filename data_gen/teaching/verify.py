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

from data_gen.append_file import cut_unfinished_line, record_at, records_with_offsets
from data_gen.records import Question
from data_gen.teaching.prompts import FINE, attempt_text, judge_prompt, write_again_prompt
from data_gen.teaching.records import (
    DRAFTS_FILE,
    NOTHING,
    REPLY_REASONS,
    SURPLUS,
    UNJUDGED,
    VERIFIED_FILE,
    Draft,
    Spent,
    Verified,
    read_lines,
)
from data_gen.teaching.stage import Amount, run_jobs
from data_gen.teaching.write import Desk
from data_gen.teaching.writing import Writing, problems_of, read_writing
from data_gen.trace_checks import TraceBudget

# Asking again changes nothing about these.
_FINAL = frozenset(REPLY_REASONS.values()) - {REPLY_REASONS["empty"]}
_TURNS_PER_SAMPLE = 1000


@dataclass(frozen=True)
class _Case:
    """The drafts of a question that are to be verified, and whether another of its samples is kept already."""

    question: Question
    drafts: tuple[Draft, ...]
    has_kept: bool


@dataclass(frozen=True)
class _Judged:
    """A writing after the judgement. problem: why there is none that can be used, empty when there is."""

    writing: Writing
    corrected: bool = False
    problem: str = ""
    spent: Spent = NOTHING


def run_verify(out: Path, questions: Sequence[Question], desk: Desk, budget: TraceBudget, concurrency: int) -> None:
    """Add to verify.jsonl what becomes of the drafts that it does not hold yet."""
    path, done, kept = out / VERIFIED_FILE, defaultdict[str, set[int]](set), set[str]()
    cut_unfinished_line(path)
    for item in read_lines(path, Verified) if path.is_file() else ():
        done[item.id].add(item.sample)
        if not item.verdict:
            kept.add(item.id)
    places = defaultdict[str, list[int]](list)
    for offset, draft in records_with_offsets(out / DRAFTS_FILE, Draft):
        if draft.sample not in done[draft.id]:
            places[draft.id].append(offset)

    def cases() -> Iterator[_Case]:
        with (out / DRAFTS_FILE).open("rb") as file:
            for question in questions:
                drafts = [record_at(file, offset, Draft) for offset in places[question.id]]
                if drafts:
                    drafts.sort(key=lambda draft: draft.sample)
                    yield _Case(question, tuple(drafts), question.id in kept)

    def job(case: _Case) -> list[Verified]:
        return _verify_case(case, desk, budget)

    amount = Amount(len(questions), len(questions) - sum(map(bool, places.values())))
    run_jobs(path, job, cases(), amount, desk.teacher.client, concurrency)


def _verify_case(case: _Case, desk: Desk, budget: TraceBudget) -> list[Verified]:
    verified: list[Verified] = []
    has_kept = case.has_kept
    for draft in case.drafts:
        verified.append(_verify(case.question, draft, has_kept, desk, budget))
        has_kept = has_kept or not verified[-1].verdict
    return verified


def _verify(question: Question, draft: Draft, has_kept: bool, desk: Desk, budget: TraceBudget) -> Verified:
    """What becomes of one draft."""
    writing = Writing(draft.reasoning, draft.answer, draft.failed)
    first_verdict = problems_of(question, writing, budget)
    if is_final(first_verdict, draft.task, draft.blind):
        return _verified(draft, writing, first_verdict, first_verdict)
    if has_kept:
        return _verified(draft, writing, (SURPLUS,), first_verdict)
    attempts, corrected, spent = 1, False, NOTHING
    while True:
        judged = _judge(question, writing, f"{draft.sample}.{attempts}", desk)
        writing, corrected, spent = judged.writing, corrected or judged.corrected, spent + judged.spent
        verdict = (judged.problem,) if judged.problem else problems_of(question, writing, budget)
        if not verdict or attempts == desk.settings.attempts or is_final(verdict, draft.task, draft.blind):
            return _verified(draft, writing, verdict, first_verdict, corrected, attempts, spent)
        writing, cost = _write_again(question, writing, verdict, draft.sample, attempts, desk)
        attempts, spent = attempts + 1, spent + cost


def is_final(verdict: Sequence[str], task: str, blind: bool) -> bool:
    """Whether writing anew cannot help: the server will not do it, or a blind writer would have to be told.

    A blind writer's point may count as right and still be another than the true one, which its trace then contradicts.
    """
    untold = {"wrong_answer", "contradicts_answer"} if task == "pixel" else {"wrong_answer"}
    return not _FINAL.isdisjoint(verdict) or (blind and not untold.isdisjoint(verdict))


def _judge(question: Question, writing: Writing, name: str, desk: Desk) -> _Judged:
    """What the writer makes of a writing when it is asked to judge it."""
    if writing.failed:
        return _Judged(writing, problem=writing.failed)
    settings = desk.settings
    attempt = attempt_text(question, writing.reasoning, writing.answer)
    prompt = judge_prompt(question, attempt, settings.blind, settings.words)
    said = desk.teacher.ask(f"{question.id} judge {name}", prompt, desk.image(question), free=False)
    remark = said.text.rpartition("</think>")[2].strip(" *\"'\n").lower()  # some think aloud before they judge
    if remark.startswith(FINE):
        return _Judged(writing, spent=said.spent)
    corrected = read_writing(said, question)
    if corrected.failed:
        return _Judged(writing, problem=UNJUDGED, spent=said.spent)
    return _Judged(corrected, corrected=True, spent=said.spent)


def _write_again(
    question: Question, writing: Writing, problems: Sequence[str], sample: int, turn: int, desk: Desk
) -> tuple[Writing, Spent]:
    """Another writing, by a writer who sees the last one and what is wrong with it."""
    attempt = attempt_text(question, writing.reasoning, writing.answer)
    prompt = write_again_prompt(desk.first_prompt(question), attempt, problems, desk.settings.words)
    name = f"{question.id} write {sample}.{turn}"
    said = desk.teacher.ask(name, prompt, desk.image(question), turn=sample + _TURNS_PER_SAMPLE * turn)
    return read_writing(said, question), said.spent


def _verified(
    draft: Draft,
    writing: Writing,
    verdict: Sequence[str],
    first_verdict: Sequence[str],
    corrected: bool = False,
    attempts: int = 1,
    spent: Spent = NOTHING,
) -> Verified:
    return Verified(
        draft.id,
        draft.task,
        draft.sample,
        draft.model,
        draft.rules,
        draft.blind,
        writing.reasoning,
        writing.answer,
        corrected,
        attempts,
        tuple(verdict),
        tuple(first_verdict),
        spent,
    )
