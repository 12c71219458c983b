"""A model behind one or several OpenAI-compatible servers: ask one thing, from as many threads as wanted.

    client = ChatClient(("http://localhost:8000/v1",), "the-model")
    client.check()
    threads = ThreadPoolExecutor(16)
    replies = map_in_order(threads, lambda item: client.ask(item.id, [user_message(item.text)]), items, ahead=32)

The API key is OPENAI_API_KEY, or "none"; it stands in no reply and no message. Busy and broken servers, time-outs, lost
connections and pages of proxies are tried again, with growing pauses, on another server where there is one. While no
server answers anybody, all wait, up to `Patience.give_up_after_s`; then ChatError names every server. A refused key
and an unknown model stop the client at once.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from data_gen.chat_endpoints import Endpoint, Endpoints, Patience, Usage
from data_gen.chat_http import KEY_VARIABLE, Poster, Secret, shown_url
from data_gen.chat_images import MAX_PIXELS, file_uri, jpeg_uri
from data_gen.chat_replies import (
    OVERLOADS,
    Cause,
    ChatError,
    ChatReply,
    Fault,
    Reason,
    Refusal,
    RequestError,
    read_reply,
)

__all__ = ["ChatClient", "ChatError", "ChatReply", "Patience", "Reason", "RequestError", "Usage", "user_message"]

MAX_RETRIES = 6
TIMEOUT_S = 600.0
CHECK_TIMEOUT_S = 60.0
CHECK_ATTEMPTS = 2
NAMED_IDS = 5
MOST_ALONE = 20  # requests that fail on their own, one after the other
PATIENCE = Patience()
Message = dict[str, Any]
ImageSource = bytes | Path | Callable[[], bytes]


def user_message(text: str, images: Sequence[ImageSource] = (), max_pixels: int = MAX_PIXELS) -> Message:
    """A user's message: images first, as data URIs, then the text.

    An image is the bytes of a JPEG, a function that gives them, or a file, which is made smaller if it has more than
    `max_pixels` pixels. Functions and files are called and read when the message is sent.
    """
    parts = [{"type": "image_url", "image_url": {"url": _uri(image, max_pixels)}} for image in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _uri(image: ImageSource, max_pixels: int) -> str | Callable[[], str]:
    """A data URI, or what will give one."""
    if isinstance(image, bytes):
        return jpeg_uri(image)
    return partial(file_uri, image, max_pixels) if isinstance(image, Path) else lambda: jpeg_uri(image())


@dataclass
class _Course:
    """How one request fares. tries: faults that count against it; repeats: all faults; trouble: the last one in words.

    Times are of time.monotonic.
    """

    request_id: str
    tries: int = 0
    repeats: int = 0
    trouble: str = ""
    avoid: Endpoint | None = None
    avoid_until_s: float = -math.inf
    first_fault_s: float = math.inf
    give_up_at_s: float = math.inf


class ChatClient:
    """One model served at `urls` (each with its /v1). Safe to share between threads.

    timeout_s: of one attempt, from first to last byte. max_retries: how often a request is sent again that fails while
    others succeed; overloads do not count. retries: how often each request that needed it was sent again, by id.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: str,
        timeout_s: float = TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
        patience: Patience | None = None,
    ) -> None:
        if not urls:
            raise ChatError("no endpoint is given; one is a URL like http://HOST:PORT/v1")
        self._secret = Secret()
        self._poster = Poster(self._secret)
        self._addresses = {shown_url(url): f"{url.rstrip('/')}/chat/completions" for url in urls}
        self._endpoints = Endpoints(list(self._addresses), patience or PATIENCE)
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._lock = threading.Lock()
        self._reasons: Counter[str] = Counter()
        self._alone = 0
        self.model = model
        self.retries: dict[str, int] = {}

    def check(self) -> None:
        """Ask every server for one token, and say on standard error which do not answer.

        Raises ChatError when none answers, or one refuses the key or model.
        """
        troubles = [told for endpoint in self._endpoints.all if (told := self._trouble(endpoint))]
        if len(troubles) == len(self._endpoints.all):
            raise ChatError("; ".join(troubles))
        for told in troubles:
            print(f"{told} The other servers do its work until it answers.", file=sys.stderr)

    def ask(self, request_id: str, messages: Sequence[Message], **settings: Any) -> ChatReply:
        """The reply to one conversation; settings as in the API (temperature, max_tokens).

        A refusal by a content filter, a prompt that is too long and an empty reply are replies with a reason. Raises
        RequestError for a request that this server will not take, or that fails while others succeed; ChatError when
        there is no going on, then in all threads.
        """
        body = self._encoded(messages, settings)
        course = _Course(request_id)
        while True:
            endpoint = self._endpoints.take(course.avoid, course.avoid_until_s, course.give_up_at_s)
            if endpoint is None:
                self._judge(course)  # has failed before: the first attempt waits for ever
                continue
            try:
                reply = self._attempt(endpoint, body, self._timeout_s)
            except Fault as fault:
                self._after(fault, endpoint, course)
                continue
            self._count(reply)
            return reply

    def try_ask(self, request_id: str, messages: Sequence[Message], **settings: Any) -> ChatReply:
        """As `ask`, but a request that fails on its own is an empty reply with its reason, REJECTED or FAILED.

        Raises ChatError when so many in a row fail on their own that it cannot be them.
        """
        try:
            return self.ask(request_id, messages, **settings)
        except RequestError as error:
            with self._lock:
                self._reasons[error.reason.value] += 1
                self._alone += 1
            if self._alone >= MOST_ALONE:
                why = f"{MOST_ALONE} requests in a row failed, the last with: {error}"
                self._endpoints.stop(why)
                raise ChatError(why) from None
            print(f"{request_id}: {error}", file=sys.stderr)
            return ChatReply("", reason=error.reason)

    def usage(self) -> Usage:
        """What was sent and came back so far, per endpoint."""
        with self._lock:
            reasons = dict(self._reasons)
        return Usage(self._endpoints.uses(), reasons)

    def retry_report(self) -> str:
        """How many requests had to be repeated, and which, and what was wrong with replies; empty if nothing."""
        told = []
        with self._lock:
            retries, reasons = dict(self.retries), dict(self._reasons)
        if retries:
            named = ", ".join(list(retries)[:NAMED_IDS]) + (" ..." if len(retries) > NAMED_IDS else "")
            told.append(f"{len(retries)} requests were sent again, {sum(retries.values())} times in all: {named}")
        if reasons:
            counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            told.append(f"replies with something wrong: {counts}")
        return "; ".join(told)

    def _encoded(self, messages: Sequence[Message], settings: dict[str, Any]) -> bytes:
        asked = {"model": self.model, "messages": list(messages), **settings}
        return msgspec.json.encode(asked, enc_hook=_called)

    def _attempt(self, endpoint: Endpoint, body: bytes, timeout_s: float) -> ChatReply:
        """One attempt at an endpoint where it is counted as in flight. Raises Fault, RequestError, ChatError."""
        began_s = time.monotonic()
        try:
            reply = read_reply(*self._poster.post(self._addresses[endpoint.url], body, timeout_s))
        except Fault as fault:
            self._endpoints.failed(endpoint, fault, began_s, self._told(endpoint, fault))
            raise
        except Refusal as refusal:
            self._endpoints.turned_down(endpoint)
            raise self._explained(endpoint.url, refusal) from None
        except BaseException:
            self._endpoints.let_go(endpoint)
            raise
        self._endpoints.answered(endpoint, reply)
        return replace(reply, text=self._secret.hide(reply.text))  # a server may have spelt it another way in JSON

    def _after(self, fault: Fault, endpoint: Endpoint, course: _Course) -> None:
        """Make up one's mind after a fault. Raises RequestError or ChatError if that was it."""
        now_s, patience = time.monotonic(), self._endpoints.patience
        course.repeats += 1
        with self._lock:
            self.retries[course.request_id] = course.repeats
        course.tries += fault.cause not in OVERLOADS
        course.trouble = self._told(endpoint, fault)
        course.avoid = endpoint
        course.avoid_until_s = now_s + (0.0 if fault.retry_after_s else patience.pause_s(course.repeats))
        course.first_fault_s = min(course.first_fault_s, now_s)
        course.give_up_at_s = min(course.give_up_at_s, now_s + patience.give_up_after_s)
        if course.tries > self._max_retries or now_s >= course.give_up_at_s:
            self._judge(course)

    def _judge(self, course: _Course) -> None:
        """Whose fault is it that a request failed so often, or for so long?

        The request's, if others were answered meanwhile: RequestError. The servers', if the one that failed last does
        not even say hello: ChatError, for all, when patience is at an end. Else the request gets another chance.
        """
        if self._endpoints.answered_since(course.first_fault_s):
            told = f"sent {course.repeats} times in vain while others are answered: {course.trouble}"
            raise RequestError(told, Reason.FAILED)
        patience_s = self._endpoints.patience.give_up_after_s
        if course.avoid and not self._trouble(course.avoid):
            course.give_up_at_s = time.monotonic() + patience_s
        elif time.monotonic() < course.give_up_at_s:
            course.tries = 0
        else:
            why = f"{self._endpoints.troubles() or course.trouble} (tried for {patience_s:g} s)"
            self._endpoints.stop(why)
            raise ChatError(why)

    def _trouble(self, endpoint: Endpoint) -> str:
        """What is wrong with an endpoint that is asked for one token; empty if nothing. Raises ChatError."""
        body = self._encoded([user_message("Hello")], {"max_tokens": 1})
        told = ""
        for attempt in range(CHECK_ATTEMPTS):
            if attempt:
                time.sleep(self._endpoints.patience.first_pause_s)
            self._endpoints.start(endpoint)
            try:
                self._attempt(endpoint, body, min(self._timeout_s, CHECK_TIMEOUT_S))
            except Fault as fault:
                told = self._told(endpoint, fault)
            else:
                return ""
        return told

    def _count(self, reply: ChatReply) -> None:
        with self._lock:
            self._alone = 0
            if reply.reason:
                self._reasons[reply.reason.value] += 1

    def _told(self, endpoint: Endpoint, fault: Fault) -> str:
        """A fault in words."""
        url, said = endpoint.url, self._secret.hide(fault.said)
        if fault.cause in (Cause.UNREACHABLE, Cause.CUT, Cause.SILENT):
            return f"no answer from {url}: {said}; is the server running?"
        if fault.cause in (Cause.NO_JSON, Cause.OTHER_SHAPE):
            return f"{url} gives no chat completion but {said!r}; does it end in /v1?"
        return f"{url} refuses: {said}"

    def _explained(self, url: str, refusal: Refusal) -> ChatError:
        """What a refusal means for the user. One that holds for every request stops the client."""
        if refusal.status in (401, 403):
            why = f"{url} refuses the API key; set {KEY_VARIABLE} ({refusal.said})"
        elif refusal.status == 404:
            why = f"{url} knows no model {self.model!r}, or the URL lacks its /v1 ({refusal.said})"
        else:
            return RequestError(self._secret.hide(f"{url} refuses: {refusal.said}"), Reason.REJECTED)
        self._endpoints.stop(self._secret.hide(why))
        return ChatError(self._secret.hide(why))


def _called(value: Any) -> Any:
    """What a message holds in place of a text: a function that gives it. Raises TypeError for anything else."""
    if not callable(value):
        raise TypeError(f"a {type(value).__name__} cannot be sent to a server")
    return value()
