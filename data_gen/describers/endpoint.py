"""Descriptions by a vision model behind OpenAI-compatible servers: one request per object, many images in flight."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING

from data_gen.chat import ChatClient, ChatError, user_message
from data_gen.describers.crops import crop_of, read_image
from data_gen.describers.standardise import standardise
from data_gen.describers.wording import answer_form, question_about
from data_gen.descriptions import UNREADABLE, Asked, AskedImage, Describer, Description
from data_gen.in_order import map_in_order

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_TOKENS = 64
JPEG_QUALITY = 90


def endpoint_describer(urls: Sequence[str], model: str, concurrency: int) -> Describer:
    """A describer that asks `model` at `urls`. Raises ChatError, now or later, where a server refuses."""
    client = ChatClient(urls, model)
    client.check()

    def describe_image(image: AskedImage) -> list[Description]:
        opened = read_image(image)  # here, in the thread that sends it: never more images in memory than threads
        if opened is None:
            return [UNREADABLE] * len(image.objects)
        try:
            return [_ask(client, opened, item) for item in image.objects]
        except ChatError as error:
            raise ChatError(f"{error} (asked about {image.path})") from error

    def describe(images: Iterable[AskedImage]) -> Iterator[list[Description]]:
        try:
            yield from map_in_order(ThreadPoolExecutor(concurrency), describe_image, images, 2 * concurrency)
        finally:
            if report := client.retry_report():
                print(f"descriptions: {report}", file=sys.stderr)

    return describe


def _ask(client: ChatClient, image: Image, item: Asked) -> Description:
    message = user_message(f"{question_about(item.category)} {answer_form(item.category)}", [_as_jpeg(image, item)])
    reply = client.ask(item.annotation_token, [message], temperature=0, max_tokens=MAX_TOKENS)
    return standardise(reply.text, item.category)


def _as_jpeg(image: Image, item: Asked) -> bytes:
    buffer = BytesIO()
    crop_of(image, item.box_xyxy_px).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()
