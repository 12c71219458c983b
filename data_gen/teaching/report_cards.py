"""What a card of the report shows: a question on its picture, and what each run wrote about it."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from data_gen.pages import Picture, picture_if_readable
from data_gen.records import Question
from data_gen.teaching.comparison import Outcome, iterate_traces
from data_gen.teaching.records import DRAFTS_FILE, VERIFIED_FILE, Draft, Verified, read_lines
from rewards.grading import TASKS
from rewards.trace_text import coordinates_in

KINDS = ("first", "second")


@dataclass(frozen=True)
class Writing:
    """What one run wrote about a question. verdict: reasons against it, none when it is kept.

    draft: the first draft where it reads differently, else empty. places: points and boxes in the trace, in pixels.
    """

    run: int
    reasoning: str
    answer: str = ""
    verdict: tuple[str, ...] = ()
    first_verdict: tuple[str, ...] = ()
    draft: str = ""
    corrected: bool = False
    attempts: int = 1

    @property
    def places(self) -> list[tuple[float, ...]]:
        """The points and boxes that it writes."""
        return coordinates_in(self.reasoning)


@dataclass(frozen=True)
class Card:
    """A question on its picture, with the writings of the runs that were asked it."""

    question: Question
    picture: Picture
    writings: tuple[Writing, ...]

    @property
    def boxes(self) -> list[tuple[str, str, tuple[float, float, float, float]]]:
        """Kind, name and true box in pixels of each named object."""
        return [(kind, item.name, item.bbox) for kind, item in zip(KINDS, self.question.objects, strict=False)]


@dataclass(frozen=True)
class Chosen:
    """Ids of the questions that are shown: of kept traces, and of dropped ones."""

    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A run folder, the folder of its images (None where it is not known), and questions it was asked, by id.

    Those of kept traces are in the folder; others have to be given, or cannot be shown.
    """

    folder: Path
    images: Path | None
    questions: Mapping[str, Question] = field(default_factory=dict)


def choose(outcomes: Sequence[Mapping[str, Outcome]], count: int, dropped: int, seed: int) -> Chosen:
    """Random questions of the first run, of those that all runs were asked where there are such.

    The draw depends on seed and id alone, so that reports on runs of the same questions show the same ones.
    """
    first = outcomes[0]
    shared = [name for name in first if all(name in other for other in outcomes)] or list(first)
    return Chosen(
        tuple(_drawn([name for name in shared if first[name].kept], count, seed)),
        tuple(_drawn([name for name in shared if not first[name].kept], dropped, seed)),
    )


def make_cards(sources: Sequence[Source], ids: Collection[str]) -> list[Card]:
    """The cards of some questions, task by task. Left out are those whose question no folder holds and nobody gave."""
    wanted = set(ids)
    questions: dict[str, Question] = {}
    writings: dict[str, list[Writing]] = {name: [] for name in ids}
    for place, source in enumerate(sources):
        questions |= {name: source.questions[name] for name in wanted & source.questions.keys()}
        for name, question, writing in _writings(source.folder, place, wanted):
            writings[name].append(writing)
            if question:
                questions[name] = question
    root = next((source.images for source in sources if source.images), None)
    shown = sorted((name for name in ids if name in questions), key=lambda name: TASKS.index(questions[name].task))
    pictures = _pictures([questions[name] for name in shown], root)
    return [Card(questions[name], pictures[questions[name].image], tuple(writings[name])) for name in shown]


def _drawn(names: Iterable[str], count: int, seed: int) -> list[str]:
    return heapq.nsmallest(count, names, key=lambda name: hashlib.sha256(f"{seed}-{name}".encode()).digest())


def _writings(folder: Path, run: int, ids: Collection[str]) -> Iterable[tuple[str, Question | None, Writing]]:
    """What a run wrote about some questions, one writing each: the kept one, or the first."""
    found: dict[str, tuple[Verified, Writing]] = {}
    path = folder / VERIFIED_FILE
    for item in read_lines(path, Verified) if path.is_file() else ():
        if item.id in ids and (item.id not in found or not item.verdict):
            found[item.id] = (item, _writing(item, run))
    path = folder / DRAFTS_FILE
    for draft in read_lines(path, Draft) if found and path.is_file() else ():
        held = found.get(draft.id)
        if held and held[0].sample == draft.sample and draft.reasoning != held[1].reasoning:
            found[draft.id] = (held[0], replace(held[1], draft=draft.reasoning))
    questions: dict[str, Question] = {}
    for trace in iterate_traces(folder):
        if (name := trace.question.id) in ids:
            questions[name] = trace.question
            if name not in found:
                yield name, trace.question, Writing(run, trace.reasoning, trace.question.answer_text)
    for name, (_, writing) in found.items():
        yield name, questions.get(name), writing


def _writing(item: Verified, run: int) -> Writing:
    return Writing(
        run, item.reasoning, item.answer, item.verdict, item.first_verdict, "", item.corrected, item.attempts
    )


def _pictures(questions: Sequence[Question], root: Path | None) -> dict[str, Picture]:
    """Each image once."""
    sizes = {question.image: question.image_size for question in questions}
    return {
        name: picture_if_readable(root / name, size, f"image{place}")
        if root
        else Picture(f"image{place}", *size, None, name)
        for place, (name, size) in enumerate(sizes.items())
    }
