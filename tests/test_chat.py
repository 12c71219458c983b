"""The client of OpenAI-compatible servers: faults are tried again, refusals are explained, order and bounds hold."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_server import DROP, serve, text_of

from data_gen.chat import ChatClient, ChatError, ChatReply, Patience, user_message
from data_gen.in_order import map_in_order

QUICK = Patience(first_pause_s=0.01, longest_pause_s=0.05, give_up_after_s=0.5)


def ask(client: ChatClient, text: str) -> ChatReply:
    return client.ask(text, [user_message(text)], temperature=0)


def test_a_reply_has_its_text_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serve(lambda request: f"you said {text_of(request)}") as server:
        client = ChatClient((server.url,), "m")
        assert ask(client, "hello") == ChatReply("you said hello", tokens=3, prompt_tokens=1)
    (request,) = server.requests
    assert (request["model"], request["temperature"], server.keys) == ("m", 0, {"Bearer secret"})


def test_without_a_key_servers_of_ones_own_are_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serve(lambda request: "fine") as server:
        ChatClient((server.url,), "m").check()
    assert server.keys == {"Bearer none"}


def test_many_in_flight_come_back_in_order_and_the_servers_take_turns() -> None:
    together = threading.Barrier(16)

    def answer(request: dict) -> str:
        together.wait(10)  # only passes when 16 requests are in flight at a time
        time.sleep(0.01 * (int(text_of(request)) % 3))
        return text_of(request)

    with serve(answer) as first, serve(answer) as second:
        client = ChatClient((first.url, second.url), "m")
        texts = [str(number) for number in range(64)]
        replies = map_in_order(ThreadPoolExecutor(16), lambda text: ask(client, text).text, texts, 32)
        assert list(replies) == texts
        assert min(len(first.requests), len(second.requests)) >= 24
        assert client.retry_report() == ""


def test_faults_that_pass_are_tried_again_and_counted() -> None:
    faults: dict[str, list] = {"a": [(429, "slow down"), (500, "oops")], "b": [DROP], "c": [(503, "busy")]}

    def answer(request: dict) -> str | tuple[int, str]:
        left = faults.get(text_of(request))
        return left.pop(0) if left else "fine"

    with serve(answer) as server:
        client = ChatClient((server.url,), "m")
        assert [ask(client, text).text for text in "abcd"] == ["fine"] * 4
    assert client.retries == {"a": 2, "b": 1, "c": 1}
    assert client.retry_report() == "3 requests were sent again, 4 times in all: a, b, c"
    assert Counter(map(text_of, server.requests)) == {"a": 3, "b": 2, "c": 2, "d": 1}


def test_a_request_that_hangs_is_sent_again() -> None:
    pauses = [1.5]

    def answer(request: dict) -> str:
        time.sleep(pauses.pop() if pauses else 0)
        return "fine"

    with serve(answer) as server:
        client = ChatClient((server.url,), "m", timeout_s=0.5)
        assert ask(client, "hello").text == "fine"
    assert client.retries == {"hello": 1}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, "bad key"), "refuses the API key; set OPENAI_API_KEY"),
        ((404, "no such model"), "knows no model 'm', or the URL lacks its /v1 .*no such model"),
        ((400, "image too large"), "refuses: .*image too large"),
        ((429, "still busy"), "refuses: .*still busy"),
    ],
)
def test_a_refusal_names_the_server_and_says_why(answer: tuple[int, str], message: str) -> None:
    with serve(lambda request: answer) as server:
        client = ChatClient((server.url,), "m", max_retries=1, patience=QUICK)
        for refused in (client.check, lambda: ask(client, "hello")):
            with pytest.raises(ChatError, match=message) as error:
                refused()
            assert server.url in str(error.value)


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(ChatError, match=rf"no answer from {url}.*is the server running"):
        ChatClient((url,), "m").check()


def test_a_url_without_its_v1_is_explained() -> None:
    with serve(lambda request: "fine") as server, pytest.raises(ChatError, match="lacks its /v1"):
        ChatClient((server.url.removesuffix("/v1"),), "m").check()


@pytest.mark.parametrize(
    "body", [{}, {"choices": None}, {"choices": ["fine"]}, {"choices": [{"message": {"content": 1}}]}]
)
def test_an_answer_that_is_no_completion_is_explained(body: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat_server._completion", lambda text: body)
    with serve(lambda request: "fine") as server, pytest.raises(ChatError, match="gives no chat completion but"):
        ask(ChatClient((server.url,), "m", patience=QUICK), "hello")


def test_half_a_surrogate_pair_does_not_reach_our_files() -> None:
    with serve(lambda request: "white \ud83d") as server:
        assert ask(ChatClient((server.url,), "m"), "hello").text == "white ?"


# --- in order ---


def test_no_more_items_are_taken_than_asked_for() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = map_in_order(ThreadPoolExecutor(2), lambda number: number * number, items(), 5)
    assert next(results) == 0
    assert len(taken) == 5
    assert list(results) == [number**2 for number in range(1, 100)]


def test_the_first_failure_is_raised_and_what_has_not_begun_is_dropped() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.01)
        return 1 // (number - 2)

    results = map_in_order(ThreadPoolExecutor(1), work, range(100), 50)
    assert [next(results), next(results)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert len(begun) < 50
