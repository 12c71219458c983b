"""Several servers of one model: who gets the next request, who is left alone for a while, and what each has done.

The next request goes to the endpoint with the fewest in flight. One that cannot be reached, asks for a pause, or fails
a few times in a row rests for a pause that grows from failure to failure; its work goes to the others meanwhile.
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from data_gen.chat_replies import Cause, ChatError, ChatReply, Fault

FAILURES_BEFORE_A_REST = 3
RESTS_BEFORE_TOLD = 3
_JITTER = 0.2  # of a pause: clients that failed together do not come back together


@dataclass(frozen=True)
class Patience:
    """How long is waited, in seconds.

    first_pause_s, longest_pause_s: of the pauses that double from failure to failure. longest_retry_after_s: what a
    server may ask for, less than the next. give_up_after_s: how long a request is sent again while no server answers
    anybody. tell_every_s: how often a wait for all servers is told on standard error.
    """

    first_pause_s: float = 0.5
    longest_pause_s: float = 60.0
    longest_retry_after_s: float = 300.0
    give_up_after_s: float = 1800.0
    tell_every_s: float = 30.0

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row, a little random."""
        pause_s = self.first_pause_s * 2.0 ** min(max(failures - 1, 0), 30)
        return min(self.longest_pause_s, pause_s) * random.uniform(1 - _JITTER, 1 + _JITTER)


@dataclass(frozen=True)
class EndpointUse:
    """What one endpoint has done. requests: all that were sent, those sent again too; in_flight: being answered now.

    retries: requests that had to be sent again, by cause. tokens_in, tokens_out: of prompts and replies, as the server
    counts them. resting: left alone for now. trouble: the last fault, empty if all went well since.
    """

    url: str
    requests: int
    replies: int
    in_flight: int
    tokens_in: int
    tokens_out: int
    retries: Mapping[str, int]
    resting: bool
    trouble: str


@dataclass(frozen=True)
class Usage:
    """What a client has done so far. reasons: replies with something wrong, by reason."""

    endpoints: tuple[EndpointUse, ...]
    reasons: Mapping[str, int]

    @property
    def requests(self) -> int:
        """Requests sent, those sent again too."""
        return sum(use.requests for use in self.endpoints)

    @property
    def replies(self) -> int:
        """Replies that came back."""
        return sum(use.replies for use in self.endpoints)

    @property
    def in_flight(self) -> int:
        """Requests that are being answered now."""
        return sum(use.in_flight for use in self.endpoints)

    @property
    def tokens_in(self) -> int:
        """Tokens of all prompts that were answered."""
        return sum(use.tokens_in for use in self.endpoints)

    @property
    def tokens_out(self) -> int:
        """Tokens of all replies."""
        return sum(use.tokens_out for use in self.endpoints)

    @property
    def retries(self) -> dict[str, int]:
        """Requests that had to be sent again, by cause."""
        return dict(sum((Counter(use.retries) for use in self.endpoints), Counter()))


@dataclass
class Endpoint:
    """One server and its state, which Endpoints alone changes, under its lock. Times are of time.monotonic."""

    url: str
    requests: int = 0
    replies: int = 0
    in_flight: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    trouble: str = ""
    failures: int = 0  # since the last reply
    rests: int = 0  # since the last reply
    rest_began_s: float = -math.inf
    awake_at_s: float = -math.inf
    rest_asked: bool = False  # by the server: a reply that was under way does not end it
    on_trial: bool = False  # it was silent: after its rest one request alone finds out
    answered_at_s: float = -math.inf

    def free_at_s(self) -> float:
        """When it may be given a request."""
        return math.inf if self.on_trial and self.in_flight else self.awake_at_s

    def use(self, now_s: float) -> EndpointUse:
        """A snapshot."""
        return EndpointUse(
            self.url,
            self.requests,
            self.replies,
            self.in_flight,
            self.tokens_in,
            self.tokens_out,
            dict(self.retries),
            self.free_at_s() > now_s,
            self.trouble,
        )


