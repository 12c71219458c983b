"""A night on someone else's cluster: what servers do wrong, and that the client outlives it or says clearly why not."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from chat_server import DROP, Answer, ChatServer, Raw, serve, text_of

from data_gen.chat import ChatClient, ChatError, ChatReply, Patience, Reason, RequestError, user_message
from data_gen.chat_replies import Cause, retry_after_s

QUICK = Patience(first_pause_s=0.01, longest_pause_s=0.05, give_up_after_s=0.6, tell_every_s=0.1)
HTML = b"<html><body>Bad gateway</body></html>"
JSON_TYPE = ("Content-Type", "application/json")
WHOLE = json.dumps({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}).encode()


def client_of(*servers: ChatServer | str, patience: Patience = QUICK, **settings: Any) -> ChatClient:
    urls = [server if isinstance(server, str) else server.url for server in servers]
    return ChatClient(urls, "m", patience=patience, **settings)


def ask(client: ChatClient, text: str) -> ChatReply:
    return client.ask(text, [user_message(text)])


def once(*faults: Answer) -> Callable[[dict[str, Any]], Answer]:
    """Each fault once, then fine."""
    left = list(faults)
    return lambda request: left.pop(0) if left else "fine"


def refusal(status: int, message: str, code: str = "") -> Raw:
    return Raw(json.dumps({"error": {"message": message, "code": code}}).encode(), status)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


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
        with pytest.raises(RequestError, match=r"in vain while others are answered: .*out of memory"):
            ask(client, "poison")


# --- several endpoints ---


def test_the_work_of_a_dead_endpoint_goes_to_the_others_and_it_is_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = free_port()
    dead = f"http://127.0.0.1:{port}/v1"
    with ExitStack() as stack, ThreadPoolExecutor(6) as threads:
        living = [stack.enter_context(serve(lambda request: "fine")) for _ in range(2)]
        client = client_of(dead, *living, patience=Patience(0.02, 0.1))
        replies = []
        while client.usage().endpoints[0].requests < 5 or len(replies) < 60:
            replies.append(ask(client, "a").text)
        assert set(replies) == {"fine"}
        first = client.usage().endpoints[0]
        assert first.replies == 0 and "no answer from" in first.trouble
        assert min(len(server.requests) for server in living) >= 20
        back = stack.enter_context(serve(lambda request: "fine", port))
        time.sleep(0.2)
        assert {reply.text for reply in threads.map(lambda number: ask(client, str(number)), range(30))} == {"fine"}
        assert len(back.requests) >= 5
        assert client.usage().endpoints[0].trouble == ""
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and told[0].startswith(f"no answer from {dead}") and told[1] == f"{dead} answers again"


def test_a_dead_endpoint_costs_no_waiting_while_others_live() -> None:
    with serve(lambda request: "fine") as living:
        client = client_of(f"http://127.0.0.1:{free_port()}/v1", living, patience=Patience(first_pause_s=600))
        assert [ask(client, text).text for text in "abcdef"] == ["fine"] * 6
        assert client.usage().endpoints[0].requests == 1


def test_a_silent_endpoint_is_tried_by_one_request_after_its_rest() -> None:
    over = threading.Event()

    def hang(request: dict[str, Any]) -> str:
        over.wait(10)
        return "late"

    with serve(hang) as silent, serve(lambda request: time.sleep(0.02) or "fine") as living:
        client = client_of(silent, living, timeout_s=0.2, patience=Patience(0.05, 0.1))
        with ThreadPoolExecutor(8) as threads:
            assert {reply.text for reply in threads.map(lambda n: ask(client, str(n)), range(100))} == {"fine"}
        over.set()
    assert 4 <= len(silent.requests) <= 12
    assert client.usage().endpoints[0].retries == {"time-out": len(silent.requests)}


def test_the_endpoint_with_the_fewest_in_flight_is_next() -> None:
    over = threading.Event()

    def slow(request: dict[str, Any]) -> str:
        over.wait(10)
        return "slow"

    with serve(slow) as first, serve(lambda request: "quick") as second, ThreadPoolExecutor(1) as threads:
        client = client_of(first, second)
        held = threads.submit(ask, client, "held")
        while not client.usage().in_flight:
            time.sleep(0.01)
        assert {ask(client, str(number)).text for number in range(10)} == {"quick"}
        over.set()
        assert held.result().text == "slow"
    assert [use.requests for use in client.usage().endpoints] == [1, 10]


def test_when_all_are_dead_the_error_names_all_and_reaches_every_thread() -> None:
    urls = [f"http://127.0.0.1:{free_port()}/v1" for _ in range(3)]
    client = client_of(*urls)
    started_s = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        errors = [threads.submit(ask, client, str(number)).exception() for number in range(8)]
    assert time.monotonic() - started_s >= 0.5
    assert {type(error) for error in errors} == {ChatError}
    assert all(url in str(error) for url in urls for error in errors)
    assert "(tried for 0.6 s)" in str(errors[0])
    with pytest.raises(ChatError):
        ask(client, "later")


def test_a_check_goes_on_without_a_dead_endpoint_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    dead = f"http://127.0.0.1:{free_port()}/v1"
    with serve(lambda request: "fine") as living:
        client_of(dead, living).check()
        assert re.match(rf"no answer from {dead}: .* The other servers do its work", capsys.readouterr().err)
    with pytest.raises(ChatError, match=dead):
        client_of(dead).check()


# --- what ends everything ---


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, "bad key"), r"refuses the API key; set OPENAI_API_KEY \(401 bad key\)"),
        ((403, "no access"), r"refuses the API key; set OPENAI_API_KEY \(403 no access\)"),
        ((404, "no such model"), r"knows no model 'm', or the URL lacks its /v1 \(404 no such model\)"),
    ],
)
def test_a_refused_key_or_model_stops_all_threads_at_once(answer: tuple[int, str], message: str) -> None:
    with serve(lambda request: answer) as refusing:
        client = client_of(f"http://127.0.0.1:{free_port()}/v1", patience=Patience(600, 600))
        client_of_both = client_of(client.usage().endpoints[0].url, refusing, patience=Patience(600, 600))
        with ThreadPoolExecutor(4) as threads:
            errors = [threads.submit(ask, client_of_both, str(number)).exception() for number in range(12)]
        assert len(refusing.requests) <= 4
    assert all(type(error) is ChatError and re.search(message, str(error)) for error in errors)


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "ftp://host/v1", "http://", "http://user:sk-hidden@[host/v1", "", "/v1"]
)
def test_what_is_no_url_is_said_at_once(url: str) -> None:
    with pytest.raises(ChatError, match="an endpoint is a URL like http://HOST:PORT/v1") as error:
        client_of(url)
    assert "hidden" not in str(error.value)


def test_no_url_at_all_is_said_at_once() -> None:
    with pytest.raises(ChatError, match="no endpoint is given"):
        client_of()


# --- the key ---

KEY = "sk-very/secret+key"


@pytest.mark.parametrize(
    "answer",
    [
        f"your key is {KEY}",
        (400, f"key {KEY} may not"),
        (401, f"wrong key {KEY}"),
        (404, f"no model for {KEY}"),
        (500, f"crashed on {KEY}"),
        (503, f"no room for {KEY}"),
        Raw(f"<html>{KEY}</html>".encode()),
        Raw(f'{{"odd": "{KEY}"}}'.encode()),
        Raw(b'{"choices": [{"message": {"content": "it is sk-very\\/secret+key"}}]}'),
        Raw(b'{"error": {"message": "it is sk-very\\u002fsecret+key"}}', 400),
    ],
)
def test_the_key_is_in_no_reply_and_no_message(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve(lambda request: answer) as server:
        client = client_of(server.url.replace("//", "//user:pass-word@"), max_retries=1)
        said: list[object] = []
        for attempt in (client.check, lambda: ask(client, "a"), lambda: client.try_ask("a", [user_message("a")])):
            try:
                said.append(attempt())
            except ChatError as error:
                said += [error, error.__cause__, error.__context__ if not error.__suppress_context__ else None]
        said += [client.usage(), client.retry_report(), *capsys.readouterr(), vars(client)]
    assert server.keys and "secret+key" not in repr(said) and "pass-word" not in repr([*said[:-1]])


@pytest.mark.parametrize("key", ["sk-se\ncret", "sk-sécret", "sk-se\x00cret"])
def test_a_key_that_cannot_be_sent_is_told_without_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"OPENAI_API_KEY": key})
    with pytest.raises(ChatError, match="OPENAI_API_KEY holds characters that no key has") as error:
        client_of("http://localhost:1/v1")
    assert "cret" not in str(error.value)


def test_a_word_in_place_of_a_key_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    with serve(lambda request: "the road is EMPTY") as server:
        assert ask(client_of(server), "a").text == "the road is EMPTY"


# --- a whole night, shortened ---


def test_everything_at_once_loses_no_request() -> None:
    """Two hundred requests against two servers that fail every third request in turn, and one that is not there."""
    faults = [(429, "slow"), (500, "oops"), DROP, Raw(HTML), Raw(WHOLE[:9], missing_bytes=9), (503, "busy"), Raw(b"{}")]
    lock, turn = threading.Lock(), iter(range(10**6))

    def answer(request: dict[str, Any]) -> Answer:
        with lock:
            number = next(turn)
        return faults[number // 3 % len(faults)] if number % 3 == 0 else f"re {text_of(request)}"

    with serve(answer) as first, serve(answer) as second, ThreadPoolExecutor(16) as threads:
        client = client_of(first, second, f"http://127.0.0.1:{free_port()}/v1", patience=Patience(0.01, 0.1))
        texts = [str(number) for number in range(200)]
        assert [reply.text for reply in threads.map(lambda text: ask(client, text), texts)] == [
            f"re {t}" for t in texts
        ]
        usage = client.usage()
    assert usage.replies == 200 and usage.in_flight == 0
    assert usage.requests == 200 + sum(usage.retries.values())
    assert len(first.requests) + len(second.requests) == usage.requests - usage.endpoints[2].requests
    assert (usage.tokens_in, usage.tokens_out) == (200, 400)
    assert set(usage.retries) == {cause.value for cause in Cause} - {Cause.SILENT.value}
