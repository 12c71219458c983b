"""Engines: requests in, replies out. A language model, a guesser, or stored outputs; they know nothing of grading."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from data_gen.images import UnreadableImageError, check_shape, open_rgb
from rewards.boxes import Size

if TYPE_CHECKING:
    from PIL.Image import Image

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


def mean_tokens(counts: Iterable[int]) -> float | None:
    """The mean of the token counts that are known, those above 0; None where none is."""
    known = [count for count in counts if count > 0]
    return fmean(known) if known else None


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
class SkippingEngine:
    """An engine that is not asked about images that are not there or cannot be read; such questions stay unanswered."""

    engine: Engine

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """An empty reply for every question about such an image, and those of the engine.

        Every image is decoded once beforehand, so that its engine meets none. Raises RecordError for an image of
        another size: then files and questions do not belong together.
        """
        left = [request for request in requests if request.id not in done]
        sizes = {path: size for request in left for path, size in zip(request.images, request.sizes, strict=True)}
        reasons = {path: reason for path, size in sizes.items() if (reason := _why_not(path, size))}
        skipped = [request.id for request in left if not reasons.keys().isdisjoint(request.images)]
        if skipped:
            first = next(iter(reasons.values()))
            print(f"{len(reasons)} of {len(sizes)} images cannot be shown; the {len(skipped)} questions about them "
                  f"count as unanswered. The first: {first}", file=sys.stderr)  # fmt: skip
        yield from (Reply(name, "") for name in skipped)
        yield from self.engine.replies(requests, {*done, *skipped})


def _why_not(path: Path, size: Size) -> str:
    """Why an image cannot be shown; empty when it can."""
    if not path.is_file():
        return f"no image {path}"
    try:
        open_shown(path, size)
    except UnreadableImageError as error:
        return str(error)
    return ""


def open_shown(path: Path, size: Size) -> Image:
    """An image as RGB for a processor. Raises RecordError also for one that is too long for its width."""
    check_shape(path, size)
    return open_rgb(path, size)


def by_image(requests: Sequence[Request]) -> list[Request]:
    """Requests with the same images as neighbours, in the order in which these come first."""
    place: dict[tuple[Path, ...], int] = {}
    for request in requests:
        place.setdefault(request.images, len(place))
    return sorted(requests, key=lambda request: place[request.images])


def windows(requests: Sequence[Request], batch_size: int) -> Iterator[list[Request]]:
    """Requests ordered by image, in windows of some batches, each window sorted by prompt length."""
    ordered, size = by_image(requests), batch_size * WINDOW_BATCHES
    for start in range(0, len(ordered), size):
        yield sorted(ordered[start : start + size], key=lambda request: len(request.prompt))
