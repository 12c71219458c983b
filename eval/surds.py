"""Score a model on SURDS questions.

    python eval/surds.py --ckpt runs/grpo --data data/questions.jsonl
    python eval/surds.py --ckpt runs/grpo --data data/questions.jsonl --temperature 1.0 --samples 4
    python eval/surds.py --engine random --data data/questions.jsonl
    python eval/surds.py --replay runs/eval-grpo --scoring official --data data/questions.jsonl

Writes predictions.jsonl, summary.json and report.html into the run folder and prints the table. An interrupted run
goes on with --resume; nothing is asked twice. With --samples every question is answered several times, and all
scores are means over the answers; a mirrored pair is right in a sample in which both of its questions are.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from data_gen.command_line import UsageError
from data_gen.floors import units_of
from data_gen.images import check_images
from data_gen.prompts import prompt_of
from data_gen.records import Question, RecordError, read_questions, write_rows
from data_gen.templates import Templates, read_templates
from eval.arguments import parse_config
from eval.choose_engine import ChosenEngine
from eval.decoding import sampled
from eval.engines import Reply, Request
from eval.finished_run import FinishedRun, by_sample
from eval.metrics import Outcome, assess, floors_of, reasons_of, summarise
from eval.published import OWN_PROMPTS
from eval.replay import ReplayEngine, limit_of_run
from eval.runner import PREDICTIONS_FILE, REPORT_FILE, collect, digest, write_summary
from eval.session import (
    EvalConfig,
    Session,
    begin,
    check_engine,
    check_replayed,
    checks_images,
    data_path,
    open_session,
    option,
    picture_root,
)
from eval.summary import Summary, make_summary
from rewards.boxes import CoordinateFrame
from rewards.grading import SCORINGS

BENCHMARK = "surds"
BUILD_COMMAND = "python data_gen/build_surds.py --nuscenes DIR --out data/surds"


@dataclass(frozen=True)
class SurdsConfig(EvalConfig):
    """Options of an evaluation on SURDS."""

    scoring: Literal["strict", "official"] = option(
        "strict", "The main scoring; both are computed, and the other one is shown where it differs."
    )
    prompts: str | None = option(
        None, "Folder of the official prompt templates, a .txt file a task; without it the prompts are our own."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print the table; 0, or 2 with the remedy on standard error when it cannot be done."""
    # Going through all records again and again for garbage takes a quarter of a replay's time.
    gc.set_threshold(100_000)
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
    data = data_path(config.data, BUILD_COMMAND, BENCHMARK)
    check_engine(config)
    templates = read_templates(Path(config.prompts)) if config.prompts else None
    there = read_questions(data)
    config = completed(config, there)
    questions = chosen_questions(there, config.limit)
    root = picture_root(data, config)
    if checks_images(config):
        check_images(questions, root)
    session = with_ids(open_session(config, data), there)
    check_replayed(session.chosen, [question.id for question in questions])
    requests = make_requests(questions, root, session.chosen, templates)
    prompts = whose_prompts(session.chosen, questions, templates)
    facts = begin(session, config, benchmark_of(questions), root, questions, requests, prompts)
    outcomes, rows = answer(session, questions, requests, config.samples)
    floors = floors_of(questions, config.seed)
    figures_of = {scoring: summarise(outcomes, scoring, floors, config.seed) for scoring in SCORINGS}
    source = "+".join(sorted({question.source for question in questions}))
    summary = make_summary(facts, source, figures_of, config.scoring)
    write_summary(summary, session.out)
    from eval.report import write_page

    write_page([FinishedRun(summary, facts, by_sample(rows))], session.out / REPORT_FILE, questions)
    return summary


def completed(config: SurdsConfig, questions: Sequence[Question]) -> SurdsConfig:
    """The options with what follows from others: a replayed run's limit, the style that outside templates ask for."""
    if config.replay:
        return config if config.limit else replace(config, limit=limit_of_run(Path(config.replay)))
    outside = config.prompts or all(question.prompt for question in questions)
    return replace(config, prompt_style=config.prompt_style or "reasoning") if outside else config


