"""Engines: requests in, replies out. A language model, a guesser, or stored outputs; they know nothing of grading."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from data_gen.command_line import UsageError
from data_gen.images import open_rgb
from data_gen.records import iterate_rows
from rewards.boxes import Size

if TYPE_CHECKING:
    from PIL.Image import Image

    from training.model import LoadedModel

# Batches are cut out of so many batches' worth of neighbouring requests, sorted by length; their images stay decoded.
WINDOW_BATCHES = 8


@dataclass(frozen=True)
class Request:
    """One question to a model: the text after the images, and the image files with their true sizes in pixels.

    sizes: (width, height) of each image. options: what may be answered; empty when a point is asked for, which then
    lies in a frame of `frame_size`.
    """

    id: str
    prompt: str
    images: tuple[Path, ...]
    sizes: tuple[Size, ...]
    options: tuple[str, ...] = ()
    frame_size: Size = (1, 1)


@dataclass(frozen=True)
class Reply:
    """The raw output to one request and the number of tokens generated for it (0 where unknown)."""

    id: str
    output: str
    tokens: int = 0


class Engine(Protocol):
    """Answers requests, in any order it likes, and skips those in `done`."""

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """One reply for every request whose id is not in `done`."""
        ...


@dataclass(frozen=True)
class RandomEngine:
    """A guesser: an option or a point of the frame, uniformly, the same for a question whatever else is asked."""

    seed: int = 0

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """A guess in answer tags for every request."""
        for request in requests:
            if request.id not in done:
                yield Reply(request.id, f"<answer>{self._guess(request)}</answer>")

    def _guess(self, request: Request) -> str:
        rng = random.Random(f"{self.seed}-{request.id}")
        if request.options:
            return rng.choice(request.options)
        width, height = request.frame_size
        return f"[{rng.randrange(width)}, {rng.randrange(height)}]"


@dataclass(frozen=True)
class ReplayEngine:
    """Stored outputs, by question id."""

    stored: Mapping[str, Reply]

    @classmethod
    def from_file(cls, path: Path) -> ReplayEngine:
        """Outputs of a `predictions.jsonl`. Raises RecordError on a bad line, UsageError on missing fields."""
        stored = {}
        for number, row in iterate_rows(path):
            if not (isinstance(row.get("id"), str) and isinstance(row.get("output"), str)):
                raise UsageError(f"{path}, line {number}: a prediction needs the texts `id` and `output`")
            if row["id"] in stored:
                raise UsageError(f"{path}, line {number}: the id {row['id']!r} was there before")
            tokens = row.get("tokens")
            stored[row["id"]] = Reply(row["id"], row["output"], tokens if isinstance(tokens, int) else 0)
        return cls(stored)

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """The stored output of every request; an empty one where there is none, which then counts as wrong."""
        for request in requests:
            if request.id not in done:
                yield self.stored.get(request.id, Reply(request.id, ""))


@dataclass(frozen=True)
class HfEngine:
    """Greedy decoding with transformers, in batches of similar length, each image of a window decoded once."""

    loaded: LoadedModel
    max_new_tokens: int = 512
    batch_size: int = 8

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """Replies batch by batch. Raises RecordError for an image that cannot be read or has another size."""
        for window in windows(requests, self.batch_size):
            # Batches are cut before the finished requests are left out, so that a resumed run forms the same ones.
            batches = [
                [request for request in window[start : start + self.batch_size] if request.id not in done]
                for start in range(0, len(window), self.batch_size)
            ]
            asked = {
                path: size
                for batch in batches
                for request in batch
                for path, size in zip(request.images, request.sizes, strict=True)
            }
            opened = {path: open_rgb(path, size) for path, size in asked.items()}
            for batch in filter(None, batches):
                yield from self._generate(batch, [[opened[path] for path in request.images] for request in batch])

    def _generate(self, batch: Sequence[Request], images: Sequence[Sequence[Image]]) -> list[Reply]:
        import torch

        model, processor = self.loaded.model, self.loaded.processor
        inputs = processor(
            text=[_chat(processor, request.prompt, shown) for request, shown in zip(batch, images, strict=True)],
            images=[list(shown) for shown in images],
            padding=True,
            padding_side="left",
            return_tensors="pt",
        ).to(model.device, dtype=model.dtype)
        with torch.inference_mode():
            sequences = model.generate(  # type: ignore[operator]
                **inputs,
                max_new_tokens=self.max_new_tokens,
                do_sample=False,
                # A checkpoint's own sampling settings would make greedy decoding warn, or no longer greedy.
                temperature=None,
                top_p=None,
                top_k=None,
                repetition_penalty=1.0,
            )
        new = sequences[:, inputs["input_ids"].shape[1] :].tolist()
        ends = end_tokens(model)
        return [
            Reply(request.id, *_decode(processor, cut_at_end(ids, ends)))
            for request, ids in zip(batch, new, strict=True)
        ]


def windows(requests: Sequence[Request], batch_size: int) -> Iterator[list[Request]]:
    """Requests ordered by image, in windows of some batches, each window sorted by prompt length."""
    place: dict[tuple[Path, ...], int] = {}
    for request in requests:
        place.setdefault(request.images, len(place))
    by_image = sorted(requests, key=lambda request: place[request.images])
    size = batch_size * WINDOW_BATCHES
    for start in range(0, len(by_image), size):
        yield sorted(by_image[start : start + size], key=lambda request: len(request.prompt))


def cut_at_end(ids: Sequence[int], ends: Collection[int]) -> list[int]:
    """Generated ids up to the first end token, without it."""
    return list(ids[: next((place for place, token in enumerate(ids) if token in ends), len(ids))])


def end_tokens(model: Any) -> set[int]:
    """The token ids at which a model stops."""
    ends = model.generation_config.eos_token_id
    return set(ends) if isinstance(ends, list) else {ends}


def _chat(processor: Any, prompt: str, images: Sequence[Image]) -> str:
    content = [*({"type": "image", "image": image} for image in images), {"type": "text", "text": prompt}]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )


def _decode(processor: Any, ids: list[int]) -> tuple[str, int]:
    """The text with special tokens kept, for the parser to judge, and its number of tokens."""
    return processor.tokenizer.decode(ids, skip_special_tokens=False), len(ids)
