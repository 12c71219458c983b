"""Score a model on DriveMLLM questions.

    python eval/drivemllm.py --ckpt runs/grpo --data data/drivemllm
    python eval/drivemllm.py --engine random --data data/drivemllm
    python eval/drivemllm.py --replay outputs/model/02_one_shot --data data/drivemllm

Writes predictions.jsonl, summary.json and report.html into the run folder and prints the table. --replay takes our own
predictions or a folder of the published code's outputs (its questions are asked again about the metadata.jsonl beside
the questions). An interrupted run goes on with --resume; nothing is asked twice.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError
from data_gen.drivemllm.prompts import prompt_text
from data_gen.drivemllm.records import DriveMLLMQuestion
from data_gen.drivemllm.shots import draw_shots, worked_example
from data_gen.images import check_images
from data_gen.records import RecordError, write_rows
from eval.arguments import parse_config
from eval.choose_engine import ChosenEngine
from eval.drivemllm_grading import Outcome, assess
from eval.drivemllm_random import floors_of
from eval.drivemllm_report import write_report
from eval.drivemllm_scores import SCORINGS, summarise
from eval.drivemllm_session import (
    BUILD_COMMAND,
    STYLES,
    DriveMLLMConfig,
    chosen_questions,
    load_questions,
    open_run,
    prompts_of,
)
from eval.drivemllm_summary import DriveMLLMSummary, make_summary
from eval.engines import Reply, Request, mean_tokens
from eval.published import OWN_PROMPTS
from eval.replay import limit_of_run
from eval.runner import PREDICTIONS_FILE, REPORT_FILE, collect, digest, write_summary
from eval.session import Session, begin, check_engine, check_replayed, checks_images, data_path, picture_root

BENCHMARK = "drivemllm"


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print the table; 0, or 2 with the remedy on standard error when it cannot be done."""
    try:
        summary = evaluate(parse_config(DriveMLLMConfig, argv, str(__doc__)))
    except (UsageError, RecordError, FileExistsError, FileNotFoundError) as error:
        print(f"eval/drivemllm.py: {error}", file=sys.stderr)
        return 2
    from eval.drivemllm_table import run_table

    print(run_table(summary))
    return 0


def evaluate(config: DriveMLLMConfig) -> DriveMLLMSummary:
    """Ask, grade, summarise and report. Raises UsageError, RecordError, FileExistsError, FileNotFoundError."""
    data = data_path(config.data, BUILD_COMMAND, BENCHMARK)
    check_engine(config)
    if config.replay and config.limit is None:
        config = replace(config, limit=limit_of_run(Path(config.replay)))
    pool, published = load_questions(config, data)
    questions = chosen_questions(pool, config.limit)
    root = picture_root(data, config)
    if checks_images(config):
        check_images(questions, root)
    session = open_run(config, data, questions, published)
    check_replayed(session.chosen, [question.id for question in questions])
    requests = make_requests(questions, pool, root, session.chosen, config.seed)
    facts = begin(session, config, BENCHMARK, root, questions, requests, prompts_of(session.chosen))
    outcomes = answer(session, questions, requests)
    figures = {
        scoring: summarise(outcomes, scoring, floors_of(questions, scoring), config.seed) for scoring in SCORINGS
    }
    source = "+".join(sorted({question.source for question in questions}))
    counts = (len(outcomes), mean_tokens(outcome.tokens for outcome in outcomes))
    summary = make_summary(facts, source, figures, config.scoring, counts)
    write_summary(summary, session.out)
    write_report(summary, outcomes, root, session.out / REPORT_FILE)
    return summary


def make_requests(
    questions: Sequence[DriveMLLMQuestion],
    pool: Sequence[DriveMLLMQuestion],
    root: Path,
    chosen: ChosenEngine,
    seed: int,
) -> list[Request]:
    """Questions as the engine gets them; without a prompt where outputs to others are replayed."""
    ours = prompts_of(chosen) == OWN_PROMPTS
    count = next((shots for shots, style in STYLES.items() if style == chosen.style), 0) if ours else 0
    shots = draw_shots(questions, pool, count, seed)
    requests = []
    for question in questions:
        size, frame = question.image_size, chosen.frame
        examples = [worked_example(shot, frame) for shot in shots[question.id]]
        text = prompt_text(question.kind, question.question, frame, size, examples) if ours else ""
        files = (root / question.image,)
        requests.append(Request(question.id, text, files, (size,), question.options, frame.size(size)))
    return requests


def answer(session: Session, questions: Sequence[DriveMLLMQuestion], requests: Sequence[Request]) -> list[Outcome]:
    """The outcome of every question in file order; predictions.jsonl ends up in that order, graded afresh."""
    prompts = {request.id: digest(request.prompt) for request in requests}
    question_of = {question.id: question for question in questions}

    def outcome(reply: Reply) -> Outcome:
        return assess(question_of[reply.id], reply.output, reply.tokens, session.chosen.frame)

    path = session.out / PREDICTIONS_FILE
    replies = collect(path, session.chosen.engine, requests, lambda reply: prediction_row(outcome(reply), prompts))
    outcomes = [outcome(reply) for reply in replies]
    write_rows(path, (prediction_row(item, prompts) for item in outcomes))
    return outcomes


def prediction_row(outcome: Outcome, prompts: dict[str, str]) -> dict[str, Any]:
    """A line of predictions.jsonl; a box or point in original pixels, the answer as written.

    One answer alone scores the same under both scorings.
    """
    question, mark = outcome.question, outcome.mark
    values = [round(value, 2) for value in mark.values]
    return {
        "id": question.id,
        "prompt": prompts[question.id],
        "output": outcome.output,
        "answer": outcome.answer,
        "boxes": [{"name": question.objects[0].name, "bbox": values}] if len(values) == 4 else [],
        "point": values if len(values) == 2 else None,
        "valid": mark.valid,
        "error": mark.error,
        "reasons": [mark.reason] if mark.reason else [],
        "score": dict.fromkeys(SCORINGS, mark.accuracy),
        "tokens": outcome.tokens,
    }


if __name__ == "__main__":
    sys.exit(main())
