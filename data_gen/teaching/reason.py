"""The first stage: a strong reasoner explains how one gets to the true answer of a few questions of each task."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from data_gen.append_file import cut_unfinished_line
from data_gen.records import Question
from data_gen.teaching.coordinates import answer_as_stored, as_stored
from data_gen.teaching.prompts import reason_prompt
from data_gen.teaching.records import NO_TRACE, REASONED_FILE, Reasoned, read_lines
from data_gen.teaching.stage import Amount, run_jobs
from data_gen.teaching.teacher import Said, Teacher
from data_gen.teaching.writing import is_right
from rewards.response import parse
from rewards.trace_text import concluded_option


def sampled_questions(questions: Sequence[Question], k: int, seed: int) -> list[Question]:
    """The questions of at most `k` units of every task, drawn with the seed, in the order given."""
    units: dict[str, dict[str, None]] = defaultdict(dict)
    for question in questions:
        units[question.task][question.unit] = None
    drawn = {
        unit
        for task, named in units.items()
        for unit in random.Random(f"{seed}-{task}").sample(list(named), min(k, len(named)))
    }
    return [question for question in questions if question.unit in drawn]


def run_reason(out: Path, questions: Sequence[Question], root: Path, teacher: Teacher, concurrency: int) -> None:
    """Add to reason.jsonl what the reasoner says about each question that it does not hold yet."""
    path = out / REASONED_FILE
    done = {reasoned.id for reasoned in stored_reasoning(path)}
    left = [question for question in questions if question.id not in done]

    def job(question: Question) -> list[Reasoned]:
        said = teacher.ask(f"{question.id} reason", reason_prompt(question), [root / question.image])
        return [_reasoned(question, said, teacher.client.model)]

    run_jobs(path, job, left, Amount(len(questions), len(questions) - len(left)), teacher.client, concurrency)


def stored_reasoning(path: Path) -> list[Reasoned]:
    """What reason.jsonl holds; a last line that was cut is removed."""
    cut_unfinished_line(path)
    return list(read_lines(path, Reasoned)) if path.is_file() else []


def _reasoned(question: Question, said: Said, model: str) -> Reasoned:
    response = parse(said.text, tags=("answer",))
    text = (response.think or said.text.rpartition("<answer>")[0] or said.text).strip()
    failed = said.failed or ("" if text else NO_TRACE)
    # Reasoners close in their own ways; then it counts what the text concludes with.
    answer = response.answer or concluded_option(text, question.options) or ""
    answer, text = answer_as_stored(answer, question), as_stored(text, question)
    right = not failed and is_right(question, answer)
    return Reasoned(question.id, question.task, model, text, answer, right, failed, said.spent)
