"""A teacher: one model behind chat servers, asked one thing; whatever goes wrong with a reply is a reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.chat import ChatClient, user_message
from data_gen.teaching.records import OVERLONG, REPLY_REASONS, Spent

LONGEST_REPLY = 40_000  # characters; a reply beyond what was asked for is not worth reading


@dataclass(frozen=True)
class Said:
    """A reply. failed: why it cannot be used, empty when it can; cut: it stopped at the limit of tokens."""

    text: str
    spent: Spent
    failed: str = ""
    cut: bool = False


@dataclass(frozen=True)
class Teacher:
    """A model and how it is asked. reply_tokens: the most that a reply may take."""

    client: ChatClient
    reply_tokens: int
    temperature: float
    seed: int

    def ask(self, request_id: str, text: str, images: Sequence[Path] = (), turn: int = 0, free: bool = True) -> Said:
        """Ask once. turn: distinguishes requests that would otherwise be answered alike; free: not at temperature 0.

        Raises ChatError where there is no going on.
        """
        began_s = time.monotonic()
        reply = self.client.try_ask(
            request_id,
            [user_message(text, images)],
            max_tokens=self.reply_tokens,
            temperature=self.temperature if free else 0.0,
            seed=self.seed + turn,
        )
        retries = self.client.retries.get(request_id, 0)
        spent = Spent(1 + retries, retries, reply.prompt_tokens, reply.tokens, round(time.monotonic() - began_s, 3))
        if reply.reason:
            return Said("", spent, REPLY_REASONS[reply.reason.value])
        if len(reply.text) > LONGEST_REPLY:
            return Said("", spent, OVERLONG)
        return Said(reply.text, spent, cut=reply.cut)
