"""The way of one draft to its verdict, turn by turn: it is judged, and what then fails is written anew, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from data_gen.records import Question
from data_gen.teaching.prompts import FINE, attempt_text, judge_prompt, write_again_prompt
from data_gen.teaching.records import NOTHING, REPLY_REASONS, UNJUDGED, Draft, Spent
from data_gen.teaching.write import Desk
from data_gen.teaching.writing import Writing, problems_of, read_writing
from data_gen.trace_checks import TraceBudget

# Asking again changes nothing about these.
_FINAL = frozenset(REPLY_REASONS.values()) - {REPLY_REASONS["empty"]}
_TURNS_PER_SAMPLE = 1000


@dataclass(frozen=True)
class Turn:
    """How far a draft has come; a line of the file of turns. attempts: how often it was written.

    judged: whether the writing was judged and checked; verdict: what then spoke against it. spent: on all its turns.
    """

    id: str
    sample: int
    attempts: int
    writing: Writing
    corrected: bool = False
    judged: bool = False
    verdict: tuple[str, ...] = ()
    spent: Spent = NOTHING


def first_turn(draft: Draft) -> Turn:
    """Where every draft begins."""
    return Turn(draft.id, draft.sample, 1, Writing(draft.reasoning, draft.answer, draft.failed))


def next_turn(turn: Turn, question: Question, desk: Desk, budget: TraceBudget) -> Turn:
    """The turn after one that is not the last: a judgement, or after that another writing. Asks the writer."""
    return _written_anew(turn, question, desk) if turn.judged else _judged(turn, question, desk, budget)


def is_last(turn: Turn, task: str, desk: Desk) -> bool:
    """Whether its verdict is the last word on a draft."""
    spent = turn.attempts >= desk.settings.attempts
    return turn.judged and (not turn.verdict or spent or is_final(turn.verdict, task, desk.settings.blind))


def is_final(verdict: Sequence[str], task: str, blind: bool) -> bool:
    """Whether writing anew cannot help: the server will not do it, or a blind writer would have to be told.

    A blind writer's point may count as right and still be another than the true one, which its trace then contradicts.
    """
    untold = {"wrong_answer", "contradicts_answer"} if task == "pixel" else {"wrong_answer"}
    return not _FINAL.isdisjoint(verdict) or (blind and not untold.isdisjoint(verdict))


def is_fine(judgement: str) -> bool:
    """Whether a judgement says that nothing has to be changed: it begins with that word, or has it as its last line.

    Some think aloud before they judge.
    """
    lines = [line.strip(" *\"'.").lower() for line in judgement.rpartition("</think>")[2].strip().splitlines()]
    return bool(lines) and (lines[0].startswith(FINE) or lines[-1] == FINE)


def _judged(turn: Turn, question: Question, desk: Desk, budget: TraceBudget) -> Turn:
    """The same writing, or what the writer corrects it to when it is asked to judge it, with our own verdict."""
    if turn.writing.failed:
        return replace(turn, judged=True, verdict=(turn.writing.failed,))
    settings, writing = desk.settings, turn.writing
    attempt = attempt_text(question, writing.reasoning, writing.answer)
    prompt = judge_prompt(question, attempt, settings.blind, settings.words)
    name = f"{question.id} judge {turn.sample}.{turn.attempts}"
    said = desk.teacher.ask(name, prompt, desk.image(question), free=False)
    turn = replace(turn, judged=True, spent=turn.spent + said.spent)
    if is_fine(said.text):
        return replace(turn, verdict=problems_of(question, writing, budget))
    corrected = read_writing(said, question)
    if corrected.failed:
        return replace(turn, verdict=(UNJUDGED,))
    return replace(turn, writing=corrected, corrected=True, verdict=problems_of(question, corrected, budget))


def _written_anew(turn: Turn, question: Question, desk: Desk) -> Turn:
    """Another writing, by a writer who sees the last one and what is wrong with it."""
    attempt = attempt_text(question, turn.writing.reasoning, turn.writing.answer)
    prompt = write_again_prompt(desk.first_prompt(question), attempt, turn.verdict, desk.settings.words)
    name = f"{question.id} write {turn.sample}.{turn.attempts}"
    seed_turn = turn.sample + _TURNS_PER_SAMPLE * turn.attempts
    said = desk.teacher.ask(name, prompt, desk.image(question), turn=seed_turn)
    return Turn(
        turn.id,
        turn.sample,
        turn.attempts + 1,
        read_writing(said, question),
        turn.corrected,
        spent=turn.spent + said.spent,
    )