def whose_prompts(chosen: ChosenEngine, questions: Sequence[Question], templates: Templates | None) -> str:
    """Whose wording the outputs answer: `own`, `templates SHA`, or what is known of replayed outputs."""
    if isinstance(chosen.engine, ReplayEngine) and chosen.engine.prompts:
        return chosen.engine.prompts
    if templates:
        return f"templates {templates.digest[:16]}"
    given = [question.prompt for question in questions if question.prompt]
    if not given:
        return OWN_PROMPTS
    name = f"templates of the question file {digest(chr(10).join(given))}"
    return name if len(given) == len(questions) else f"{OWN_PROMPTS} and {name}"


def chosen_questions(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """The questions of the first `limit` units of every task, in file order."""
    if limit is None:
        return list(questions)
    taken: dict[str, list[str]] = {}
    for name, members in units_of(questions).items():
        taken.setdefault(members[0].task, []).append(name)
    kept = {name for names in taken.values() for name in names[:limit]}
    return [question for question in questions if question.unit in kept]


def with_ids(session: Session, questions: Sequence[Question]) -> Session:
    """The session with replayed outputs under the ids of their questions; says what they are, and how many are of none.

    Raises UsageError for an output whose place no question has.
    """
    engine = session.chosen.engine
    if not isinstance(engine, ReplayEngine):
        return session
    engine = engine.matched(questions)
    of_none = engine.stored.keys() - {question.id for question in questions}
    print(f"replaying {len(engine.stored)} outputs of {session.chosen.model}", file=sys.stderr)
    if of_none:
        print(f"{len(of_none)} outputs are of no question in {session.data}, such as {min(of_none)}", file=sys.stderr)
    return replace(session, chosen=replace(session.chosen, engine=engine))


def make_requests(
    questions: Sequence[Question], root: Path, chosen: ChosenEngine, templates: Templates | None = None
) -> list[Request]:
    """Questions as the engine gets them, in the words of `templates` if there are some."""
    path_of = {image: root / image for image in {question.image for question in questions}}
    requests = []
    for question in questions:
        size, files = question.image_size, (path_of[question.image],)
        text = templates.prompt(question) if templates else prompt_of(question, chosen.frame, chosen.style)
        requests.append(Request(question.id, text, files, (size,), question.options, chosen.frame.size(size)))
    return requests


def benchmark_of(questions: Sequence[Question]) -> str:
    """`surds`, or with other depth ranges than the published ones `surds-fair`, `surds-matched` or `surds-mixed`."""
    ranges = {question.depth_ranges for question in questions if question.task == "depth"} - {"official"}
    if not ranges:
        return BENCHMARK
    alone = len(ranges) == 1 and all(q.depth_ranges in ranges for q in questions if q.task == "depth")
    return f"{BENCHMARK}-{ranges.pop() if alone else 'mixed'}"


def answer(
    session: Session, questions: Sequence[Question], requests: Sequence[Request], samples: int
) -> tuple[list[Outcome], list[dict[str, Any]]]:
    """The outcomes of every question in file order, its samples as neighbours, and their lines of predictions.jsonl.

    requests: of the questions, in their order. The file ends up in the order of the outcomes, graded afresh.
    """
    frame, style = session.chosen.frame, session.chosen.style
    asked = sampled(requests, samples)
    prompts = {request.id: digest(request.prompt) for request in requests}
    answered = [(question, sample) for question in questions for sample in range(samples)]
    asked_of = dict(zip((request.id for request in asked), answered, strict=True))
    outcomes: dict[str, Outcome] = {}
    rows: dict[str, dict[str, Any]] = {}

    def graded(reply: Reply) -> dict[str, Any]:
        question, sample = asked_of[reply.id]
        outcomes[reply.id] = assess(question, reply.output, reply.tokens, frame, style, sample)
        rows[reply.id] = prediction_row(outcomes[reply.id], prompts[question.id], frame)
        if samples > 1:
            rows[reply.id]["sample"] = sample
        return rows[reply.id]

    path = session.out / PREDICTIONS_FILE
    replies = collect(path, session.chosen.engine, asked, graded)
    if list(rows) != [reply.id for reply in replies]:
        write_rows(path, map(graded, replies))
    return [outcomes[request.id] for request in asked], [rows[request.id] for request in asked]


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
