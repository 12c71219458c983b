"""What decides the traces of teachers, stage by stage; a stage is only gone on with under the same settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from data_gen.command_line import UsageError
from data_gen.teaching.prompts import prompts_digest
from data_gen.trace_checks import TraceBudget

CHARACTERS_PER_TOKEN = 3  # of English fewer tokens are needed; without a tokenizer the guess is on the safe side
# The words that teachers are asked for, from the tokens of the whole response: boxes, tags and answer take their part.
_TOKENS_BESIDES, _WORDS_PER_TOKEN = 120, 0.6
_FEWEST_WORDS = 20


@dataclass(frozen=True)
class TeachingSettings:
    """The options that decide what teachers write. rules_digest: of rules that were supplied, else empty."""

    data: str
    data_sha256: str
    seed: int
    tasks: tuple[str, ...]
    limit: int | None
    k: int
    reasoner_model: str | None
    writer_model: str | None
    rules_digest: str
    blind: bool
    samples: int
    attempts: int
    temperature: float
    max_tokens: int
    max_words: int | None
    tokenizer: str | None
    balance_tasks: bool = False

    @property
    def words(self) -> int:
        """How many words a teacher is asked to stay below."""
        words = max(_FEWEST_WORDS, int((self.max_tokens - _TOKENS_BESIDES) * _WORDS_PER_TOKEN))
        return min(words, self.max_words or words)

    def of_stage(self, stage: str) -> dict[str, Any]:
        """The settings that a stage depends on, by name."""
        names = {
            "reason": ("k", "reasoner_model", "temperature"),
            "rules": ("rules_digest",) if self.rules_digest else ("writer_model",),
            "write": ("writer_model", "blind", "samples", "temperature", "words"),
            "verify": ("writer_model", "attempts", "temperature", "max_tokens", "max_words", "tokenizer"),
        }[stage]
        common = ("data", "data_sha256", "seed", "tasks", "limit", *(["balance_tasks"] if self.balance_tasks else []))
        return {"prompts": prompts_digest()} | {name: getattr(self, name) for name in (*common, *names)}

    def budget(self) -> TraceBudget:
        """How long a trace may be. Raises UsageError for a tokenizer that cannot be had."""
        count = _counter(self.tokenizer) if self.tokenizer else _guessed_tokens
        return TraceBudget(self.max_words, self.max_tokens, count)


def _guessed_tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _counter(name: str) -> Callable[[str], int]:
    """Counts tokens as the tokenizer of a checkpoint does."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no tokenizer at {name!r} (--tokenizer; a checkpoint's folder or a hub id): {error}"
        ) from error
    return partial(_count, tokenizer, Lock())


def _count(tokenizer: Any, lock: Lock, text: str) -> int:
    with lock:  # fast tokenizers refuse to be used by two threads at once
        return len(tokenizer.encode(text, add_special_tokens=False))
