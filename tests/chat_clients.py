"""Clients with little patience, and answers that servers should not give, for the tests of data_gen/chat.py."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

from chat_server import Answer, ChatServer, Raw

from data_gen.chat import ChatClient, ChatReply, Patience, user_message

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
