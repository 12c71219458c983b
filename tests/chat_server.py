"""A small OpenAI-compatible server for tests: answers as told, fails as told, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

from PIL import Image

DROP = "drop"  # close the connection without an answer


@dataclass(frozen=True)
class Raw:
    """An answer sent as it stands. missing_bytes: how many more its Content-Length promises before it is cut off.

    chunked: without a length, and cut off before the last chunk. endless: the body, then blanks for ever.
    """

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    missing_bytes: int = 0
    chunked: bool = False
    endless: bool = False


Answer = str | tuple[int, str] | Raw


@dataclass
class ChatServer:
    """`answer` gets each request and says what comes back: a text, an HTTP status with its message, Raw, or DROP."""

    answer: Callable[[dict[str, Any]], Answer]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serve(answer: Callable[[dict[str, Any]], Answer], port: int = 0) -> Iterator[ChatServer]:
    """A server on a port of this machine, a free one unless told; its `url` ends in /v1."""
    state = ChatServer(answer)
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def image_of(request: dict[str, Any]) -> Image.Image | None:
    """The picture in a request, if there is one."""
    for part in request["messages"][-1]["content"]:
        if part["type"] == "image_url":
            head, data = part["image_url"]["url"].split(",", 1)
            assert head == "data:image/jpeg;base64"
            return Image.open(BytesIO(b64decode(data)))
    return None


def text_of(request: dict[str, Any]) -> str:
    """The text of a request."""
    return " ".join(part["text"] for part in request["messages"][-1]["content"] if part["type"] == "text")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: ChatServer

    def do_POST(self) -> None:
        state = self.state
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.lock:
            state.requests.append(request)
            state.keys.add(self.headers["Authorization"])
            state.in_flight += 1
            state.most_in_flight = max(state.most_in_flight, state.in_flight)
        try:
            answer = state.answer(request) if self.path == "/v1/chat/completions" else (404, "no such page")
        finally:
            with state.lock:
                state.in_flight -= 1
        if answer == DROP:
            self.close_connection = True
            return
        with suppress(ConnectionError):  # a client that has hung up
            if isinstance(answer, Raw):
                self._send_raw(answer)
                return
            status, text = (200, answer) if isinstance(answer, str) else answer
            self._send(status, _completion(text) if status == 200 else {"error": {"message": text}})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Retry-After-Ms", "10")
        self.end_headers()
        self.wfile.write(content)

    def _send_raw(self, raw: Raw) -> None:
        self.send_response(raw.status)
        for name, value in raw.headers:
            self.send_header(name, value)
        if raw.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            length = 10**9 if raw.endless else len(raw.body) + raw.missing_bytes
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw.body), raw.body) if raw.chunked else raw.body)
        self.close_connection = raw.chunked or bool(raw.missing_bytes)
        if raw.endless:
            self._send_blanks()

    def _send_blanks(self) -> None:
        self.close_connection = True
        while True:
            self.wfile.write(b" ")
            time.sleep(0.02)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _completion(text: str) -> dict[str, Any]:
    """A reply in the form of OpenAI's API, a word counted as a token."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 1, "completion_tokens": len(text.split()), "total_tokens": 1 + len(text.split())}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
