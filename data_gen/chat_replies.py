"""What a chat server's answer means: a reply, a fault that may pass, a request it will not do, or the end of the run.

Pure functions of a status, headers and a body. The format is that of OpenAI's chat completions, as vLLM, SGLang and
hosted services speak it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from data_gen.command_line import UsageError

SHOWN_CHARACTERS = 300  # of what a server says in an error
_UNAVAILABLE = (502, 503, 504, *range(520, 530))  # from 520 on: Cloudflare's, and 529 of overloaded models
_PASSING = (408, 409, 425, 429, *range(500, 600))
_REFUSED_PHRASES = (
    "content_filter",
    "content_policy",
    "content policy",
    "content management policy",
    "data_inspection_failed",
    "moderation",
    "safety system",
)
_TOO_LONG_PHRASES = (
    "context_length",
    "context length",
    "context window",
    "maximum model length",
    "prompt is too long",
    "input is too long",
)


class Reason(StrEnum):
    """What is wrong with a reply. FINE: nothing.

    EMPTY: no choice, or one without text. REFUSED: kept back by a content filter. TOO_LONG: the prompt does not fit
    the model. REJECTED: the server will not take this request. FAILED: it fails again and again while others succeed.
    """

    FINE = ""
    EMPTY = "empty"
    REFUSED = "refused"
    TOO_LONG = "too_long"
    REJECTED = "rejected"
    FAILED = "failed"


class Cause(StrEnum):
    """Why a request was sent again."""

    TOO_MANY = "too many requests"
    UNAVAILABLE = "unavailable"
    SERVER_ERROR = "server error"
    UNREACHABLE = "unreachable"
    CUT = "cut"
    SILENT = "time-out"
    NO_JSON = "no JSON"
    OTHER_SHAPE = "no completion"


# The server or what stands before it has no place for anybody; says nothing against the request.
OVERLOADS = frozenset({Cause.TOO_MANY, Cause.UNAVAILABLE, Cause.UNREACHABLE, Cause.NO_JSON})


@dataclass(frozen=True)
class ChatReply:
    """A reply: its text, tokens generated and tokens of the prompt (0 where unknown), whether it was cut at the limit.

    reason: what is wrong with it; the text may then be empty.
    """

    text: str
    tokens: int = 0
    cut: bool = False
    prompt_tokens: int = 0
    reason: Reason = Reason.FINE


class ChatError(UsageError):
    """A server that cannot be reached, or refuses; the message names its URL and what it said."""


class RequestError(ChatError):
    """One request that a server will not or cannot answer, while others may go on. reason: REJECTED or FAILED."""

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


class Fault(Exception):  # noqa: N818 - nothing has gone wrong for good
    """An attempt that failed for a cause that may pass. retry_after_s: how long the server asks to be left alone."""

    def __init__(self, cause: Cause, said: str, retry_after_s: float | None = None) -> None:
        super().__init__(said)
        self.cause = cause
        self.said = said
        self.retry_after_s = retry_after_s


class Refusal(Exception):  # noqa: N818 - the same
    """A status that trying again does not change, and what the server said."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said


def read_reply(status: int, headers: Mapping[str, str], body: bytes, now: datetime | None = None) -> ChatReply:
    """The reply in a server's answer. `now`: for a Retry-After that is a date.

    Raises Fault for what may pass, Refusal for what stays.
    """
    if 200 <= status < 300:
        return _read_completion(body)
    if (status == 404 and _json(body) is None) or status in _PASSING:
        raise Fault(*_fault_of(status, body), retry_after_s(headers, now or datetime.now(UTC)))
    if status not in (401, 403, 404) and (reason := _reason_of(body)):
        return ChatReply("", reason=reason)
    raise Refusal(status, f"{status} {_said(body)}")


def _fault_of(status: int, body: bytes) -> tuple[Cause, str]:
    """What kind of fault a status is, and what the server said."""
    if status == 404:  # of a proxy without its server; servers of models explain in JSON
        return Cause.NO_JSON, _start(body)
    cause = Cause.TOO_MANY if status == 429 else Cause.UNAVAILABLE if status in _UNAVAILABLE else Cause.SERVER_ERROR
    return cause, f"{status} {_said(body)}"


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that a server asks to be left alone, at least 0; None where it asks for nothing that can be read.

    `headers` by lower-case names. Retry-After is a number of seconds or an HTTP date (RFC 9110, 10.2.3);
    Retry-After-Ms, which some services add, is finer.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if value.replace(".", "", 1).isdecimal():
            return float(value) * unit_s
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())


def _read_completion(body: bytes) -> ChatReply:
    completion = _json(body)
    if completion is None:
        # A proxy may pass on half of what it got as if it were the whole.
        raise Fault(Cause.CUT if body.lstrip().startswith(b"{") else Cause.NO_JSON, _start(body))
    choices = completion.get("choices")
    if not isinstance(choices, list):
        raise Fault(Cause.OTHER_SHAPE, _start(body))
    tokens, prompt_tokens = _token_counts(completion)
    if not choices:
        return ChatReply("", tokens, prompt_tokens=prompt_tokens, reason=Reason.EMPTY)
    choice = choices[0]
    if not isinstance(choice, dict):
        raise Fault(Cause.OTHER_SHAPE, _start(body))
    message = choice.get("message") or {}
    content = message.get("content") if isinstance(message, dict) else message
    if not isinstance(content, str | None):
        raise Fault(Cause.OTHER_SHAPE, _start(body))
    text = (content or "").encode("utf-8", "replace").decode()  # half a surrogate pair fits in no file
    ended = choice.get("finish_reason")
    refused = ended == "content_filter" or (not text and isinstance(message, dict) and message.get("refusal"))
    reason = Reason.REFUSED if refused else Reason.FINE if text.strip() else Reason.EMPTY
    return ChatReply(text, tokens, ended == "length", prompt_tokens, reason)


def _json(body: bytes) -> dict[str, Any] | None:
    """The object that a body holds, or None."""
    try:
        found = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _token_counts(completion: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens generated and tokens of the prompt; 0 where the server does not count."""
    usage = completion.get("usage")
    found = [usage.get(name) if isinstance(usage, dict) else None for name in ("completion_tokens", "prompt_tokens")]
    tokens, prompt_tokens = (number if isinstance(number, int) else 0 for number in found)
    return tokens, prompt_tokens


def _reason_of(body: bytes) -> Reason | None:
    """Why a single request is turned down, where the words of the error tell."""
    error = _error(body)
    words = " ".join(str(error.get(name, "")) for name in ("message", "code", "type")).lower()
    if any(phrase in words for phrase in _REFUSED_PHRASES):
        return Reason.REFUSED
    return Reason.TOO_LONG if any(phrase in words for phrase in _TOO_LONG_PHRASES) else None


def _error(body: bytes) -> dict[str, Any]:
    """The description of an error; some servers put it at the top, some give its message alone."""
    found = _json(body) or {}
    error = found.get("error", found)
    return error if isinstance(error, dict) else {"message": error}


def _said(body: bytes) -> str:
    """The words of an error: its message if it has the usual form, else how the body starts."""
    error = _error(body)
    message = error.get("message", error.get("detail"))
    return message[:SHOWN_CHARACTERS] if isinstance(message, str) else _start(body)


def _start(body: bytes) -> str:
    return body[:SHOWN_CHARACTERS].decode("utf-8", "replace")
