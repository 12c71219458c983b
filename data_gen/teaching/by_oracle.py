"""Traces by the geometric oracle: written and checked in one go, without any server."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path

from data_gen.command_line import UsageError
from data_gen.files import read_json
from data_gen.folders import OutputFolder
from data_gen.images import MANIFEST, image_root
from data_gen.oracle import oracle_trace
from data_gen.oracle_misread import ERRING, errs, misread
from data_gen.records import Question, Trace, trace_to_row, write_rows
from data_gen.teaching.records import RUN_FILE, Verified
from data_gen.teaching.report import finish_run
from data_gen.teaching.selection import Selection, write_manifest
from data_gen.teaching.state import SUMMARY_FILE, TRACES_FILE
from data_gen.teaching.summary import summarise_run
from data_gen.trace_checks import MAX_WORDS, TraceBudget, trace_problems


@dataclass(frozen=True)
class OracleSettings(Selection):
    """What decides the oracle's traces; a run is only resumed with the same ones."""

    max_words: int = MAX_WORDS
    teacher: str = "oracle"
    erring_share: float = 0.0


def build_by_oracle(
    arguments: argparse.Namespace, selection: Selection, questions: Sequence[Question], folder: OutputFolder
) -> None:
    """Write the traces of the questions, then the summary, which marks a finished run."""
    settings, out = settings_of(arguments, selection), folder.path
    if folder.resume and _is_finished(out, settings):
        print(f"{out} holds a finished run; nothing to do")
        return
    root = _root(arguments)
    folder.prepare()
    budget = TraceBudget(settings.max_words)
    traces = [_checked(question, settings, budget) for question in _watched(questions)]
    kept = [trace for trace in traces if not trace.verdict]
    write_rows(out / TRACES_FILE, map(trace_to_row, kept))
    write_manifest(root, out)
    asked = Counter(question.task for question in questions)
    summary = summarise_run(asdict(settings), asked, map(_verified, traces), kept)
    finish_run(out, summary, questions, root)


def settings_of(arguments: argparse.Namespace, selection: Selection) -> OracleSettings:
    """The settings of a command line."""
    words = arguments.max_words or MAX_WORDS
    return OracleSettings(**asdict(selection), max_words=words, erring_share=arguments.erring_share)


def _root(arguments: argparse.Namespace) -> Path | None:
    """The folder of the images, where it is known: the oracle needs none."""
    known = arguments.images or (arguments.data.parent / MANIFEST).is_file()
    return image_root(arguments.data, arguments.images) if known else None


def _checked(question: Question, settings: OracleSettings, budget: TraceBudget) -> Trace:
    """The oracle's trace with the reasons against it; of an erring one, those against it if the misread were true."""
    seen = question
    if errs(question, settings.erring_share, settings.seed):
        seen = misread(question, settings.seed)
        question = replace(question, extra={**question.extra, ERRING: seen.answer_text})
    trace = oracle_trace(seen, settings.seed)
    verdict = trace_problems(seen, trace.reasoning, budget=budget)
    return replace(trace, question=question, verdict=verdict)


def _verified(trace: Trace) -> Verified:
    """A trace as the stages of teachers record it: there is one draft, which nobody corrects."""
    question, verdict = trace.question, trace.verdict
    return Verified(
        question.id, question.task, 0, trace.teacher, trace.rules, False, trace.reasoning, question.answer_text, False,
        trace.attempts, verdict, verdict,
    )  # fmt: skip


def _is_finished(out: Path, settings: OracleSettings) -> bool:
    """Whether `out` holds a finished run. Raises UsageError when a run there was made with other settings."""
    if (out / RUN_FILE).is_file():
        raise UsageError(f"{out} holds a run of teachers behind servers; choose another --out, or --overwrite it")
    if not (out / SUMMARY_FILE).is_file():
        return False
    before = read_json(out / SUMMARY_FILE).get("settings")
    if not isinstance(before, dict):
        raise UsageError(f"{out / SUMMARY_FILE} is no summary of a run; start anew with --overwrite")
    now = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}
    unsaid = {item.name: item.default for item in fields(settings) if item.default is not MISSING}
    pairs = {name: (before.get(name, unsaid.get(name)), value) for name, value in now.items()}
    if changed := [f"{name} {old!r} -> {new!r}" for name, (old, new) in pairs.items() if old != new]:
        raise UsageError(
            f"{out} was made with other settings ({'; '.join(changed)}); choose another --out, or start anew with "
            "--overwrite"
        )
    return True


def _watched(questions: Sequence[Question]) -> Iterator[Question]:
    from tqdm import tqdm

    return iter(tqdm(questions, desc="traces", unit="question", mininterval=1.0))
