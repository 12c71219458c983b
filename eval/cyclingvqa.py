"""Score a model on the multiple-choice items of CyclingVQA.

    python eval/cyclingvqa.py --ckpt runs/grpo --data data/cyclingvqa
    python eval/cyclingvqa.py --ckpt Qwen/Qwen2.5-VL-3B-Instruct --data items.jsonl --images DIR --prompt-style cot
    python eval/cyclingvqa.py --engine random --data data/cyclingvqa
    python eval/cyclingvqa.py --replay runs/eval-grpo --data data/cyclingvqa --judge http://localhost:8000/v1 \
--judge-model NAME
    python eval/cyclingvqa.py --rank runs/a runs/b runs/c

Writes predictions.jsonl, summary.json and report.html into the run folder and prints the table. Choices are read by
rules; with --judge a second model reads what the rules leave open. An interrupted run goes on with --resume; nothing is
asked twice. --rank asks nothing: it orders finished runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from data_gen.chat import ChatClient
from data_gen.command_line import UsageError
from data_gen.cycling.prompts import STYLES, item_prompt
from data_gen.cycling.records import BUILD_COMMAND, ITEMS, CyclingItem, read_items
from data_gen.images import MANIFEST, checked_sizes, image_root, upright_size
from data_gen.records import RecordError, write_rows
from eval.arguments import parse_config
from eval.benchmarks import check_benchmark, question_file
from eval.choose_engine import ChosenEngine
from eval.cycling_judge import VERDICTS_FILE, judge
from eval.cycling_report import write_report
from eval.cycling_scores import JUDGE, NO_CHOICE, RULE, Outcome, summarise
from eval.cycling_summary import CyclingSummary, JudgeUse, make_summary
from eval.engines import Reply, Request
from eval.replay import limit_of_run
from eval.runner import PREDICTIONS_FILE, REPORT_FILE, collect, digest, read_summary, told_apart, write_summary
from eval.session import (
    EvalConfig,
    Session,
    begin,
    check_engine,
    check_replayed,
    checks_images,
    greedy_only,
    open_session,
    option,
)
from rewards.boxes import Size
from rewards.choice import read_choice

BENCHMARK = "cyclingvqa"
NO_SIZE: Size = (1, 1)  # of an image that nobody opens


@dataclass(frozen=True)
class CyclingConfig(EvalConfig):
    """Options of an evaluation on CyclingVQA."""

    run_prefix: ClassVar[str] = "cyclingvqa"

    data: str | None = option(None, "The items.jsonl to ask, or a folder of such files.")
    prompt_style: Literal["standard", "reasoning", "cot"] | None = option(  # type: ignore[assignment]
        None, "The letter alone (standard, the default), reasoning and answer in tags, or step by step (cot)."
    )
    max_new_tokens: int = option(4096, "Tokens after which an answer is cut (paper: 4096).")
    judge: str | None = option(None, "URL of an OpenAI-compatible server whose model reads what the rules leave open.")
    judge_model: str | None = option(None, "The name of that model at the server.")
    rank: list[str] | None = option(None, "Finished run folders: print their ranking, ask nothing.")  # noqa: RUF009

    def __post_init__(self) -> None:
        super().__post_init__()
        greedy_only(self, "CyclingVQA")
        if (self.judge is None) != (self.judge_model is None):
            raise UsageError("--judge URL and --judge-model NAME go together")


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate and print the table; 0, or 2 with the remedy on standard error when it cannot be done."""
    from eval.cycling_table import ranking, run_table

    try:
        config = parse_config(CyclingConfig, argv, str(__doc__))
        if config.rank:
            folders = [Path(folder) for folder in config.rank]
            summaries = [read_summary(folder, CyclingSummary) for folder in folders]
            labels = told_apart([summary.label for summary in summaries], folders)
            text = ranking([replace(item, label=name) for item, name in zip(summaries, labels, strict=True)])
        else:
            text = run_table(evaluate(config))
    except (UsageError, RecordError, FileExistsError, FileNotFoundError) as error:
        print(f"eval/cyclingvqa.py: {error}", file=sys.stderr)
        return 2
    print(text)
    return 0


def evaluate(config: CyclingConfig) -> CyclingSummary:
    """Ask, read, score and report. Raises UsageError, RecordError, FileExistsError, FileNotFoundError."""
    data = items_path(config.data)
    check_engine(config)
    if config.replay and config.limit is None:
        config = replace(config, limit=limit_of_run(Path(config.replay)))
    items = first_of_each_task(read_items(data), config.limit)
    root = image_folder(data, config.images)
    sizes = image_sizes(items, root, must_be_there=checks_images(config))
    session = in_own_style(open_session(config, data), config)
    check_replayed(session.chosen, [item.id for item in items])
    requests = [make_request(item, root, sizes, session.chosen) for item in items]
    facts = begin(session, config, BENCHMARK, root, items, requests)
    outcomes, use = answer(session, items, requests, config)
    source = "+".join(sorted({item.source for item in items}))
    summary = make_summary(facts, source, summarise(outcomes, config.seed), use)
    write_summary(summary, session.out)
    write_report(summary, outcomes, root, session.out / REPORT_FILE)
    return summary


