"""A teacher for tests: answers the prompts of every stage from the truth, or as a test wants it to."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chat_server import Answer, ChatServer, serve, text_of

from data_gen.build_cot import main
from data_gen.chat_images import file_uri
from data_gen.images import image_root
from data_gen.oracle import oracle_trace
from data_gen.records import Question, read_questions
from data_gen.teaching import prompts
from data_gen.teaching.coordinates import answer_as_shown, as_shown

_STARTS = {
    stage: template.split("{")[0]
    for stage, template in (
        ("reason", prompts.REASON), ("rules", prompts.RULES), ("write", prompts.WRITE), ("judge", prompts.JUDGE)
    )
}  # fmt: skip
_AGAIN = prompts.AGAIN.split("{")[0].strip()


@dataclass(frozen=True)
class Asked:
    """A request: its stage (`again` for a trace that is written anew), its question if it shows one, text and all."""

    stage: str
    text: str
    request: dict[str, Any]
    question: Question | None = None

    @property
    def seed(self) -> int:
        """The seed that it is to be answered with."""
        return int(self.request["seed"])

    @property
    def key(self) -> str:
        """What tells it from other requests; the second word is the question's id."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:12]
        return f"{self.stage} {self.question.id if self.question else digest} {self.seed} {digest}"


Override = Callable[[Asked], Answer | None]


@dataclass
class TeacherStub:
    """`override` may answer a request in its own way; None leaves it to the truth."""

    data: Path
    override: Override = lambda asked: None
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        root = image_root(self.data)
        questions = read_questions(self.data)
        shown = {question.image: file_uri(root / question.image) for question in questions}
        self._by_look = {(shown[question.image], question.question): question for question in questions}

    def answer(self, request: dict[str, Any]) -> Answer:
        """What the server says to a request."""
        asked = self._read(request)
        if asked is None:
            return "Hello."
        self.asked.append(asked)
        said = self.override(asked)
        return truthful(asked) if said is None else said

    def counts(self, *stages: str) -> Counter[str]:
        """How often each request of some stages, or of all, was made."""
        return Counter(asked.key for asked in self.asked if not stages or asked.stage in stages)

    def _read(self, request: dict[str, Any]) -> Asked | None:
        text, images = text_of(request), [part for part in request["messages"][-1]["content"] if "image_url" in part]
        stage = next((name for name, start in _STARTS.items() if text.startswith(start)), None)
        if stage is None:
            return None
        if stage == "write" and _AGAIN in text:
            stage = "again"
        asked = text.partition("Question: ")[2].partition("\n")[0]
        question = self._by_look[images[0]["image_url"]["url"], asked] if images else None
        return Asked(stage, text, request, question)


def truthful(asked: Asked) -> str:
    """The reply of a teacher who knows everything."""
    if asked.question is None:
        examples = asked.text.count(prompts.RIGHT_EXAMPLE)
        return f"1. Look where the objects touch the ground ({examples}).\n2. **Compare** their sizes.\n"
    if asked.stage == "judge":
        return "FINE"
    if asked.stage == "reason":
        return f"What I see: {trace_of(asked.question)}\n<answer>{shown_answer(asked.question)}</answer>"
    return written(asked.question)


def written(question: Question, reasoning: str | None = None, answer: str | None = None) -> str:
    """A writer's reply."""
    think = trace_of(question) if reasoning is None else reasoning
    return f"<think>{think}</think>\n<answer>{answer or shown_answer(question)}</answer>"


def trace_of(question: Question) -> str:
    """A good trace, in the teachers' coordinates."""
    return as_shown(oracle_trace(question).reasoning, question.image_size)


def shown_answer(question: Question) -> str:
    """The true answer in the teachers' coordinates."""
    return answer_as_shown(question.answer_text, question.image_size)


def wrong_answer(question: Question) -> str:
    """Another answer, in the teachers' coordinates."""
    if not question.options:
        return "[1, 1]"
    return random.Random(0).choice([option for option in question.options if option != question.answer])


@contextmanager
def teaching(data: Path, override: Override = lambda asked: None) -> Iterator[tuple[TeacherStub, ChatServer]]:
    """A stub and the server that speaks for it."""
    stub = TeacherStub(data, override)
    with serve(stub.answer) as server:
        yield stub, server


def command(data: Path, out: Path, url: str, *options: str) -> list[str]:
    """The words of a command line with the same server as reasoner and writer."""
    servers = ["--reasoner", url, "--reasoner-model", "thinker", "--writer", url, "--writer-model", "scribe"]
    return ["--data", str(data), "--out", str(out), *servers, "--k", "2", "--concurrency", "8", *options]


def build(data: Path, out: Path, url: str, *options: str) -> int:
    """Run the command in this process."""
    return main(command(data, out, url, *options))
