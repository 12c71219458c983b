"""How answers are decoded: greedily, or drawn at a temperature, several for every question, each with its own seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eval.engines import Request


@dataclass(frozen=True)
class Decoding:
    """temperature: 0 is greedy, else tokens are drawn from all that the model holds possible. samples: a question."""

    temperature: float = 0.0
    samples: int = 1

    def __str__(self) -> str:
        if not self.temperature:
            return "greedy"
        return f"{self.samples} sample{'s' if self.samples > 1 else ''} at temperature {self.temperature:g}"


def sampled(requests: Sequence[Request], samples: int) -> list[Request]:
    """Every request so many times, as neighbours under ids of their own."""
    return [replace(request, id=sample_id(request.id, number)) for request in requests for number in range(samples)]


def sample_id(question_id: str, sample: int) -> str:
    """The id of the request for one sample, counted from 0; of the first it is that of the question."""
    return f"{question_id} #{sample}" if sample else question_id


def draw_seed(seed: int, request_id: str) -> int:
    """The seed of the draws for one request, 31 bits; the same whatever else is asked, and whatever was before."""
    return int.from_bytes(hashlib.sha256(f"{seed} {request_id}".encode()).digest()[:4]) >> 1
