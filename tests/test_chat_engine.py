"""The engine `openai`: what is sent, that nothing is asked twice, and what is said of servers that do not serve."""

from __future__ import annotations

import json
import re
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from chat_server import DROP, ChatServer, serve, text_of
from PIL import Image
from small_questions import write_small_set

from data_gen.chat import ChatClient, ChatError, Patience
from eval.chat_engine import ChatEngine, data_uri
from eval.decoding import draw_seed, sampled
from eval.engines import Request
from eval.surds import main

SIZE = (16, 8)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not answer are given up after half a second, not half an hour."""
    monkeypatch.setattr("data_gen.chat.PATIENCE", Patience(first_pause_s=0.02, give_up_after_s=0.5))


def small_requests(folder: Path, count: int) -> list[Request]:
    """Questions about two small pictures in turn."""
    for name in ("a.png", "b.png"):
        Image.new("RGB", SIZE, "red").save(folder / name)
    return [Request(str(n), f"question {n}", (folder / ("a.png", "b.png")[n % 2],), (SIZE,)) for n in range(count)]


def engine_of(*servers: ChatServer, concurrency: int = 8, **settings: Any) -> ChatEngine:
    return ChatEngine(ChatClient([server.url for server in servers], "m", **settings), 64, concurrency)


def test_every_question_is_asked_once_with_images_first_and_servers_take_turns(tmp_path: Path) -> None:
    requests = small_requests(tmp_path, 20)
    both = Request("both", "compare", (requests[0].images[0], requests[1].images[0]), (SIZE, SIZE))
    with serve(lambda request: f"re: {text_of(request)}") as first, serve(lambda request: "other") as second:
        replies = {reply.id: reply for reply in engine_of(first, second).replies([*requests, both], {"3", "4"})}
    assert sorted(replies) == sorted({*map(str, range(20)), "both"} - {"3", "4"})
    assert len(first.requests) + len(second.requests) == 19 and min(len(first.requests), len(second.requests)) >= 5
    assert {reply.output for reply in replies.values()} - {"other"} == {f"re: {text_of(r)}" for r in first.requests}
    assert all(reply.tokens == len(reply.output.split()) for reply in replies.values())
    asked = {text_of(request): request for request in [*first.requests, *second.requests]}
    assert len(asked) == 19
    assert [part["type"] for part in asked["compare"]["messages"][0]["content"]] == ["image_url", "image_url", "text"]
    assert {(request["temperature"], request["max_tokens"], request["model"]) for request in asked.values()} == {
        (0, 64, "m")
    }


def test_samples_of_a_question_are_requests_with_seeds_of_their_own(tmp_path: Path) -> None:
    asked = sampled(small_requests(tmp_path, 2), 3)
    with serve(lambda request: str(request["seed"])) as server:
        client = ChatClient([server.url], "m")
        replies = {r.id: r for r in ChatEngine(client, 64, temperature=0.7, seed=5).replies(asked, {"1 #1"})}
    assert set(replies) == {"0", "0 #1", "0 #2", "1", "1 #2"}
    assert all(reply.output == str(draw_seed(5, name)) for name, reply in replies.items())
    assert len({reply.output for reply in replies.values()}) == 5
    assert {(request["temperature"], request["top_p"]) for request in server.requests} == {(0.7, 1)}


def test_as_many_are_in_flight_as_allowed_and_a_slow_reply_holds_up_none(tmp_path: Path) -> None:
    released = threading.Event()

    def answer(request: dict[str, Any]) -> str:
        if text_of(request) == "question 0":
            released.wait(10)
        return "fine"

    with serve(answer) as server:
        arrived = []
        for reply in engine_of(server).replies(small_requests(tmp_path, 14)):
            arrived.append(reply.id)
            if len(arrived) == 13:  # all but the slow one
                released.set()
    assert arrived[-1] == "0" and 2 <= server.most_in_flight <= 8


def test_faults_that_pass_are_tried_again_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults: list[Any] = [(429, "slow down"), (503, "busy"), DROP]

    def answer(request: dict[str, Any]) -> str | tuple[int, str]:
        return faults.pop() if faults else "fine"

    with serve(answer) as server:
        assert len(list(engine_of(server, concurrency=1).replies(small_requests(tmp_path, 3)))) == 3
    assert "openai: 1 requests were sent again, 3 times in all" in capsys.readouterr().err


def test_replies_under_way_are_kept_when_another_request_is_refused(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> str | tuple[int, str]:
        if text_of(request) == "question 0":
            return 400, "too large"
        time.sleep(0.3)
        return "fine"

    kept = []
    with serve(answer) as server, pytest.raises(ChatError, match=r"refuses: .*too large"):
        for reply in engine_of(server, concurrency=4).replies(small_requests(tmp_path, 60)):
            kept.append(reply.id)
    assert 1 <= len(kept) == len(server.requests) - 1 < 20


def test_a_server_that_hangs_midway_is_named(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> str:
        time.sleep(0.0 if text_of(request) == "question 0" else 1.0)
        return "fine"

    kept = []
    with serve(answer) as server, pytest.raises(ChatError, match=r"no answer from .*timed out") as error:
        for reply in engine_of(server, timeout_s=0.3, max_retries=1).replies(small_requests(tmp_path, 3)):
            kept.append(reply.id)
    assert kept == ["0"] and server.url in str(error.value)


# --- images ---


def decoded(uri: str) -> tuple[str, bytes, Image.Image]:
    head, data = uri.split(",", 1)
    content = b64decode(data)
    return head, content, Image.open(BytesIO(content))


@pytest.mark.parametrize(("name", "kind"), [("a.jpg", "image/jpeg"), ("a.png", "image/png")])
def test_an_upright_rgb_file_is_sent_as_it_is(tmp_path: Path, name: str, kind: str) -> None:
    Image.effect_noise((40, 20), 60).convert("RGB").save(tmp_path / name)
    head, content, _ = decoded(data_uri(tmp_path / name, (40, 20)))
    assert head == f"data:{kind};base64" and content == (tmp_path / name).read_bytes()


def turned_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


@pytest.mark.parametrize(
    ("name", "mode", "settings"),
    [
        ("palette.png", "P", {}),
        ("grey.png", "L", {}),
        ("clear.png", "RGBA", {}),
        ("print.jpg", "CMYK", {}),
        ("plain.bmp", "RGB", {}),
        ("turned.jpg", "RGB", {"exif": turned_exif()}),
    ],
)
def test_any_other_picture_is_sent_upright_and_as_rgb(
    tmp_path: Path, name: str, mode: str, settings: dict[str, Any]
) -> None:
    Image.new(mode, (40, 20)).save(tmp_path / name, **settings)
    size = (20, 40) if settings else (40, 20)
    head, _, picture = decoded(data_uri(tmp_path / name, size))
    assert (head, picture.mode, picture.size) == ("data:image/png;base64", "RGB", size)
    assert picture.getexif().get(0x0112, 1) == 1


# --- from the command line ---


def run(tmp_path: Path, server: ChatServer, *more: str) -> int:
    data = tmp_path / "data" / "questions.jsonl"
    if not data.exists():
        write_small_set(tmp_path / "data", images=4)
    options = ["--endpoint", server.url, "--endpoint-model", "org/served", "--out", str(tmp_path / "run")]
    return main(["--data", str(data), *options, *more])


def stored(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]


def test_a_served_model_is_scored_and_its_frame_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(lambda request: "<answer>Yes</answer>") as server:
        assert run(tmp_path, server) == 0
    assert re.search("openai: coordinates of org/served are read as pixels of the original", capsys.readouterr().err)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["engine"], facts["label"], facts["frame"]["kind"]) == ("openai", "served", "original")
    assert {row["output"] for row in stored(tmp_path)} == {"<answer>Yes</answer>"}
    with serve(lambda request: "<answer>Yes</answer>") as server:
        assert run(tmp_path, server, "--frame", "thousand", "--overwrite") == 0
    assert "are read as" not in capsys.readouterr().err


def test_a_server_that_fails_midway_ends_the_run_and_resume_asks_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: dict[str, Any]) -> str | tuple[int, str]:
        if len(server.requests) > 9:
            return 400, "out of order"
        return f"<answer>{len(text_of(request))}</answer>"

    with serve(answer) as server:
        assert run(tmp_path, server, "--concurrency", "2") == 2
        assert f"{server.url} refuses" in capsys.readouterr().err
        before = stored(tmp_path)
        asked = len(server.requests)
        assert 0 < len(before) < asked
    with serve(lambda request: f"<answer>{len(text_of(request))}</answer>") as healthy:
        assert run(tmp_path, healthy, "--resume") == 0
        rows = stored(tmp_path)
        assert len(healthy.requests) - 1 == len(rows) - len(before)  # one to check the server
        assert {row["id"]: row["output"] for row in rows}.items() >= {r["id"]: r["output"] for r in before}.items()
        assert run(tmp_path, healthy, "--overwrite") == 0
    assert stored(tmp_path) == rows


def hang(request: dict[str, Any]) -> str:
    time.sleep(1.5)
    return "late"


@pytest.mark.parametrize(
    ("answer", "message", "more"),
    [
        (lambda request: (401, "bad key"), "refuses the API key", ()),
        (lambda request: (404, "no such model"), "knows no model 'org/served'", ()),
        (lambda request: (500, "broken"), "refuses: .*broken", ()),
        (hang, r"no answer from .*timed out", ("--timeout-s", "1")),
    ],
)
def test_a_server_that_does_not_serve_is_named_before_anything_is_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answer: Callable[[dict[str, Any]], Any],
    message: str,
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("data_gen.chat.CHECK_TIMEOUT_S", 0.5, raising=False)
    with serve(answer) as server:
        assert run(tmp_path, server, *more) == 2
    told = capsys.readouterr().err
    assert re.search(message, told) and server.url in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("at_once", [True, False])
def test_an_endpoint_that_returns_html_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    page = b"<html><body>Log in</body></html>"

    def send(handler: Any, status: int, body: dict[str, Any]) -> None:
        html = at_once or len(handler.state.requests) > 6
        content = page if html else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "text/html" if html else "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    monkeypatch.setattr("chat_server._Handler._send", send)
    with serve(lambda request: "fine") as server:
        assert run(tmp_path, server, "--concurrency", "1") == 2
    told = capsys.readouterr().err
    assert "gives no chat completion but '<html>" in told and server.url in told
    assert (tmp_path / "run" / "predictions.jsonl").exists() is not at_once


def test_an_endpoint_without_a_model_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_small_set(tmp_path / "data", images=2)
    assert main(["--data", str(data), "--endpoint", "http://localhost:1/v1"]) == 2
    assert "the engine openai needs --endpoint-model NAME" in capsys.readouterr().err
    assert main(["--data", str(data), "--engine", "openai", "--endpoint-model", "m"]) == 2
    assert "the engine openai needs --endpoint http://HOST:PORT/v1" in capsys.readouterr().err
