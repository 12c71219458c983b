"""Posting to a chat server: one attempt, with a time limit on the whole of it, and a key that nobody gets to see."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from data_gen.chat_replies import Cause, ChatError, Fault

KEY_VARIABLE = "OPENAI_API_KEY"
CONNECT_TIMEOUT_S = 20.0
IDLE_CONNECTION_S = 4.0  # vLLM's server closes idle ones after 5; a request must not meet that moment
HIDDEN = "***"
_SHORTEST_SECRET = 6  # shorter ones are words like "none" and "EMPTY", for servers that want no key


class Secret:
    """The API key of the environment, or "none". Raises ChatError for one that cannot be sent."""

    def __init__(self) -> None:
        self.key = os.environ.get(KEY_VARIABLE, "").strip() or "none"
        if not (self.key.isascii() and self.key.isprintable()):
            raise ChatError(f"{KEY_VARIABLE} holds characters that no key has; set it anew")

    def __repr__(self) -> str:
        return HIDDEN

    def hide(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self.key, HIDDEN) if len(self.key) >= _SHORTEST_SECRET else text

    def hide_bytes(self, content: bytes) -> bytes:
        """The same for what a server sent."""
        secret = len(self.key) >= _SHORTEST_SECRET
        return content.replace(self.key.encode(), HIDDEN.encode()) if secret else content


def shown_url(url: str) -> str:
    """A URL fit for messages: without user, password and query. Raises ChatError for what is no http URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        host = None
    if not host:
        raise ChatError(f"an endpoint is a URL like http://HOST:PORT/v1, got {url.rpartition('@')[2]!r}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Poster:
    """Connections to any number of servers. Safe to share between threads."""

    def __init__(self, secret: Secret) -> None:
        import httpx2

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_CONNECTION_S)
        headers = {"Authorization": f"Bearer {secret.key}", "Content-Type": "application/json"}
        self._http = httpx2.Client(headers=headers, limits=limits, follow_redirects=True)
        self._secret = secret

    def post(self, url: str, body: bytes, timeout_s: float) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers by lower-case names, and body of a server's answer, all without the key.

        Raises Fault when no whole answer has come `timeout_s` after the start; where a server sends a part of its body
        and then nothing, this takes up to twice as long.
        """
        import httpx2

        deadline_s = time.monotonic() + timeout_s
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S), pool=None)
        pieces = []
        try:
            with self._http.stream("POST", url, content=body, timeout=timeout) as response:
                for piece in response.iter_bytes():
                    pieces.append(piece)
                    if time.monotonic() > deadline_s:
                        raise _silent(timeout_s)
                headers = {name.lower(): value for name, value in response.headers.items()}
                return response.status_code, headers, self._secret.hide_bytes(b"".join(pieces))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise Fault(Cause.UNREACHABLE, self._secret.hide(str(error) or "timed out")) from None
        except httpx2.TimeoutException:
            raise _silent(timeout_s) from None
        except httpx2.RequestError as error:
            raise Fault(Cause.CUT, self._secret.hide(str(error) or type(error).__name__)) from None


def _silent(timeout_s: float) -> Fault:
    return Fault(Cause.SILENT, f"timed out after {timeout_s:g} s")
