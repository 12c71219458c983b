"""A model behind one or several OpenAI-compatible servers: ask one thing, from as many threads as wanted.

    client = ChatClient(("http://localhost:8000/v1",), "the-model")
    client.check()
    threads = ThreadPoolExecutor(16)
    replies = map_in_order(threads, lambda item: client.ask(item.id, [user_message(item.text)]), items, ahead=32)

The API key is OPENAI_API_KEY, or "none". Overloaded servers, time-outs and lost connections are tried again, with
growing pauses, by the openai package; what stays refused raises ChatError.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from data_gen.command_line import UsageError

if TYPE_CHECKING:
    from openai import APIError, OpenAI

MAX_RETRIES = 6  # with the package's pauses about half a minute in all
TIMEOUT_S = 600.0
CHECK_TIMEOUT_S = 60.0
NAMED_IDS = 5
Message = dict[str, Any]


class ChatError(UsageError):
    """A server that cannot be reached, or refuses; the message names its URL and what it said."""


@dataclass(frozen=True)
class ChatReply:
    """The text of a reply, the number of tokens generated (0 where unknown), and whether it was cut at the limit."""

    text: str
    tokens: int = 0
    cut: bool = False


def user_message(text: str, jpegs: Sequence[bytes] = ()) -> Message:
    """A user's message: images first, as data URIs, then the text."""
    urls = [f"data:image/jpeg;base64,{b64encode(jpeg).decode()}" for jpeg in jpegs]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [*images, {"type": "text", "text": text}]}


class ChatClient:
    """One model served at `urls` (each with its /v1), which are used in turn. Safe to share between threads."""

    def __init__(
        self, urls: Sequence[str], model: str, timeout_s: float = TIMEOUT_S, max_retries: int = MAX_RETRIES
    ) -> None:
        from openai import OpenAI

        key = os.environ.get("OPENAI_API_KEY") or "none"
        self._servers = [OpenAI(base_url=url, api_key=key, timeout=timeout_s, max_retries=max_retries) for url in urls]
        self._turn = count()
        self._check_timeout_s = min(timeout_s, CHECK_TIMEOUT_S)
        self.model = model
        self.retries: dict[str, int] = {}

    def check(self) -> None:
        """Ask every server for one token. Raises ChatError for one that is not there, or refuses the key or model."""
        for server in self._servers:
            self._send(
                server.with_options(max_retries=1, timeout=self._check_timeout_s),
                "check",
                [user_message("Hello")],
                {"max_tokens": 1},
            )

    def ask(self, request_id: str, messages: Sequence[Message], **settings: Any) -> ChatReply:
        """The reply to one conversation; settings as in the API (temperature, max_tokens). Raises ChatError."""
        return self._send(self._servers[next(self._turn) % len(self._servers)], request_id, messages, settings)

    def _send(
        self, server: OpenAI, request_id: str, messages: Sequence[Message], settings: dict[str, Any]
    ) -> ChatReply:
        from openai import APIError

        asked: Any = {"model": self.model, "messages": list(messages), **settings}
        try:
            response = server.chat.completions.with_raw_response.create(**asked)
        except APIError as error:
            raise _explained(server, error, self.model) from error
        if response.retries_taken:
            self.retries[request_id] = response.retries_taken
        try:
            return _read(response.parse())
        except (ValueError, AttributeError, TypeError, IndexError) as error:
            start = response.http_response.text[:80]
            raise ChatError(f"{server.base_url} gives no chat completion but {start!r}; does it end in /v1?") from error

    def retry_report(self) -> str:
        """How many requests had to be repeated, and which; empty if none."""
        if not self.retries:
            return ""
        named = ", ".join(list(self.retries)[:NAMED_IDS]) + (" ..." if len(self.retries) > NAMED_IDS else "")
        return f"{len(self.retries)} requests were sent again, {sum(self.retries.values())} times in all: {named}"


def _read(completion: Any) -> ChatReply:
    """The first choice of a completion, its text fit for UTF-8."""
    choice = completion.choices[0]
    text = (choice.message.content or "").encode("utf-8", "replace").decode()
    tokens = completion.usage.completion_tokens if completion.usage else 0
    return ChatReply(text, tokens, choice.finish_reason == "length")


def _explained(server: OpenAI, error: APIError, model: str) -> ChatError:
    """What a server's refusal means for the user."""
    from openai import APIConnectionError, AuthenticationError, NotFoundError

    if isinstance(error, APIConnectionError):
        return ChatError(
            f"no answer from {server.base_url}: {error.__cause__ or error.message}; is the server running?"
        )
    if isinstance(error, AuthenticationError):
        return ChatError(f"{server.base_url} refuses the API key; set OPENAI_API_KEY ({error.message})")
    if isinstance(error, NotFoundError):
        return ChatError(f"{server.base_url} knows no model {model!r}, or the URL lacks its /v1 ({error.message})")
    return ChatError(f"{server.base_url} refuses: {error.message}")
