"""The verifier as another model behind an OpenAI-compatible server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from data_gen.chat import ChatClient, user_message
from data_gen.in_order import map_in_order
from data_gen.prompts import verifier_text_for_chat
from rewards.response import last_answer, strip_special_tokens

IN_FLIGHT = 16
NEW_TOKENS = 256  # a server's model may say more than the answer
_MARKER = re.compile(r"<(?=[|/A-Za-z])")


def served_answers(client: ChatClient, traces: Sequence[str | None]) -> list[str | None]:
    """The answer that the server's model reaches from each trace; None where there is none, or no answer came.

    The same trace is sent once. Raises ChatError when the server stays out of reach or refuses.
    """
    distinct = list(dict.fromkeys(trace for trace in traces if trace is not None))
    threads = ThreadPoolExecutor(IN_FLIGHT)
    replies = map_in_order(threads, lambda trace: _ask(client, trace), distinct, ahead=2 * IN_FLIGHT)
    found = dict(zip(distinct, replies, strict=True))
    return [None if trace is None else found[trace] for trace in traces]


def _ask(client: ChatClient, trace: str) -> str | None:
    message = user_message(verifier_text_for_chat(_as_text(trace)))
    text = strip_special_tokens(client.ask("logic", [message], temperature=0, max_tokens=NEW_TOKENS).text)
    answer = last_answer(text)
    return (text if answer is None else answer) or None


def _as_text(trace: str) -> str:
    """The trace without anything that a server's tokenizer may take for a chat marker."""
    return _MARKER.sub("< ", trace)
