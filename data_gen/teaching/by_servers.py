"""Traces by teachers behind chat servers: from a command line to a course of the four stages and its summary."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from data_gen.chat import ChatClient
from data_gen.command_line import UsageError
from data_gen.folders import OutputFolder, alone_in
from data_gen.images import check_images, image_root
from data_gen.records import Question
from data_gen.teaching.costs import prices_of
from data_gen.teaching.pipeline import Course, Plan, plan_of, teach
from data_gen.teaching.records import RUN_FILE, STAGES
from data_gen.teaching.report import finish_run
from data_gen.teaching.rules import read_rules, supplied_digest
from data_gen.teaching.selection import Selection, write_manifest
from data_gen.teaching.settings import TeachingSettings
from data_gen.teaching.state import SUMMARY_FILE, RunState, read_state
from data_gen.teaching.summary import summarise_folder
from data_gen.teaching.teacher import Teacher
from data_gen.teaching.write import drafted

REASONER_TOKENS, WRITER_TOKENS = 8192, 2048  # the most that one reply may take


def build_by_servers(
    arguments: argparse.Namespace, selection: Selection, questions: Sequence[Question], folder: OutputFolder
) -> None:
    """Run the stages that are left; once all are finished, write the traces and their summary."""
    out, root = folder.path, image_root(arguments.data, arguments.images)
    course = read_course(arguments, selection, questions, root)
    state = read_state(out) if folder.resume else RunState()
    if folder.resume and (out / SUMMARY_FILE).is_file() and not (out / RUN_FILE).is_file():
        raise UsageError(f"{out} holds traces by the oracle; choose another --out, or --overwrite it")
    plan = plan_of(course, state)
    if not plan.left and (out / SUMMARY_FILE).is_file():
        drafted(out, read_rules(out, course.tasks))  # rules that were edited since are refused
        print(f"{out} holds a finished run; nothing to do")
        return
    _check_images(plan, questions, root)
    folder.prepare()
    with alone_in(out):
        write_manifest(root, out)
        if teach(course, plan, prices_of(arguments)):
            settings = course.settings
            count_tokens = settings.budget().count_tokens if settings.tokenizer else None
            summary = summarise_folder(out, asdict(settings), questions, count_tokens)
            finish_run(out, summary, questions, root)


def read_course(
    arguments: argparse.Namespace, selection: Selection, questions: Sequence[Question], root: Path
) -> Course:
    """The course that a command line asks for. Raises UsageError for options that do not fit each other."""
    stages = _stages(arguments.stages)
    if arguments.samples > 1 and arguments.temperature == 0:
        raise UsageError("--samples above 1 needs a --temperature above 0: else all samples are the same")
    if arguments.samples > 1 and not arguments.blind:
        raise UsageError("--samples above 1 is for --blind; a writer who sees the answer corrects its one draft")
    if arguments.rules and (named := {"reason", "rules"} & set(stages)):
        raise UsageError(f"--rules supplies the rules; leave {' and '.join(sorted(named))} out of --stages")
    tasks = list(dict.fromkeys(question.task for question in questions))
    settings = TeachingSettings(
        **asdict(selection),
        k=arguments.k,
        reasoner_model=arguments.reasoner_model,
        writer_model=arguments.writer_model,
        rules_digest=supplied_digest(arguments.rules, tasks) if arguments.rules else "",
        blind=arguments.blind,
        samples=arguments.samples,
        attempts=arguments.attempts,
        temperature=arguments.temperature,
        max_tokens=arguments.max_tokens,
        max_words=arguments.max_words,
        tokenizer=arguments.tokenizer,
    )
    return Course(
        arguments.out,
        questions,
        root,
        settings,
        _teacher(arguments, "reasoner", REASONER_TOKENS),
        _teacher(arguments, "writer", WRITER_TOKENS),
        arguments.concurrency,
        stages,
        arguments.rules,
    )


def _stages(text: str | None) -> tuple[str, ...]:
    """The stages that are named, in their order. Raises UsageError for an unknown one."""
    named = [name.strip() for name in text.split(",")] if text else []
    if unknown := [name for name in named if name not in STAGES]:
        raise UsageError(f"unknown stage {', '.join(map(repr, unknown))} in --stages; known: {', '.join(STAGES)}")
    return tuple(stage for stage in STAGES if stage in named)


def _teacher(arguments: argparse.Namespace, role: str, reply_tokens: int) -> Teacher | None:
    """The teacher of a role, None where no server is given. Raises UsageError for half of what is needed."""
    urls, model = getattr(arguments, role), getattr(arguments, f"{role}_model")
    if not urls:
        return None
    if not model:
        raise UsageError(f"--{role} needs --{role}-model, the name under which the server offers its model")
    client = ChatClient([url.strip() for url in urls.split(",")], model)
    return Teacher(client, reply_tokens, arguments.temperature, arguments.seed)


def _check_images(plan: Plan, questions: Sequence[Question], root: Path) -> None:
    """Raise FileNotFoundError or RecordError when the images that will be shown are not all there."""
    if set(plan.left) - {"rules"}:
        check_images(questions, root)
