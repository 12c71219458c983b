"""The four stages in a row: what is left to do, under which conditions, and what is written when all is done."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from data_gen.append_file import record_at, records_with_offsets
from data_gen.command_line import UsageError
from data_gen.records import Question, Trace, trace_to_row, write_rows
from data_gen.teaching.reason import run_reason, sampled_questions
from data_gen.teaching.records import RULES_FOLDER, STAGES, VERIFIED_FILE, Verified
from data_gen.teaching.rules import copy_rules, read_rules, rules_path, run_rules
from data_gen.teaching.settings import TeachingSettings
from data_gen.teaching.state import (
    TRACES_FILE,
    RunState,
    StageState,
    check_settings,
    read_state,
    set_aside,
    unfinished,
    write_state,
)
from data_gen.teaching.teacher import Teacher
from data_gen.teaching.verify import run_verify
from data_gen.teaching.write import Desk, drafted, run_write
from data_gen.trace_checks import TraceBudget

NOTED_EVERY_S = 20.0  # the time that a stage has taken, which a kill must not take away


@dataclass(frozen=True)
class Course:
    """One run of the pipeline. root: the images' folder; rules: a folder of supplied rules.

    stages: those that were named, none when all that is left is to be done. reasoner and writer: None where no server
    of theirs was given.
    """

    out: Path
    questions: Sequence[Question]
    root: Path
    settings: TeachingSettings
    reasoner: Teacher | None
    writer: Teacher | None
    concurrency: int
    stages: tuple[str, ...] = ()
    rules: Path | None = None
    budget: TraceBudget = field(default_factory=TraceBudget)

    @property
    def tasks(self) -> list[str]:
        """The tasks of the questions, in their order."""
        return list(dict.fromkeys(question.task for question in self.questions))


@dataclass(frozen=True)
class Plan:
    """What a run will do. anew: the stage from which on all is set aside first, or empty; left: the stages to run."""

    anew: str
    left: tuple[str, ...]


def plan_of(course: Course, state: RunState) -> Plan:
    """What is to be done in a folder of that state.

    Raises UsageError where a stage lacks what comes before it, or its teacher, or was made with other settings.
    """
    anew = ""
    if course.stages and not unfinished(state, course.stages):
        anew = min(course.stages, key=STAGES.index)
        state = state.before(anew)
    left = unfinished(state, course.stages or STAGES)
    if course.rules and "write" in left and "rules" not in left:
        left = [*unfinished(state, ["rules"]), *left]  # which copies what is supplied
    if not course.stages and ("rules" not in left or course.rules):  # nothing needs the reasoning any more
        left = [stage for stage in left if stage != "reason"]
    _check_order(course, state, left)
    for stage in left:
        _check_teacher(course, stage)
    _check_settings(course, state)
    return Plan(anew, tuple(left))


def teach(course: Course, plan: Plan, prices: dict[str, float]) -> bool:
    """Run the stages that are left, and write the traces once all are finished; whether they are.

    prices: noted for the report. Raises UsageError, ChatError and RecordError with the remedy; what was written until
    then stays.
    """
    if "verify" in plan.left:
        course = replace(course, budget=course.settings.budget())  # now, not after a night of writing
    state = replace(read_state(course.out), prices=prices)
    if plan.anew:
        state = set_aside(course.out, state, plan.anew)
    for stage in plan.left:
        state = _run_stage(course, state, stage)
    missing = unfinished(state, ("rules", "write", "verify"))
    if not missing:
        write_traces(course.out, course.questions)
        return True
    told = f"; the rules in {course.out / RULES_FOLDER} may be edited now" if missing[0] == "write" else ""
    print(f"finished: {', '.join(plan.left)}{told}; left to do: {', '.join(missing)} (--resume)")
    return False


def write_traces(out: Path, questions: Sequence[Question]) -> None:
    """Write cot.jsonl: the trace of each question that has one without a verdict, in the order of the questions."""
    kept = {item.id: offset for offset, item in records_with_offsets(out / VERIFIED_FILE, Verified) if not item.verdict}
    with (out / VERIFIED_FILE).open("rb") as file:
        traces = (
            _trace(question, record_at(file, kept[question.id], Verified))
            for question in questions
            if question.id in kept
        )
        write_rows(out / TRACES_FILE, map(trace_to_row, traces))


def _trace(question: Question, verified: Verified) -> Trace:
    return Trace(question, verified.reasoning, verified.model, verified.rules, verified.attempts)


def _check_order(course: Course, state: RunState, left: Sequence[str]) -> None:
    """Raise UsageError for a stage that builds on one which is neither finished nor run before it."""
    for stage, needed in (("rules", "reason"), ("verify", "write")):
        given = stage == "rules" and course.rules
        if stage in left and not given and needed not in left and not state.is_finished(needed):
            raise UsageError(
                f"the stage {stage} needs the stage {needed}, which is not finished in {course.out}; run it first "
                f"(--stages {needed} --resume) or leave out --stages"
            )


def _check_settings(course: Course, state: RunState) -> None:
    """Raise UsageError when what is there was made with other settings than are asked for now."""
    for stage in course.stages or STAGES:
        held = state.stages.get(stage)
        if held is None or (stage == "reason" and held.finished and course.reasoner is None):
            continue
        if stage == "rules" and held.finished and not course.rules and "rules_digest" in held.settings:
            continue  # they were supplied once, and are the run's own since
        check_settings(course.out, stage, held, course.settings.of_stage(stage))


def _check_teacher(course: Course, stage: str) -> None:
    if stage == "reason" and course.reasoner is None:
        raise UsageError(
            "the stage reason needs --reasoner URL and --reasoner-model NAME; without a reasoner supply rules with "
            "--rules DIR"
        )
    if stage in ("rules", "write", "verify") and course.writer is None and not (stage == "rules" and course.rules):
        raise UsageError(f"the stage {stage} needs --writer URL and --writer-model NAME")


def _run_stage(course: Course, state: RunState, stage: str) -> RunState:
    """Run one stage and note in run.json that it was begun, how long it took, and that it is finished."""
    held = state.stages.get(stage) or StageState(course.settings.of_stage(stage))
    state = state.with_stage(stage, held)
    write_state(course.out, state)
    began_s = time.monotonic()

    def noted(finished: bool = False) -> RunState:
        wall_s = round(held.wall_s + time.monotonic() - began_s, 1)
        now = state.with_stage(stage, replace(held, finished=finished, wall_s=wall_s))
        write_state(course.out, now)
        return now

    finished = False
    try:
        with _repeated(noted, NOTED_EVERY_S):
            _RUNS[stage](course)
        finished = True
    finally:
        state = noted(finished)
    return state


@contextmanager
def _repeated(call: Callable[[], object], every_s: float) -> Iterator[None]:
    """Call a function again and again meanwhile, in a thread of its own."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every_s):
            call()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _reason(course: Course) -> None:
    if course.reasoner is not None:
        sampled = sampled_questions(course.questions, course.settings.k, course.settings.seed)
        run_reason(course.out, sampled, course.root, course.reasoner, course.concurrency)


def _rules(course: Course) -> None:
    if course.rules is not None:
        copy_rules(course.rules, course.out, course.tasks)
    elif course.writer is not None:
        run_rules(course.out, course.questions, course.writer, course.settings.attempts, course.concurrency)


def _write(course: Course) -> None:
    if course.writer is not None:
        desk = _desk(course, course.writer)
        for task, rules in desk.rules.items():
            if rules.edited:
                told = f"{rules_path(course.out, task)} was edited by hand and is used as it is"
                print(f"{told} (sha256 {rules.sha256})", file=sys.stderr)
        run_write(course.out, course.questions, desk, course.concurrency)


def _verify(course: Course) -> None:
    if course.writer is not None:
        desk = _desk(course, course.writer)
        drafted(course.out, desk.rules)  # what is written anew follows the rules of the drafts
        run_verify(course.out, course.questions, desk, course.budget, course.concurrency)


def _desk(course: Course, writer: Teacher) -> Desk:
    return Desk(writer, course.settings, read_rules(course.out, course.tasks), course.root)


_RUNS: dict[str, Callable[[Course], None]] = {"reason": _reason, "rules": _rules, "write": _write, "verify": _verify}