class Endpoints:
    """The endpoints of a client. Safe to share between threads."""

    def __init__(self, urls: Sequence[str], patience: Patience) -> None:
        self.all = [Endpoint(url) for url in urls]
        self.patience = patience
        self._changed = threading.Condition()
        self._stopped = ""
        self._told_at_s = -math.inf
        self._silent_since_s: float | None = None

    def start(self, endpoint: Endpoint) -> None:
        """Count an attempt at this endpoint, whatever its state."""
        with self._changed:
            self._send(endpoint)

    def take(self, avoid: Endpoint | None, avoid_until_s: float, give_up_at_s: float) -> Endpoint | None:
        """The endpoint for the next attempt, counted as in flight; waits until one is free, at most to `give_up_at_s`.

        `avoid`, where the last attempt failed, is taken only when no other is free, and not before `avoid_until_s`.
        Raises ChatError once the client was stopped.
        """
        with self._changed:
            while True:
                if self._stopped:
                    raise ChatError(self._stopped)
                now_s = time.monotonic()
                free = [endpoint for endpoint in self.all if endpoint.free_at_s() <= now_s]
                others = [endpoint for endpoint in free if endpoint is not avoid]
                if others or (free and now_s >= avoid_until_s):
                    return self._send(min(others or free, key=lambda endpoint: (endpoint.in_flight, endpoint.requests)))
                if now_s >= give_up_at_s:
                    return None
                if not free:
                    self._tell(now_s)
                self._changed.wait(self._wait_s(now_s, avoid_until_s if free else math.inf, give_up_at_s))

    def answered(self, endpoint: Endpoint, reply: ChatReply) -> None:
        """An attempt came to a reply."""
        with self._changed:
            endpoint.in_flight -= 1
            endpoint.replies += 1
            endpoint.tokens_in += reply.prompt_tokens
            endpoint.tokens_out += reply.tokens
            self._wake(endpoint)

    def failed(self, endpoint: Endpoint, fault: Fault, began_s: float, told: str) -> None:
        """An attempt that began at `began_s` failed for a cause that may pass. `told`: the fault in words."""
        with self._changed:
            endpoint.in_flight -= 1
            endpoint.retries[fault.cause.value] += 1
            endpoint.trouble = told
            endpoint.failures += 1
            self._rest(endpoint, fault, began_s)
            self._changed.notify_all()

    def turned_down(self, endpoint: Endpoint) -> None:
        """An attempt was refused for good; the endpoint itself is well."""
        with self._changed:
            endpoint.in_flight -= 1
            self._wake(endpoint)

    def let_go(self, endpoint: Endpoint) -> None:
        """An attempt ended without saying anything about its endpoint."""
        with self._changed:
            endpoint.in_flight -= 1
            self._changed.notify_all()

    def stop(self, why: str) -> None:
        """From now on `take` raises ChatError with these words, in the threads that wait for an endpoint too."""
        with self._changed:
            self._stopped = self._stopped or why
            self._changed.notify_all()

    def answered_since(self, time_s: float) -> bool:
        """Whether any endpoint has replied to anybody since then."""
        with self._changed:
            return any(endpoint.answered_at_s > time_s for endpoint in self.all)

    def uses(self) -> tuple[EndpointUse, ...]:
        """A snapshot of all."""
        with self._changed:
            now_s = time.monotonic()
            return tuple(endpoint.use(now_s) for endpoint in self.all)

    def _send(self, endpoint: Endpoint) -> Endpoint:
        endpoint.in_flight += 1
        endpoint.requests += 1
        return endpoint

    def _wake(self, endpoint: Endpoint) -> None:
        if endpoint.rests >= RESTS_BEFORE_TOLD and len(self.all) > 1:
            print(f"{endpoint.url} answers again", file=sys.stderr, flush=True)
        endpoint.answered_at_s = time.monotonic()
        endpoint.failures = endpoint.rests = 0
        if not endpoint.rest_asked:
            endpoint.awake_at_s = -math.inf
        endpoint.on_trial = False
        endpoint.trouble = ""
        self._silent_since_s = None
        self._changed.notify_all()

    def _rest(self, endpoint: Endpoint, fault: Fault, began_s: float) -> None:
        """Leave an endpoint alone, if the fault or the number of faults asks for it."""
        now_s = time.monotonic()
        if fault.retry_after_s:
            asked_s = now_s + min(fault.retry_after_s, self.patience.longest_retry_after_s)
            endpoint.awake_at_s = max(endpoint.awake_at_s, asked_s)
            endpoint.rest_began_s, endpoint.rest_asked, endpoint.on_trial = now_s, True, False
            return
        counts = began_s > endpoint.rest_began_s  # one outage fails all that is in flight, and is one outage
        if counts and (fault.cause is Cause.UNREACHABLE or endpoint.failures >= FAILURES_BEFORE_A_REST):
            endpoint.rests += 1
            endpoint.awake_at_s = now_s + self.patience.pause_s(endpoint.rests)
            endpoint.rest_began_s, endpoint.rest_asked = now_s, False
            endpoint.on_trial = fault.cause is Cause.SILENT
            if endpoint.rests == RESTS_BEFORE_TOLD and len(self.all) > 1:
                print(f"{endpoint.trouble} It is tried again now and then.", file=sys.stderr, flush=True)

    def _wait_s(self, now_s: float, avoid_until_s: float, give_up_at_s: float) -> float:
        """How long nothing changes unless another thread says so."""
        wake_times_s = [endpoint.free_at_s() for endpoint in self.all if endpoint.free_at_s() > now_s]
        until_s = min(*wake_times_s, avoid_until_s, give_up_at_s, now_s + self.patience.tell_every_s)
        return max(0.0, until_s - now_s)

    def _tell(self, now_s: float) -> None:
        """Say once in a while that nobody answers."""
        if self._silent_since_s is None:
            self._silent_since_s = self._told_at_s = now_s
        if now_s - self._told_at_s < self.patience.tell_every_s:
            return
        self._told_at_s = now_s
        print(f"no server has answered for {now_s - self._silent_since_s:.0f} s, still trying, up to "
              f"{self.patience.give_up_after_s:.0f} s: {self.troubles()}", file=sys.stderr, flush=True)  # fmt: skip

    def troubles(self) -> str:
        """The last fault of every endpoint that has one."""
        return "; ".join(endpoint.trouble for endpoint in self.all if endpoint.trouble)
