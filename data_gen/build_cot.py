"""Questions -> checked reasoning traces, the training data of the SFT cold start.

    python data_gen/build_cot.py --data data/surds/questions.jsonl --out data/cot [--teacher oracle] [--tasks yaw,depth]

Writes cot.jsonl (a question's fields with its trace), summary.json (kept and dropped by reason, endings, lengths) and
a manifest.json that leads to the images. A trace that fails a check is dropped, and its reasons are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError, parse_with_config, positive
from data_gen.files import write_json
from data_gen.folders import OutputFolder
from data_gen.images import MANIFEST, image_root
from data_gen.oracle import ENDINGS, ending_of, oracle_trace
from data_gen.records import Question, RecordError, Trace, read_questions, trace_to_row, write_rows
from data_gen.trace_checks import MAX_WORDS, TraceBudget, ends_with_answer, holds_answer, trace_problems
from rewards.grading import TASKS

BUILD_COMMAND = "python data_gen/build_surds.py --nuscenes DIR --out data/surds"
TRACES_FILE, SUMMARY_FILE = "cot.jsonl", "summary.json"
TEACHERS: dict[str, Callable[[Question, int], Trace]] = {"oracle": oracle_trace}
HISTOGRAM_STEP = 10


@dataclass(frozen=True)
class Settings:
    """What decides the traces; a run is only resumed with the same ones. `data_sha256` is that of the questions."""

    teacher: str
    seed: int
    tasks: tuple[str, ...]
    limit: int | None
    max_words: int
    data: str
    data_sha256: str


def main(argv: Sequence[str] | None = None) -> int:
    """Build the traces; 0, or 2 with the remedy on standard error when it cannot be done."""
    arguments = parse_with_config(_parser(), argv)
    try:
        build(arguments)
    except (UsageError, RecordError, FileExistsError) as error:
        print(f"build_cot: {error}", file=sys.stderr)
        return 2
    return 0


def build(arguments: argparse.Namespace) -> None:
    """Write the traces of the chosen questions, then the summary, which marks a finished run."""
    settings, out = read_settings(arguments), arguments.out
    questions = choose(read_questions(arguments.data), settings)
    folder = OutputFolder(out, "traces", arguments.resume, arguments.overwrite, (arguments.data,))
    folder.check()
    if arguments.resume and _is_finished(out, settings):
        print(f"{out} holds a finished run; nothing to do")
        return
    root = image_root(arguments.data) if (arguments.data.parent / MANIFEST).is_file() else None
    folder.prepare()
    traces = [_checked(question, settings) for question in _watched(questions)]
    kept = [trace for trace in traces if not trace.verdict]
    write_rows(out / TRACES_FILE, map(trace_to_row, kept))
    write_manifest(root, out)
    summary = {"settings": asdict(settings), "kept": len(kept), "tasks": summarise(traces)}
    write_json(out / SUMMARY_FILE, summary)
    print(report(traces, out))


def read_settings(arguments: argparse.Namespace) -> Settings:
    """The settings of a command line. Raises UsageError without data or for an unknown task."""
    import hashlib

    if arguments.data is None or not arguments.data.is_file():
        problem = "--data is missing" if arguments.data is None else f"no file at {arguments.data} (--data)"
        raise UsageError(f"{problem}: a questions.jsonl; build one with: {BUILD_COMMAND}")
    wanted = [name.strip() for name in arguments.tasks.split(",")] if arguments.tasks else list(TASKS)
    if unknown := [name for name in wanted if name not in TASKS]:
        raise UsageError(f"unknown task {', '.join(map(repr, unknown))} in --tasks; known: {', '.join(TASKS)}")
    with arguments.data.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    tasks = tuple(task for task in TASKS if task in wanted)
    limit, max_words = arguments.limit, arguments.max_words
    return Settings(arguments.teacher, arguments.seed, tasks, limit, max_words, arguments.data.name, digest)


def choose(questions: Sequence[Question], settings: Settings) -> list[Question]:
    """The questions of the wanted tasks, at most `limit`, in file order. Raises UsageError when none is left.

    A limit draws whole units, so that both questions of a mirrored pair are there or none.
    """
    units: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        if question.task in settings.tasks:
            units[question.unit].append(question)
    if not units:
        raise UsageError(f"{settings.data} holds no question of the tasks {', '.join(settings.tasks)} (--tasks)")
    if settings.limit is None:
        return [question for unit in units.values() for question in unit]
    order = list(units)
    random.Random(settings.seed).shuffle(order)
    drawn: dict[str, int] = {}
    for unit in order:
        if sum(drawn.values()) + len(units[unit]) <= settings.limit:
            drawn[unit] = len(units[unit])
    if not drawn:
        raise UsageError(f"--limit {settings.limit} is less than one unit; a mirrored pair has 2 questions")
    return [question for name, unit in units.items() if name in drawn for question in unit]


def write_manifest(root: Path | None, out: Path) -> None:
    """Lead from `out` to the folder of the images, where it is known."""
    if root is None:
        return
    if not root.is_absolute():
        root = Path(os.path.relpath(root.resolve(), out.resolve()))
    write_json(out / MANIFEST, {"image_root": root.as_posix()})


def summarise(traces: Sequence[Trace]) -> dict[str, dict[str, Any]]:
    """The figures of each task. traces: kept ones, and dropped ones with their reasons in `verdict`."""
    return {
        task: _task_summary([trace for trace in traces if trace.question.task == task])
        for task in TASKS
        if any(trace.question.task == task for trace in traces)
    }


def _task_summary(traces: Sequence[Trace]) -> dict[str, Any]:
    kept = [trace for trace in traces if not trace.verdict]
    steps = Counter((len(trace.reasoning.split()) - 1) // HISTOGRAM_STEP for trace in kept)
    endings = Counter(ending_of(trace.question.id) for trace in kept)
    return {
        "questions": len(traces),
        "kept": len(kept),
        "dropped": dict(Counter(reason for trace in traces for reason in trace.verdict)),
        "endings": {name: endings[name] for name in ENDINGS},
        "words": {f"{k * HISTOGRAM_STEP + 1}-{(k + 1) * HISTOGRAM_STEP}": steps[k] for k in sorted(steps)},
        "holds_answer": _share([holds_answer(trace.question, trace.reasoning) for trace in kept]),
        "ends_with_answer": _share([ends_with_answer(trace.question, trace.reasoning) for trace in kept]),
    }


def report(traces: Sequence[Trace], out: Path) -> str:
    """What was done, in a few lines for the terminal."""
    lines = [
        f"{task}: {figures['kept']} of {figures['questions']} traces kept, "
        f"{figures['ends_with_answer']:.0%} end with the literal answer"
        + "".join(f"; {count} {reason}" for reason, count in figures["dropped"].items())
        for task, figures in summarise(traces).items()
    ]
    return "\n".join([*lines, f"written to {out / TRACES_FILE}"])


def _checked(question: Question, settings: Settings) -> Trace:
    """The teacher's trace with the reasons against it."""
    trace = TEACHERS[settings.teacher](question, settings.seed)
    return replace(trace, verdict=trace_problems(question, trace.reasoning, budget=TraceBudget(settings.max_words)))


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _is_finished(out: Path, settings: Settings) -> bool:
    """Whether `out` holds a finished run. Raises UsageError when that run was made with other settings."""
    if not (out / SUMMARY_FILE).is_file():
        return False
    try:
        before = json.loads((out / SUMMARY_FILE).read_text(encoding="utf-8"))["settings"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{out / SUMMARY_FILE} is no summary of a run; start anew with --overwrite") from error
    now = json.loads(json.dumps(asdict(settings)))
    pairs = {name: (before.get(name), value) for name, value in now.items()}
    if changed := [f"{name} {old!r} -> {new!r}" for name, (old, new) in pairs.items() if old != new]:
        raise UsageError(
            f"{out} was made with other settings ({'; '.join(changed)}); choose another --out, or start anew with "
            "--overwrite"
        )
    return True


def _watched(questions: Sequence[Question]) -> Iterator[Question]:
    from tqdm import tqdm

    return iter(tqdm(questions, desc="traces", unit="question", mininterval=1.0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the questions.jsonl to reason about")
    parser.add_argument("--out", type=Path, default=Path("data/cot"), help="folder to write (default: %(default)s)")
    parser.add_argument("--teacher", choices=sorted(TEACHERS), default="oracle", help="who writes the traces")
    parser.add_argument("--seed", type=int, default=0, help="chooses the wordings and what --limit keeps")
    parser.add_argument("--limit", type=positive, help="at most so many questions, pairs kept whole")
    parser.add_argument("--tasks", help=f"some of {','.join(TASKS)}, separated by commas (default: all)")
    parser.add_argument("--max-words", type=positive, default=MAX_WORDS, help="longest trace (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="leave a finished run, complete an unfinished one")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
