"""What the stages of teaching leave behind, one line of JSON each; coordinates in original pixels."""

from __future__ import annotations

from dataclasses import dataclass, field

REASONED_FILE, DRAFTS_FILE, VERIFIED_FILE = "reason.jsonl", "write.jsonl", "verify.jsonl"
RULES_FOLDER = "rules"


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
    reasons against it (codes of `data_gen.trace_checks.TRACE_REASONS`, or of the client), none when it is kept.
    first_verdict: those against the first draft, which tell what the corrections were worth.
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
