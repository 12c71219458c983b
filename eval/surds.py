"""Score a model on SURDS questions.

    python eval/surds.py --ckpt runs/grpo --data data/questions.jsonl
    python eval/surds.py --engine random --data data/questions.jsonl
    python eval/surds.py --replay runs/eval-grpo --scoring official --data data/questions.jsonl

Writes predictions.jsonl, summary.json and report.html into the run folder and prints the table. An interrupted run
goes on with --resume; nothing is asked twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from data_gen.command_line import UsageError
from data_gen.floors import units_of
from data_gen.folders import OutputFolder
from data_gen.images import check_images, image_root
from data_gen.prompts import prompt_of
from data_gen.records import Question, RecordError, question_to_row, read_questions, write_rows
from eval.arguments import parse_config, save_config
from eval.choose_engine import ChosenEngine, EngineOptions, default_label, engine_kind, open_engine
from eval.engines import ReplayEngine, Reply, Request
from eval.metrics import Outcome, assess, reasons_of, summarise
from eval.runner import CONFIG_FILE, PREDICTIONS_FILE, REPORT_FILE, RunFacts, claim_folder, collect, digest
from eval.summary import Summary, make_summary, write_summary
from rewards.boxes import CoordinateFrame
from rewards.grading import SCORINGS

BENCHMARK = "surds"
BUILD_COMMAND = "python data_gen/build_surds.py --nuscenes DIR --out data/surds"


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class SurdsConfig:
    """Options of an evaluation."""

    data: str | None = _option(None, "The questions.jsonl to ask, or its folder.")
    ckpt: str | None = _option(None, "The model: a checkpoint folder, a hub id, or `tiny`.")
    images: str | None = _option(None, "Folder of the images; by default the one that manifest.json names.")
    engine: Literal["hf", "random", "replay"] | None = _option(
        None, "Who answers; by default hf with --ckpt, replay with --replay."
    )
    replay: str | None = _option(None, "A predictions.jsonl, or its run folder, whose outputs are scored again.")
    scoring: Literal["strict", "official"] = _option(
        "strict", "The main scoring; both are computed, and the other one is shown where it differs."
    )
    prompt_style: Literal["located", "reasoning", "direct"] | None = _option(
        None, "Boxes, reasoning and answer (located, the default), reasoning and answer, or the answer only."
    )
    frame: Literal["original", "resized", "thousand"] | None = _option(
        None, "Coordinates the model writes; by default those of its frame.json or its family."
    )
    max_pixels: int | None = _option(None, "Pixel budget of a resized image; by default that of the checkpoint.")
    max_new_tokens: int = _option(512, "Tokens after which an answer is cut.")
    batch_size: int = _option(8, "Questions generated at a time.")
    limit: int | None = _option(None, "Ask the first so many units of every task only (a mirrored pair is one unit).")
    label: str | None = _option(None, "Name of the run in tables; by default that of the checkpoint.")
    seed: int = _option(0, "Seed of the random engine and of the intervals.")
    out: str | None = _option(None, "Run folder; by default runs/eval-LABEL.")
    resume: bool = _option(False, "Continue the run in the folder, or score it again.")
    overwrite: bool = _option(False, "Replace the run in the folder.")

    def __post_init__(self) -> None:
        for name in ("max_pixels", "max_new_tokens", "batch_size", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        if self.seed < 0:
            raise UsageError(f"--seed must be at least 0, got {self.seed}")


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print the table; 0, or 2 with the remedy on standard error when it cannot be done."""
    try:
        summary = evaluate(parse_config(SurdsConfig, argv, str(__doc__)))
    except (UsageError, RecordError, FileExistsError, FileNotFoundError) as error:
        print(f"eval/surds.py: {error}", file=sys.stderr)
        return 2
    from eval.text_table import run_table

    print(run_table(summary))
    return 0


def evaluate(config: SurdsConfig) -> Summary:
    """Ask, grade, summarise and report. Raises UsageError, RecordError, FileExistsError, FileNotFoundError."""
    options = EngineOptions(**{item.name: getattr(config, item.name) for item in fields(EngineOptions)})
    data = data_path(config.data)
    engine_kind(options)
    questions = chosen_questions(read_questions(data), config.limit)
    label = config.label or default_label(options)
    out = Path(config.out or f"runs/eval-{label}")
    looks = engine_kind(options) == "hf"
    root = picture_root(data, config.images, needed=looks)
    if looks:
        check_images(questions, root)
    inputs = tuple(Path(name) for name in (data, config.ckpt, config.replay) if name)
    folder = OutputFolder(out, "evaluation", config.resume, config.overwrite, inputs)
    folder.check()
    chosen = open_engine(options)
    check_replayed(chosen, questions)
    folder.prepare()
    requests = [make_request(question, root, chosen) for question in questions]
    facts = make_facts(chosen, label, data, root, questions, requests)
    claim_folder(out, facts)
    save_config(config, out / CONFIG_FILE)
    outcomes = answer(out, chosen, questions, requests)
    figures_of = {scoring: summarise(outcomes, scoring, config.seed) for scoring in SCORINGS}
    source = "+".join(sorted({question.source for question in questions}))
    summary = make_summary(facts, source, figures_of, config.scoring)
    write_summary(summary, out)
    from eval.report import write_report

    write_report([out], out / REPORT_FILE)
    return summary


