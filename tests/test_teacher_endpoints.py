"""A night on someone else's cluster: some of the servers are dead, keys are refused, and no key is in any text."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from chat_clients import HTML, WHOLE, ask, client_of, free_port
from chat_server import DROP, Answer, Raw, serve, text_of

from data_gen.chat import ChatError, Patience, user_message
from data_gen.chat_replies import Cause

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
