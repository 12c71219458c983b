"""The client of OpenAI-compatible servers: faults are tried again, refusals are explained, order and bounds hold."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from chat_server import DROP, serve, text_of
from PIL import Image

from data_gen.chat import ChatClient, ChatError, ChatReply, Patience, user_message
from data_gen.in_order import map_as_completed, map_in_order
from data_gen.records import RecordError

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


# --- images ---


def uri_of(part: dict[str, Any]) -> tuple[str, bytes, Image.Image]:
    head, data = part["image_url"]["url"].split(",", 1)
    return head, b64decode(data), Image.open(BytesIO(b64decode(data)))


def sent(*images: Any, **settings: Any) -> list[tuple[str, bytes, Image.Image]]:
    """What arrives at a server of the images of a message."""
    with serve(lambda request: "fine") as server:
        ChatClient((server.url,), "m", patience=QUICK).ask("a", [user_message("see", images, **settings)])
        *parts, text = server.requests[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "see"}
    return [uri_of(part) for part in parts]


def noise(path: Path, size: tuple[int, int] = (60, 30), mode: str = "RGB", **settings: Any) -> Path:
    Image.effect_noise(size, 60).convert(mode).save(path, **settings)
    return path


def test_bytes_functions_and_files_arrive_as_they_are_and_in_order(tmp_path: Path) -> None:
    contents = [noise(tmp_path / f"{number}.jpg").read_bytes() for number in range(3)]
    arrived = sent(contents[0], lambda: contents[1], tmp_path / "2.jpg")
    assert [content for _, content, _ in arrived] == contents
    assert {head for head, _, _ in arrived} == {"data:image/jpeg;base64"}


def test_files_are_read_when_they_are_sent_and_again_for_no_retry(tmp_path: Path) -> None:
    reads: list[int] = []

    def read() -> bytes:
        reads.append(1)
        return b"jpeg"

    faults: list[Any] = [(503, "busy"), DROP]
    messages = [user_message("see", [read, tmp_path / "late.jpg"]) for _ in range(1000)]
    assert not reads
    noise(tmp_path / "late.jpg")
    with serve(lambda request: faults.pop() if faults else "fine") as server:
        ChatClient((server.url,), "m", patience=QUICK).ask("a", messages[:1])
        assert len(server.requests) == 3 and len(reads) == 1


@pytest.mark.parametrize(
    ("size", "max_pixels", "arrives"),
    [((60, 30), 1800, (60, 30)), ((60, 30), 1799, (59, 29)), ((400, 100), 100, (20, 5)), ((1, 4000), 100, (1, 632))],
)
def test_a_file_is_made_smaller_only_beyond_the_pixel_budget(
    tmp_path: Path, size: tuple[int, int], max_pixels: int, arrives: tuple[int, int]
) -> None:
    ((_, _, image),) = sent(noise(tmp_path / "a.jpg", size), max_pixels=max_pixels)
    assert (image.size, image.format) == (arrives, "JPEG")


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


@pytest.mark.parametrize(
    ("name", "mode", "settings"),
    [
        ("a.png", "RGB", {}),
        ("a.png", "RGBA", {}),
        ("a.jpg", "L", {}),
        ("a.jpg", "CMYK", {}),
        ("a.jpg", "RGB", {"exif": turned()}),
    ],
)
def test_any_other_file_arrives_as_an_upright_rgb_jpeg(
    tmp_path: Path, name: str, mode: str, settings: dict[str, Any]
) -> None:
    ((head, _, image),) = sent(noise(tmp_path / name, mode=mode, **settings))
    assert (head, image.format, image.mode) == ("data:image/jpeg;base64", "JPEG", "RGB")
    assert image.size == ((30, 60) if settings else (60, 30)) and image.getexif().get(0x0112, 1) == 1


@pytest.mark.parametrize("content", [None, b"", b"no image"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(RecordError, match=r"a\.jpg cannot be read"):
        sent(tmp_path / "a.jpg")


# --- in order and as they come ---


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


def test_a_slow_job_holds_up_none_of_the_others_and_few_are_taken_ahead() -> None:
    released, taken = threading.Event(), []

    def items() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    def work(number: int) -> int:
        if number == 0:
            released.wait(10)
        return number

    results = map_as_completed(ThreadPoolExecutor(4), work, items(), 6)
    first = [next(results) for _ in range(49)]
    assert sorted(first) == list(range(1, 50)) and len(taken) == 50
    released.set()
    assert list(results) == [0]
    few = map_as_completed(ThreadPoolExecutor(2), work, items(), 5)
    taken.clear()
    next(few)
    assert len(taken) == 5


def test_after_a_failure_what_is_under_way_is_kept_and_nothing_is_begun() -> None:
    begun: list[int] = []
    together = threading.Barrier(3)

    def work(number: int) -> int:
        begun.append(number)
        if number < 3:
            together.wait(10)  # three are under way when the first fails
        time.sleep(0.1 * number)
        return 6 // number

    kept = []
    with pytest.raises(ZeroDivisionError):
        for result in map_as_completed(ThreadPoolExecutor(3), work, range(100), 50):
            kept.append(result)
    assert {6, 3} <= set(kept) and len(begun) <= 5


def test_an_interrupt_ends_at_once_though_servers_are_silent(tmp_path: Path) -> None:
    over = threading.Event()
    script = tmp_path / "night.py"
    script.write_text(
        """
import argparse, sys
from concurrent.futures import ThreadPoolExecutor
from data_gen.chat import ChatClient, user_message
from data_gen.command_line import ends_well
from data_gen.in_order import map_as_completed
client = ChatClient((sys.argv[1],), "m")
with ends_well(argparse.ArgumentParser("night")):
    list(map_as_completed(ThreadPoolExecutor(8), lambda n: client.ask(str(n), [user_message("a")]), range(99), 16))
"""
    )
    with serve(lambda request: over.wait(30) and "late") as server:
        night = subprocess.Popen([sys.executable, script, server.url], stderr=subprocess.PIPE, env={**os.environ})
        try:
            while server.in_flight < 8 and night.poll() is None:
                time.sleep(0.01)
            night.send_signal(signal.SIGINT)
            assert night.wait(15) == 130
            assert night.stderr and b"interrupted; go on with" in night.stderr.read()
        finally:
            over.set()
            night.kill()