def data_path(given: str | None) -> Path:
    """The question file. Raises UsageError, with the command that builds one, when there is none."""
    if given is None:
        raise UsageError(f"no questions: give --data questions.jsonl; build one with: {BUILD_COMMAND}")
    path = Path(given) / "questions.jsonl" if Path(given).is_dir() else Path(given)
    if not path.is_file():
        raise UsageError(f"--data: no question file at {path}; build one with: {BUILD_COMMAND}")
    return path


def chosen_questions(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """The questions of the first `limit` units of every task, in file order. Raises RecordError on a broken pair."""
    units = units_of(questions)
    if limit is None:
        return list(questions)
    taken: dict[str, list[str]] = {}
    for name, members in units.items():
        taken.setdefault(members[0].task, []).append(name)
    kept = {name for names in taken.values() for name in names[:limit]}
    return [question for question in questions if question.unit in kept]


def picture_root(data: Path, images: str | None, needed: bool) -> Path:
    """The folder of the images. Where they only illustrate the report, the data's own folder will do."""
    if needed or images or (data.parent / "manifest.json").is_file():
        return image_root(data, Path(images) if images else None)
    return data.parent


def check_replayed(chosen: ChosenEngine, questions: Sequence[Question]) -> None:
    """Say how many questions have no stored output. Raises UsageError when none has one."""
    if not isinstance(chosen.engine, ReplayEngine):
        return
    missing = [question.id for question in questions if question.id not in chosen.engine.stored]
    if len(missing) == len(questions):
        raise UsageError(f"no stored output has the id of a question, such as {missing[0]!r}: other questions?")
    if missing:
        print(f"{len(missing)} of {len(questions)} questions have no stored output and count as wrong, the first is "
              f"{missing[0]}", file=sys.stderr)  # fmt: skip


def make_request(question: Question, root: Path, chosen: ChosenEngine) -> Request:
    """A question as the engine gets it."""
    size = question.image_size
    text = prompt_of(question, chosen.frame, chosen.style)
    return Request(question.id, text, root / question.image, size, question.options, chosen.frame.size(size))


def benchmark_of(questions: Sequence[Question]) -> str:
    """`surds`, or with other depth ranges than the published ones `surds-fair`, `surds-matched` or `surds-mixed`."""
    ranges = {question.depth_ranges for question in questions if question.task == "depth"} - {"official"}
    if not ranges:
        return BENCHMARK
    alone = len(ranges) == 1 and all(q.depth_ranges in ranges for q in questions if q.task == "depth")
    return f"{BENCHMARK}-{ranges.pop() if alone else 'mixed'}"


def make_facts(
    chosen: ChosenEngine, label: str, data: Path, root: Path, questions: Sequence[Question], requests: Sequence[Request]
) -> RunFacts:
    """What the run folder says of this run."""
    asked = digest("\n".join(json.dumps(question_to_row(question)) for question in questions))
    prompts = digest("\n".join(request.prompt for request in requests))
    return RunFacts(
        benchmark=benchmark_of(questions),
        label=label,
        engine=chosen.kind,
        model=chosen.model,
        tiny=chosen.tiny,
        frame=chosen.frame,
        prompt_style=chosen.style,
        data=str(data.resolve()),
        image_root=str(root.resolve()),
        identity={
            "engine": chosen.kind,
            **chosen.identity,
            "questions": f"{len(questions)} questions {asked}",
            "prompts": f"{chosen.style} {prompts}",
            "frame": str(chosen.frame),
        },
    )


def answer(
    out: Path, chosen: ChosenEngine, questions: Sequence[Question], requests: Sequence[Request]
) -> list[Outcome]:
    """The outcome of every question in file order; predictions.jsonl ends up in that order, graded afresh."""
    prompts = {request.id: digest(request.prompt) for request in requests}
    question_of = {question.id: question for question in questions}

    def outcome(reply: Reply) -> Outcome:
        return assess(question_of[reply.id], reply.output, reply.tokens, chosen.frame, chosen.style)

    def row(item: Outcome) -> dict[str, Any]:
        return prediction_row(item, prompts[item.question.id], chosen.frame)

    path = out / PREDICTIONS_FILE
    replies = collect(path, chosen.engine, requests, lambda reply: row(outcome(reply)))
    outcomes = [outcome(reply) for reply in replies]
    write_rows(path, (row(item) for item in outcomes))
    return outcomes


def prediction_row(outcome: Outcome, prompt_digest: str, frame: CoordinateFrame) -> dict[str, Any]:
    """A line of predictions.jsonl; boxes in original pixels, the answer as written."""
    size = outcome.question.image_size
    boxes = [
        {"name": item.name, "bbox": [round(value, 2) for value in frame.box_to_original(item.box_xyxy, size)]}
        for item in outcome.response.boxes
    ]
    return {
        "id": outcome.question.id,
        "prompt": prompt_digest,
        "output": outcome.output,
        "answer": outcome.response.answer,
        "boxes": boxes,
        "reasons": list(reasons_of(outcome, "strict")),
        "score": {scoring: grade.score for scoring, grade in outcome.grades.items()},
        "tokens": outcome.tokens,
    }


if __name__ == "__main__":
    sys.exit(main())