def items_path(given: str | None) -> Path:
    """The item file or folder.

    Raises UsageError, with the remedy, when there is none or it is of another benchmark; RecordError.
    """
    if given is None:
        raise UsageError(f"no items: give --data {ITEMS}; build some with: {BUILD_COMMAND}")
    path = Path(given)
    if not path.exists():
        raise UsageError(f"--data: nothing at {path}; build items with: {BUILD_COMMAND}")
    found = path / ITEMS if (path / ITEMS).is_file() else path
    check_benchmark(question_file(found), BENCHMARK)
    return found


def first_of_each_task(items: Sequence[CyclingItem], limit: int | None) -> list[CyclingItem]:
    """The first `limit` items of every task, in file order."""
    taken: dict[str, list[str]] = {}
    for item in items:
        taken.setdefault(item.task, []).append(item.id)
    kept = {name for names in taken.values() for name in names[:limit]}
    return [item for item in items if item.id in kept]


def image_folder(data: Path, given: str | None) -> Path:
    """The folder of the images: the one given, that of the manifest beside the items, or that of the items."""
    folder = data if data.is_dir() else data.parent
    if given or (folder / MANIFEST).is_file():
        return image_root(folder / ITEMS, Path(given) if given else None)
    return folder


def image_sizes(items: Sequence[CyclingItem], root: Path, must_be_there: bool) -> dict[str, Size]:
    """(width, height) of every image, from file headers; of one that need not be there and is not, NO_SIZE.

    Raises FileNotFoundError naming the first missing one, RecordError for one that cannot be read or shown.
    """
    names = list(dict.fromkeys(name for item in items for name in item.images))
    return checked_sizes(names, root) if must_be_there else {name: _size_if_readable(root / name) for name in names}


def _size_if_readable(path: Path) -> Size:
    try:
        return upright_size(path) if path.is_file() else NO_SIZE
    except RecordError:
        return NO_SIZE


def in_own_style(session: Session, config: CyclingConfig) -> Session:
    """The session with a prompt style of this benchmark: the one asked for, the replayed run's, or `standard`."""
    style = config.prompt_style or (
        session.chosen.style if session.chosen.style in STYLES and config.replay else STYLES[0]
    )
    return replace(session, chosen=replace(session.chosen, style=style))


def make_request(item: CyclingItem, root: Path, sizes: dict[str, Size], chosen: ChosenEngine) -> Request:
    """An item as the engine gets it; a guesser guesses letters."""
    files = tuple(root / name for name in item.images)
    shown = tuple(sizes[name] for name in item.images)
    return Request(item.id, item_prompt(item, chosen.style), files, shown, tuple(item.letters))


def answer(
    session: Session, items: Sequence[CyclingItem], requests: Sequence[Request], config: CyclingConfig
) -> tuple[list[Outcome], JudgeUse | None]:
    """The outcome of every item in file order, and how the judge was used; predictions.jsonl ends up in that order."""
    prompts = {request.id: digest(request.prompt) for request in requests}
    item_of = {item.id: item for item in items}

    def row(reply: Reply) -> dict[str, Any]:
        return prediction_row(by_rule(item_of[reply.id], reply), prompts)

    path = session.out / PREDICTIONS_FILE
    replies = collect(path, session.chosen.engine, requests, row)
    outcomes = [by_rule(item_of[reply.id], reply) for reply in replies]
    use = None
    if config.judge and config.judge_model:
        client = ChatClient((config.judge,), config.judge_model)
        outcomes, use = judged(outcomes, client, session.out / VERDICTS_FILE)
    write_rows(path, (prediction_row(outcome, prompts) for outcome in outcomes))
    return outcomes, use


def by_rule(item: CyclingItem, reply: Reply) -> Outcome:
    """A reply with the choice that the rules find in it."""
    choice = read_choice(reply.output, item.choices)
    return Outcome(item, reply.output, reply.tokens, choice, RULE if choice else NO_CHOICE)


def judged(outcomes: Sequence[Outcome], client: ChatClient, path: Path) -> tuple[list[Outcome], JudgeUse]:
    """The same with what the judge finds where the rules found nothing; empty replies are not shown to it."""
    left = [outcome for outcome in outcomes if outcome.choice is None and outcome.output.strip()]
    verdicts = judge(left, client, path)
    found = {name: verdict.choice for name, verdict in verdicts.items() if verdict.choice}
    settled = [
        replace(outcome, choice=found[outcome.item.id], how=JUDGE) if outcome.item.id in found else outcome
        for outcome in outcomes
    ]
    return settled, JudgeUse(client.model, len(left), len(found))


def prediction_row(outcome: Outcome, prompts: dict[str, str]) -> dict[str, Any]:
    """A line of predictions.jsonl."""
    return {
        "id": outcome.item.id,
        "prompt": prompts[outcome.item.id],
        "output": outcome.output,
        "choice": outcome.choice,
        "how": outcome.how,
        "score": outcome.score,
        "tokens": outcome.tokens,
    }


if __name__ == "__main__":
    sys.exit(main())
