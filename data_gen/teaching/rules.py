"""The second stage: the rules of each task, a numbered list in a file of its own that a person may edit."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.append_file import cut_unfinished_line
from data_gen.command_line import UsageError
from data_gen.files import write_whole
from data_gen.records import Question
from data_gen.teaching.prompts import rules_prompt
from data_gen.teaching.reason import stored_reasoning
from data_gen.teaching.records import (
    DISTILLED_FILE,
    REASONED_FILE,
    RULES_FOLDER,
    Distilled,
    Reasoned,
    Spent,
    read_lines,
)
from data_gen.teaching.stage import Amount, run_jobs
from data_gen.teaching.teacher import Teacher

HEADING = "# Rules for {task}. The writer is shown the numbered list; edit it as you like before the stage `write`.\n\n"
LONGEST_EXAMPLE = 3000  # characters
_RULE = re.compile(r"(?:\*\*|[#>\s])*(\d{1,2})[.):]\**[ \t]*(.*)")
_Example = tuple[Question, Reasoned]


@dataclass(frozen=True)
class Rules:
    """The rules of a task as the writer is shown them, and the sha256 of their file.

    edited: whether the file is another than the stage `rules` wrote.
    """

    text: str
    sha256: str
    edited: bool = False


def run_rules(out: Path, questions: Sequence[Question], teacher: Teacher, attempts: int, concurrency: int) -> None:
    """Write rules/<task>.md for each task that has none yet, and what that took to rules.jsonl.

    Raises UsageError when there is no reasoning to go by, or the writer does not give a list.
    """
    path, by_id = out / DISTILLED_FILE, {question.id: question for question in questions}
    examples: dict[str, list[_Example]] = {question.task: [] for question in questions}
    failed: Counter[str] = Counter()
    for reasoned in stored_reasoning(out / REASONED_FILE):
        failed[reasoned.failed] += 1
        if not reasoned.failed:
            examples[reasoned.task].append((by_id[reasoned.id], reasoned))
    left = [task for task in examples if not rules_path(out, task).is_file()]
    cut_unfinished_line(path)
    if lacking := [task for task in left if not examples[task]]:
        told = ", ".join(f"{count} {code}" for code, count in failed.items() if code) or "none asked for"
        raise UsageError(
            f"{out / REASONED_FILE} holds no usable reasoning on {', '.join(lacking)} ({told}); make it anew with "
            "--stages reason --resume, or supply rules with --rules DIR"
        )

    for task in left:
        if not any(reasoned.right for _, reasoned in examples[task]):
            told = "reached the right answer; read its rules before they are used"
            print(f"none of the {len(examples[task])} explanations on {task} {told}", file=sys.stderr)

    def job(task: str) -> list[Distilled]:
        shown = sorted(examples[task], key=lambda example: (not example[1].right, example[0].id))
        text, distilled = _distil(task, shown, teacher, attempts)
        write_whole(rules_path(out, task), text)
        return [distilled]

    run_jobs(path, job, left, Amount(len(examples), len(examples) - len(left), "task"), teacher.client, concurrency)


def rules_path(out: Path, task: str) -> Path:
    """The file of a task's rules."""
    return out / RULES_FOLDER / f"{task}.md"


def read_rules(out: Path, tasks: Sequence[str]) -> dict[str, Rules]:
    """The rules of some tasks as their files hold them now.

    Raises UsageError when a file is missing or holds nothing.
    """
    written = _written(out / DISTILLED_FILE)
    rules = {}
    for task in tasks:
        path = rules_path(out, task)
        if not path.is_file():
            raise UsageError(
                f"no {path}, which the stage write needs; run the stages reason and rules first (--stages "
                "reason,rules --reasoner URL), or supply rules with --rules DIR"
            )
        content = path.read_bytes()
        lines = content.decode("utf-8-sig", "replace").splitlines()
        text = "\n".join(line.rstrip() for line in lines if line.strip() and not line.startswith("#"))
        if not text:
            raise UsageError(f"{path} holds no rule; write some, or delete it and run the stage rules again")
        digest = hashlib.sha256(content).hexdigest()
        rules[task] = Rules(text, digest, written.get(task, digest) != digest)
    return rules


def supplied_digest(folder: Path, tasks: Sequence[str]) -> str:
    """One short name for the rules in a folder of somebody's own. Raises UsageError when a task has none."""
    if lacking := [task for task in tasks if not (folder / f"{task}.md").is_file()]:
        raise UsageError(f"{folder} (--rules) lacks {', '.join(f'{task}.md' for task in lacking)}")
    contents = b"\0".join((folder / f"{task}.md").read_bytes() for task in tasks)
    return hashlib.sha256(contents).hexdigest()[:16]


def copy_rules(folder: Path, out: Path, tasks: Sequence[str]) -> None:
    """Copy supplied rules into the run's folder, where they are not there yet."""
    for task in tasks:
        if not rules_path(out, task).is_file():
            write_whole(rules_path(out, task), (folder / f"{task}.md").read_bytes())


def _distil(task: str, examples: Sequence[_Example], teacher: Teacher, attempts: int) -> tuple[str, Distilled]:
    """The content of a task's file, and what it took. Raises UsageError when no list comes."""
    prompt, spent, failed = rules_prompt(examples, LONGEST_EXAMPLE), Spent(), ""
    for turn in range(attempts):
        said = teacher.ask(f"{task} rules {turn}", prompt, turn=turn, free=turn > 0)
        spent += said.spent
        failed = said.failed or "a reply without a numbered list"
        if listed := numbered_list(said.text):
            text = HEADING.format(task=task) + "\n".join(listed) + "\n"
            shown = tuple(question.id for question, _ in examples)
            digest = hashlib.sha256(text.encode()).hexdigest()
            return text, Distilled(task, teacher.client.model, digest, shown, turn + 1, spent)
    raise UsageError(
        f"{teacher.client.model} gives no rules for {task} ({attempts} attempts, the last: {failed}); try again with "
        "--resume, or supply them with --rules DIR"
    )


def numbered_list(reply: str) -> list[str]:
    """The rules of a reply, numbered anew, one a line; a line without a number goes on with the line above it."""
    rules: list[str] = []
    goes_on = False
    for line in reply.splitlines():
        if found := _RULE.match(line):
            rules.append(found.group(2).strip())
        elif goes_on and line.strip():
            rules[-1] = f"{rules[-1]} {line.strip()}"
        goes_on = bool(rules and line.strip() and (found or goes_on))
    return [f"{number}. {rule}" for number, rule in enumerate(filter(None, rules), 1)]


def _written(path: Path) -> Mapping[str, str]:
    """The sha256 of each task's rules as the writer gave them."""
    cut_unfinished_line(path)
    return {item.task: item.rules for item in read_lines(path, Distilled)} if path.is_file() else {}
