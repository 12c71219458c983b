"""A chat server that costs next to nothing: it counts the bytes of a request, waits, and sends the same reply to all.

python tests/benchmarks/slow_chat_server.py --latency-s 1 --slots 64     (the first line it prints is its URL)
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from typing import Any

_CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "word " * 200}}
_USAGE = {"prompt_tokens": 2000, "completion_tokens": 200, "total_tokens": 2200}
_BODY = json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [_CHOICE],
                    "usage": _USAGE}).encode()  # fmt: skip
_REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
_BUFFER = memoryview(bytearray(1 << 20))  # of all connections: each empties it before the next one reads


class Slots:
    """`count` requests are answered at a time, each after `latency_s` from when it got its slot; others queue.

    Every `slow_every`-th takes ten times as long; 0: none.
    """

    def __init__(self, count: int, latency_s: float, slow_every: int = 0) -> None:
        self.free = count
        self.latency_s = latency_s
        self.slow_every = slow_every
        self.turn = 0
        self.queue: deque[Connection] = deque()

    def ask(self, connection: Connection) -> None:
        """Give the request of a connection a slot, now or when one is free."""
        if not self.free:
            self.queue.append(connection)
            return
        self.free -= 1
        self.turn += 1
        slow = self.slow_every and self.turn % self.slow_every == 0
        asyncio.get_running_loop().call_later(self.latency_s * (10 if slow else 1), self._answer, connection)

    def _answer(self, connection: Connection) -> None:
        connection.transport.write(_REPLY)
        self.free += 1
        if self.queue:
            self.ask(self.queue.popleft())


class Connection(asyncio.BufferedProtocol):
    """One keep-alive connection; requests come one after the other and have a Content-Length."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.head = b""
        self.left_bytes: int | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        if self.left_bytes is None:
            self.head += bytes(_BUFFER[:nbytes])
            head, blank, rest = self.head.partition(b"\r\n\r\n")
            if not blank:
                return
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.left_bytes, nbytes = int(length), len(rest)
        self.left_bytes -= nbytes
        if not self.left_bytes:
            self.head, self.left_bytes = b"", None
            self.slots.ask(self)


async def serve(slots: Slots) -> None:
    """Serve until killed, on a free port."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(slots), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency-s", type=float, default=1.0)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--slow-every", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(serve(Slots(options.slots, options.latency_s, options.slow_every)))


if __name__ == "__main__":
    main()
