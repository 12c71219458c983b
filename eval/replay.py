"""Stored outputs scored again: ours of an earlier run, or those of another harness, joined to the questions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from data_gen.command_line import UsageError, read_options
from data_gen.floors import units_of
from data_gen.records import Question
from eval.engines import Reply, Request
from eval.replay_formats import (
    EVALSCOPE,
    LMMS_EVAL,
    OURS,
    PUBLISHED,
    VLMEVALKIT,
    Place,
    StoredOutput,
    output_files,
    read_outputs,
)
from eval.runner import CONFIG_FILE, RUN_FILE, RunFacts, digest, file_digest, read_facts

# evalscope asks in the official wording, as the published outputs were asked.
_PROMPTS = {
    PUBLISHED: "official (published outputs)",
    EVALSCOPE: "official (evalscope outputs)",
    LMMS_EVAL: "unknown (lmms-eval outputs)",
    VLMEVALKIT: "unknown (VLMEvalKit outputs)",
}


@dataclass(frozen=True)
class ReplayEngine:
    """Stored outputs by question id; `placed` holds those that only tell the place of their question.

    prompts: whose wording they answer, as in RunFacts; asked: which questions, as in the identity of a run; both empty
    where nothing tells it. letters: options may be answered by their letters, which only VLMEvalKit asks for.
    """

    stored: Mapping[str, Reply]
    placed: Mapping[Place, StoredOutput] = field(default_factory=dict)
    prompts: str = ""
    asked: str = ""
    letters: bool = False

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """The stored output of every request; an empty one where there is none, which then counts as wrong."""
        for request in requests:
            if request.id not in done:
                yield self.stored.get(request.id, Reply(request.id, ""))

    def matched(self, questions: Sequence[Question]) -> ReplayEngine:
        """The same with all outputs under the ids of their questions. questions: all those of the file.

        Raises UsageError for a place that no question has, and for a question that is answered twice.
        """
        stored = dict(self.stored)
        ids = {task: _ids_in_order(questions, task) for task in {place.task for place in self.placed}}
        for place, item in self.placed.items():
            known = ids[place.task]
            if not 0 <= place.index < len(known):
                of = f"of the task {place.task} " if place.task else ""
                raise UsageError(f"{item.where}: there is no question {place.index}; the file has {len(known)} {of}"
                                 "questions, counted from 0")  # fmt: skip
            name = known[place.index]
            if name in stored:
                raise UsageError(f"{item.where}: the question {name!r} was answered before")
            stored[name] = Reply(name, item.output, item.tokens)
        if self.letters:
            from eval.plugins.vlmevalkit import in_our_form

            by_id = {question.id: question for question in questions}
            stored = {
                name: replace(reply, output=in_our_form(reply.output, by_id[name])) if name in by_id else reply
                for name, reply in stored.items()
            }
        return replace(self, stored=stored, placed={})


@dataclass(frozen=True)
class Replayed:
    """Stored outputs, their format, what tells them from others, and the facts of their run if it is one of ours."""

    engine: ReplayEngine
    format: str
    digest: str
    facts: RunFacts | None

    @property
    def style(self) -> str | None:
        """The prompt style that the outputs were asked for; None where nothing tells it."""
        if self.facts:
            return self.facts.prompt_style
        return None if self.format == OURS else "reasoning"


def open_replayed(path: Path) -> Replayed:
    """The outputs of a file or folder. Raises UsageError and RecordError, naming file and row."""
    files = output_files(path)
    kind, outputs = read_outputs(path)
    stored: dict[str, Reply] = {}
    placed: dict[Place, StoredOutput] = {}
    for item in outputs:
        if item.question in stored or item.question in placed:
            raise UsageError(f"{item.where}: {_said(item.question)} was there before")
        if isinstance(item.question, str):
            stored[item.question] = Reply(item.question, item.output, item.tokens)
        else:
            placed[item.question] = item
    whole = file_digest(files[0]) if len(files) == 1 else digest(" ".join(f"{f.name} {file_digest(f)}" for f in files))
    facts = _facts(files[0])
    prompts = facts.prompts if facts else _PROMPTS.get(kind, "")
    asked = facts.identity.get("questions", "") if facts else ""
    return Replayed(ReplayEngine(stored, placed, prompts, asked, kind == VLMEVALKIT), kind, whole, facts)


def limit_of_run(path: Path) -> int | None:
    """The `--limit` of the run that a folder or predictions file belongs to; None where there is none."""
    config = (path if path.is_dir() else path.parent) / CONFIG_FILE
    limit = read_options(config).get("limit") if config.is_file() else None
    return limit if isinstance(limit, int) else None


def _said(question: str | Place) -> str:
    if isinstance(question, str):
        return f"the id {question!r}"
    return f"the question {question.index} of {question.task or 'the file'}"


def _facts(path: Path) -> RunFacts | None:
    return read_facts(path.parent) if (path.parent / RUN_FILE).is_file() else None


def _ids_in_order(questions: Sequence[Question], task: str | None) -> list[str]:
    """Ids unit by unit, the first question of a unit before the second, units as they come in the file."""
    asked = [question for question in questions if task in (None, question.task)]
    return [question.id for unit in units_of(asked).values() for question in unit]
