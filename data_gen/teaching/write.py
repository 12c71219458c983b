"""The third stage: the writer's first draft of every question and sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.append_file import cut_unfinished_line
from data_gen.command_line import UsageError
from data_gen.records import Question
from data_gen.teaching.prompts import write_prompt
from data_gen.teaching.records import DRAFTS_FILE, Draft, read_lines
from data_gen.teaching.rules import Rules, rules_path
from data_gen.teaching.settings import TeachingSettings
from data_gen.teaching.stage import Amount, run_jobs
from data_gen.teaching.teacher import Teacher
from data_gen.teaching.writing import read_writing


@dataclass(frozen=True)
class Desk:
    """What the writer works with. rules: by task; root: the folder of the images."""

    teacher: Teacher
    settings: TeachingSettings
    rules: Mapping[str, Rules]
    root: Path

    def first_prompt(self, question: Question) -> str:
        """The request for a trace."""
        settings = self.settings
        return write_prompt(question, self.rules[question.task].text, settings.blind, settings.words)

    def image(self, question: Question) -> list[Path]:
        """The picture of a question."""
        return [self.root / question.image]


def run_write(out: Path, questions: Sequence[Question], desk: Desk, concurrency: int) -> None:
    """Add to write.jsonl the drafts that it does not hold yet. Raises UsageError when it holds some by other rules."""
    samples = desk.settings.samples
    done = drafted(out, desk.rules)
    left = ((question, sample) for question in questions for sample in range(samples))
    items = ((question, sample) for question, sample in left if (question.id, sample) not in done)

    def job(item: tuple[Question, int]) -> list[Draft]:
        return [_draft(*item, desk)]

    amount = Amount(len(questions) * samples, len(done), "draft")
    run_jobs(out / DRAFTS_FILE, job, items, amount, desk.teacher.client, concurrency)


def drafted(out: Path, rules: Mapping[str, Rules]) -> set[tuple[str, int]]:
    """Question and sample of every draft there is; a last line that was cut is removed.

    Raises UsageError when one was written by other rules than those of its task now.
    """
    path = out / DRAFTS_FILE
    cut_unfinished_line(path)
    done = set()
    for draft in _drafts(path):
        if draft.rules != rules[draft.task].sha256:
            raise UsageError(
                f"{path} holds drafts by other rules than {rules_path(out, draft.task)} has now (sha256 "
                f"{draft.rules[:16]} there, {rules[draft.task].sha256[:16]} now); write them anew with --stages write "
                "--resume, or restore the rules"
            )
        done.add((draft.id, draft.sample))
    return done


def _drafts(path: Path) -> Iterator[Draft]:
    return read_lines(path, Draft) if path.is_file() else iter(())


def _draft(question: Question, sample: int, desk: Desk) -> Draft:
    said = desk.teacher.ask(
        f"{question.id} write {sample}", desk.first_prompt(question), desk.image(question), turn=sample
    )
    writing = read_writing(said, question)
    return Draft(
        question.id,
        question.task,
        sample,
        desk.teacher.client.model,
        desk.rules[question.task].sha256,
        desk.settings.blind,
        writing.reasoning,
        writing.answer,
        writing.failed,
        said.spent,
    )
