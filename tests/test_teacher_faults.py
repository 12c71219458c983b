"""What chat servers do wrong, one at a time: what passes is tried again, what is wrong with a reply is a reason."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from chat_clients import HTML, JSON_TYPE, WHOLE, ask, client_of, free_port, once, refusal
from chat_server import DROP, Answer, Raw, serve, text_of

from data_gen.chat import ChatError, ChatReply, Patience, Reason, RequestError, user_message
from data_gen.chat_replies import Cause, retry_after_s

# --- what passes ---


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (refusal(429, "slow down"), Cause.TOO_MANY),
        (refusal(500, "oops"), Cause.SERVER_ERROR),
        (Raw(HTML, 502), Cause.UNAVAILABLE),
        (refusal(503, "busy"), Cause.UNAVAILABLE),
        (refusal(504, "busy"), Cause.UNAVAILABLE),
        (refusal(529, "overloaded"), Cause.UNAVAILABLE),
        (DROP, Cause.CUT),
        (Raw(WHOLE[:20], missing_bytes=len(WHOLE) - 20), Cause.CUT),
        (Raw(WHOLE[:20], chunked=True), Cause.CUT),
        (Raw(WHOLE, chunked=True), Cause.CUT),
        (Raw(WHOLE[:20]), Cause.CUT),
        (Raw(HTML, headers=(("Content-Type", "text/html"),)), Cause.NO_JSON),
        (Raw(HTML, 404), Cause.NO_JSON),
        (Raw(b""), Cause.NO_JSON),
        (Raw(HTML, 522), Cause.UNAVAILABLE),
        (Raw(b"no gzip", headers=(("Content-Encoding", "gzip"),)), Cause.CUT),
        (Raw(b"[1, 2]"), Cause.NO_JSON),
        (Raw(b'{"status": "starting"}'), Cause.OTHER_SHAPE),
        (Raw(WHOLE, endless=True), Cause.SILENT),
    ],
)
def test_a_fault_that_passes_is_tried_again_and_counted(fault: Answer, cause: Cause) -> None:
    with serve(once(fault, fault)) as server:
        client = client_of(server, timeout_s=0.4)
        assert ask(client, "a").text == "fine"
        usage = client.usage()
    assert (usage.retries, usage.requests, usage.replies, client.retries) == ({cause.value: 2}, 3, 1, {"a": 2})


def test_a_server_that_never_answers_costs_the_time_limit_and_no_more() -> None:
    over = threading.Event()
    waits = [True]

    def answer(request: dict[str, Any]) -> str:
        if waits and waits.pop():
            over.wait(10)
        return "fine"

    with serve(answer) as server:
        client = client_of(server, timeout_s=0.3)
        assert ask(client, "a").text == "fine"
        assert client.usage().retries == {"time-out": 1}
        over.set()


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_long_reply_arrives_whole(size: int) -> None:
    with serve(lambda request: "wörd " * (size // 5)) as server:
        assert ask(client_of(server), "a").text == "wörd " * (size // 5)


def test_a_server_that_is_away_for_a_while_is_waited_for_and_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    client = client_of(url, patience=Patience(0.05, 0.1, give_up_after_s=30, tell_every_s=0.15))
    with ThreadPoolExecutor(4) as threads:
        replies = [threads.submit(ask, client, str(number)) for number in range(4)]
        time.sleep(0.6)
        with serve(lambda request: "fine", port):
            assert [reply.result(10).text for reply in replies] == ["fine"] * 4
    assert set(client.usage().retries) == {"unreachable"}
    told = capsys.readouterr().err.splitlines()
    assert 1 <= len(told) <= 5
    assert re.fullmatch(
        rf"no server has answered for \d+ s, still trying, up to 30 s: no answer from {url}: .*", told[0]
    )


def test_a_wait_for_one_request_is_told_to_none(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(once((500, "oops"))) as server:
        ask(client_of(server), "a")
    assert capsys.readouterr().err == ""


# --- Retry-After ---

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30"}, 30.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Sun, 99 Mar 2026 12:00:30 GMT"}, None),
    ],
)
def test_what_a_server_asks_for_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.parametrize("kind", ["seconds", "date"])
def test_a_pause_that_a_server_asks_for_is_kept_by_all_requests(kind: str) -> None:
    times_s: list[float] = []

    def answer(request: dict[str, Any]) -> Answer:
        times_s.append(time.monotonic())
        if len(times_s) > 1:
            return "fine"
        wanted = "1" if kind == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        return Raw(b'{"error": {"message": "slow down"}}', 429, (JSON_TYPE, ("Retry-After", wanted)))

    with serve(answer) as server:
        client = client_of(server, patience=Patience(0.01, 0.05))
        assert ask(client, "a").text == "fine"
        assert client.usage().retries == {"too many requests": 1}
    assert times_s[1] - times_s[0] >= 0.9


def test_a_server_cannot_ask_for_a_pause_without_end() -> None:
    busy = Raw(b"{}", 503, (("Retry-After", "86400"),))
    with serve(once(busy)) as server:
        patience = Patience(first_pause_s=0.01, longest_retry_after_s=0.05)
        assert ask(client_of(server, patience=patience), "a").text == "fine"


def test_a_pause_asked_for_outlasts_replies_that_were_under_way() -> None:
    times_s: dict[str, float] = {}
    slow_down = Raw(b"{}", 429, (("Retry-After-Ms", "500"),))

    def answer(request: dict[str, Any]) -> Answer:
        text = text_of(request)
        if text == "slow":
            time.sleep(0.2)
        if text == "busy" and text not in times_s:
            times_s["busy"] = time.monotonic()
            return slow_down
        times_s[f"{text} answered"] = time.monotonic()
        return "fine"

    with serve(answer) as server, ThreadPoolExecutor(2) as threads:
        client = client_of(server)
        assert [reply.text for reply in threads.map(lambda text: ask(client, text), ["slow", "busy"])] == ["fine"] * 2
    assert times_s["busy answered"] - times_s["busy"] >= 0.45


# --- replies with a reason ---


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (Raw(b'{"choices": []}'), ChatReply("", reason=Reason.EMPTY)),
        (Raw(b'{"choices": [{"message": null}]}'), ChatReply("", reason=Reason.EMPTY)),
        (Raw(b'{"choices": [{"message": {"content": null}}], "usage": null}'), ChatReply("", reason=Reason.EMPTY)),
        ("", ChatReply("", prompt_tokens=1, reason=Reason.EMPTY)),
        (" \n", ChatReply(" \n", prompt_tokens=1, reason=Reason.EMPTY)),
        (
            Raw(b'{"choices": [{"message": {"content": null}, "finish_reason": "length"}]}'),
            ChatReply("", cut=True, reason=Reason.EMPTY),
        ),
        (
            Raw(b'{"choices": [{"message": {"content": "half"}, "finish_reason": "length"}]}'),
            ChatReply("half", cut=True),
        ),
        (
            Raw(b'{"choices": [{"message": {"content": "I ca"}, "finish_reason": "content_filter"}]}'),
            ChatReply("I ca", reason=Reason.REFUSED),
        ),
        (
            Raw(b'{"choices": [{"message": {"content": null, "refusal": "I will not."}, "finish_reason": "stop"}]}'),
            ChatReply("", reason=Reason.REFUSED),
        ),
        (refusal(400, "filtered", "content_filter"), ChatReply("", reason=Reason.REFUSED)),
        (refusal(400, "Rejected as a result of our safety system"), ChatReply("", reason=Reason.REFUSED)),
        (refusal(400, "Input may be improper", "data_inspection_failed"), ChatReply("", reason=Reason.REFUSED)),
        (refusal(400, "too many tokens", "context_length_exceeded"), ChatReply("", reason=Reason.TOO_LONG)),
        (refusal(400, "This model's maximum context length is 64 tokens."), ChatReply("", reason=Reason.TOO_LONG)),
        (
            Raw(b'{"object": "error", "message": "longer than the maximum model length of 64", "code": 400}', 400),
            ChatReply("", reason=Reason.TOO_LONG),
        ),
    ],
)
def test_what_is_wrong_with_a_reply_is_a_reason_and_sent_once(answer: Answer, reply: ChatReply) -> None:
    with serve(lambda request: answer if text_of(request) == "a" else "fine") as server:
        client = client_of(server)
        assert ask(client, "a") == reply
        assert ask(client, "b").text == "fine"
        assert len(server.requests) == 2
        assert client.usage().reasons == ({reply.reason.value: 1} if reply.reason else {})
        assert client.retry_report() == (f"replies with something wrong: 1 {reply.reason}" if reply.reason else "")


@pytest.mark.parametrize(
    "answer",
    [
        refusal(400, "image too large"),
        refusal(413, "too large"),
        refusal(422, "temperature must be a number"),
        Raw(b'{"detail": [{"msg": "unknown field", "input": "the context length of moderation"}]}', 422),
    ],
)
def test_a_request_that_is_turned_down_fails_alone(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(lambda request: answer if text_of(request) == "a" else "fine") as server:
        client = client_of(server)
        with pytest.raises(RequestError, match=rf"{server.url} refuses: 4\d\d "):
            ask(client, "a")
        assert client.try_ask("a", [user_message("a")]) == ChatReply("", reason=Reason.REJECTED)
        assert ask(client, "b").text == "fine"
        assert len(server.requests) == 3
    assert capsys.readouterr().err.startswith("a: http")
    assert client.usage().reasons == {"rejected": 1}


def test_when_every_request_is_turned_down_it_is_not_the_requests() -> None:
    with serve(lambda request: (400, "no parameter top_k")) as server:
        client = client_of(server)
        with pytest.raises(ChatError, match=r"20 requests in a row failed, the last with: .*no parameter top_k"):
            for number in range(50):
                client.try_ask(str(number), [user_message("a")])
        assert len(server.requests) == 20


def test_a_request_that_kills_its_server_fails_alone() -> None:
    def answer(request: dict[str, Any]) -> Answer:
        return (500, "out of memory") if text_of(request) == "poison" else "fine"

    with serve(answer) as server:
        client = client_of(server, max_retries=2)
        with ThreadPoolExecutor(4) as threads:
            texts = ["a", "poison", *"bcdef"]
            replies = list(threads.map(lambda text: client.try_ask(text, [user_message(text)]), texts))
        assert [reply.reason for reply in replies] == ["", "failed", *[""] * 5]
        asked = Counter(map(text_of, server.requests))
        assert 3 <= asked["poison"] <= 4, "the first and two more, and one after the server was seen to be well"
        assert client.retries["poison"] == asked["poison"], "each of them went wrong"
        with pytest.raises(RequestError, match=r"in vain while others are answered: .*out of memory"):
            ask(client, "poison")
