"""The engine `openai`: a model behind one or several OpenAI-compatible servers, many questions in flight."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image

from data_gen.chat import ChatClient, Message
from data_gen.images import open_rgb
from data_gen.in_order import map_as_completed
from eval.decoding import draw_seed
from eval.engines import Reply, Request, by_image
from rewards.boxes import Size

_EXIF_ORIENTATION = 0x0112
SENT_AS_THEY_ARE = {"JPEG": "image/jpeg", "PNG": "image/png"}


@dataclass(frozen=True)
class ChatEngine:
    """Decoding by a server, which has its own pixel budget and chat template.

    temperature: 0 is greedy; else every request has a seed of its own, which follows from `seed`. A server's own top_k
    stays in force, as the API has no such setting.
    """

    client: ChatClient
    max_new_tokens: int = 512
    concurrency: int = 16
    temperature: float = 0.0
    seed: int = 0

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """Replies question by question, image by image, for servers that keep a prefix.

        Raises ChatError for a server that refuses or stays silent, RecordError for an image that cannot be read.
        """
        left = (request for request in by_image(requests) if request.id not in done)
        try:
            yield from map_as_completed(ThreadPoolExecutor(self.concurrency), self._ask, left, 2 * self.concurrency)
        finally:
            if report := self.client.retry_report():
                print(f"openai: {report}", file=sys.stderr)

    def _ask(self, request: Request) -> Reply:
        # Images are encoded here, in the thread that sends them: never more in memory than questions in flight.
        how = {"temperature": self.temperature, "top_p": 1, "seed": draw_seed(self.seed, request.id)}
        settings = how if self.temperature else {"temperature": 0}
        reply = self.client.ask(request.id, [message_of(request)], **settings, max_tokens=self.max_new_tokens)
        return Reply(request.id, reply.text, reply.tokens)


def message_of(request: Request) -> Message:
    """A question as a user's message: its images in order as data URIs, then the text."""
    urls = [data_uri(path, size) for path, size in zip(request.images, request.sizes, strict=True)]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [*images, {"type": "text", "text": request.prompt}]}


def data_uri(path: Path, size: Size) -> str:
    """An image for a server: the file itself if any program shows it alike, else its upright RGB pixels as PNG.

    Raises RecordError when it cannot be read or is not of `size`.
    """
    opened = open_rgb(path, size)  # also of a file that is sent as it is: a server would be vague about what is wrong
    kind = _plain_kind(path)
    if kind:
        return _uri(kind, path.read_bytes())
    buffer = BytesIO()
    opened.save(buffer, "PNG")
    return _uri("image/png", buffer.getvalue())


def _plain_kind(path: Path) -> str | None:
    """The media type of an RGB file that is stored upright, or None."""
    with Image.open(path) as image:
        upright = image.getexif().get(_EXIF_ORIENTATION, 1) == 1
        return SENT_AS_THEY_ARE.get(str(image.format)) if upright and image.mode == "RGB" else None


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"
