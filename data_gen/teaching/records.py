"""What the stages of teaching leave behind, one line of JSON each; coordinates in original pixels.

run.json            what each stage was made with, whether it is finished, and how long it took
reason.jsonl        Reasoned: the strong reasoner's words about a few questions of each task
rules.jsonl         Distilled: what writing the rules of a task took; the rules themselves are rules/<task>.md
write.jsonl         Draft: one per question and sample
verify.jsonl        Verified: one per draft; those without a verdict are kept, at most one per question
verify.turns.jsonl  while verify.jsonl is made: how far drafts have come that take several requests
cot.jsonl           the kept ones as `data_gen.records.Trace`, in the order of the questions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from data_gen.records import read_records
from data_gen.trace_checks import TRACE_REASONS

Kind = TypeVar("Kind")
STAGES = ("reason", "rules", "write", "verify")
RUN_FILE = "run.json"
REASONED_FILE, DISTILLED_FILE, DRAFTS_FILE, VERIFIED_FILE = "reason.jsonl", "rules.jsonl", "write.jsonl", "verify.jsonl"
TURNS_FILE = "verify.turns.jsonl"
RULES_FOLDER = "rules"
# Why a reply is no trace: the client's reasons, and what was wrong with its form.
REPLY_REASONS = {
    "empty": "empty_reply", "refused": "refused", "too_long": "prompt_too_long", "rejected": "rejected",
    "failed": "request_failed",
}  # fmt: skip
OVERLONG, CUT, NO_TRACE, NO_ANSWER = "overlong_reply", "cut_reply", "no_trace", "no_answer"
UNJUDGED = "unjudged"  # the writer's judgement of a draft could not be used
SURPLUS = "surplus"  # right, but another sample of the question is kept; it was not judged
DROP_REASONS = (*REPLY_REASONS.values(), OVERLONG, CUT, NO_TRACE, NO_ANSWER, UNJUDGED, SURPLUS, *TRACE_REASONS)


@dataclass(frozen=True)
class Spent:
    """What one line cost: requests sent (retries included), tokens read and written, seconds of waiting."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.requests + other.requests,
            self.retries + other.retries,
            self.prompt_tokens + other.prompt_tokens,
            self.new_tokens + other.new_tokens,
            self.seconds + other.seconds,
        )


NOTHING = Spent()


@dataclass(frozen=True)
class Reasoned:
    """The strong reasoner's words about one question. `failed`: why there are none to use, empty when there are."""

    id: str
    task: str
    model: str
    reasoning: str
    answer: str
    right: bool
    failed: str = ""
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class Distilled:
    """The rules of a task as the writer wrote them. rules: sha256 of the file, which a person may edit afterwards.

    examples: ids of the questions whose reasoning was shown.
    """

    task: str
    model: str
    rules: str
    examples: tuple[str, ...]
    attempts: int
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class Draft:
    """A trace as the writer wrote it. sample: its number, where several are drawn. rules: sha256 of the rules file."""

    id: str
    task: str
    sample: int
    model: str
    rules: str
    blind: bool
    reasoning: str
    answer: str
    failed: str = ""
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class Verified:
    """A trace after it was judged, corrected and checked.

    corrected: whether the writer changed it when asked to judge. attempts: how often it was written in all. verdict:
    reasons against it (codes of `DROP_REASONS`), none when it is kept. first_verdict: those against the first draft,
    which tell what the corrections were worth. spent: without what the draft cost.
    """

    id: str
    task: str
    sample: int
    model: str
    rules: str
    blind: bool
    reasoning: str
    answer: str
    corrected: bool
    attempts: int
    verdict: tuple[str, ...] = ()
    first_verdict: tuple[str, ...] = ()
    spent: Spent = field(default_factory=Spent)


def read_lines(path: Path, kind: type[Kind]) -> Iterator[Kind]:
    """The records of a stage's file, one at a time. Raises RecordError naming file, line and reason."""
    for _, record in read_records(path, lambda row: msgspec.convert(row, kind)):
        yield record
