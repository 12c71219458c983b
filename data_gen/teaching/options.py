"""The options of data_gen/build_cot.py."""

from __future__ import annotations

import argparse
from pathlib import Path

from data_gen.command_line import HelpFormatter, UsageError, positive
from data_gen.teaching.costs import add_price_options
from data_gen.teaching.records import STAGES
from data_gen.trace_checks import MAX_WORDS
from rewards.grading import TASKS

TEACHERS = ("oracle", "servers")


def make_parser(description: str) -> argparse.ArgumentParser:
    """The parser; options of teachers behind servers in a group of their own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=HelpFormatter)
    parser.add_argument("--data", type=Path, help="the questions.jsonl to reason about")
    parser.add_argument("--out", type=Path, default=Path("data/cot"), help="folder to write")
    parser.add_argument("--images", type=Path, help="folder of the images (default: as the data's manifest says)")
    parser.add_argument("--teacher", choices=TEACHERS, help="who writes (default: oracle; with --writer: servers)")
    parser.add_argument("--seed", type=int, default=0, help="chooses wordings, what --limit keeps, and the examples")
    parser.add_argument("--limit", type=positive, help="at most so many questions, pairs kept whole")
    parser.add_argument("--balance-tasks", action="store_true", help="with --limit: as many questions of every task")
    parser.add_argument(
        "--erring-share",
        type=_share,
        default=0.0,
        metavar="S",
        help="of the oracle's traces, from 0 to 1: so many reason to a wrong answer from a misread picture, before the "
        "true boxes and answer, as those of a large model that was told the answer. They are kept although they "
        "contradict it; the field `erring` holds what they lead to",
    )
    parser.add_argument("--tasks", help=f"some of {','.join(TASKS)}, separated by commas (default: all)")
    parser.add_argument(
        "--max-words", type=positive, help=f"longest trace in words (default: {MAX_WORDS} of the oracle, else none)"
    )
    parser.add_argument("--resume", action="store_true", help="leave a finished run, complete an unfinished one")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")
    _add_server_options(parser.add_argument_group("teachers behind OpenAI-compatible servers"))
    return parser


def teacher_of(arguments: argparse.Namespace) -> str:
    """`oracle` or `servers`. Raises UsageError when servers are given to the oracle."""
    servers = arguments.writer or arguments.reasoner
    if arguments.teacher == "oracle" and servers:
        raise UsageError("--teacher oracle needs no --reasoner and no --writer; leave them out, or say servers")
    if arguments.erring_share and (servers or arguments.teacher == "servers"):
        raise UsageError("--erring-share is for the oracle; teachers behind servers err by themselves")
    return arguments.teacher or ("servers" if servers else "oracle")


def _share(text: str) -> float:
    """A number from 0 to 1, for the `type` of an option."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"a number from 0 to 1 is needed, got {text!r}")
    return share


def _add_server_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--reasoner", metavar="URL[,URL]", help="servers of the strong reasoner, each with its /v1")
    group.add_argument("--reasoner-model", metavar="NAME", help="its name on these servers")
    group.add_argument("--writer", metavar="URL[,URL]", help="servers of the model that writes rules and traces")
    group.add_argument("--writer-model", metavar="NAME", help="its name on these servers")
    group.add_argument(
        "--stages",
        help=f"some of {','.join(STAGES)} (default: all that are left). With --resume, stages that are named and all "
        "finished are made anew, and with them the later ones; the old files go to the folder `earlier`",
    )
    group.add_argument("--rules", type=Path, metavar="DIR", help="rules of your own, TASK.md each, in place of the "
                       "first two stages")  # fmt: skip
    group.add_argument("--k", type=positive, default=4, help="units per task that the reasoner reasons about")
    group.add_argument("--concurrency", type=positive, default=64, help="requests in flight")
    group.add_argument("--attempts", type=positive, default=3, help="writings of a trace until it is dropped")
    group.add_argument("--blind", action="store_true", help="the writer sees neither answer nor boxes; only traces "
                       "that reach the answer by themselves are kept")  # fmt: skip
    group.add_argument("--samples", type=positive, default=1, help="drafts per question of a blind writer; the first "
                       "good one is kept")  # fmt: skip
    group.add_argument("--tokenizer", metavar="DIR", help="checkpoint (folder or hub id) whose tokenizer counts for "
                       "--max-tokens (default: a token per 3 characters)")  # fmt: skip
    group.add_argument("--max-tokens", type=positive, default=512, help="longest response, boxes and answer included")
    group.add_argument("--temperature", type=float, default=0.7, help="of the reasoner and the writer; judging is "
                       "greedy")  # fmt: skip
    add_price_options(group)
