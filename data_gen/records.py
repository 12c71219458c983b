"""The records that link the stages: questions and reasoning traces as JSON Lines; how any record file is read.

Files hold original pixels only. Unknown fields are kept; a bad line raises RecordError with file, line and reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rewards.boxes import LARGEST_ASPECT
from rewards.grading import MIRRORED_TASKS, PAIR_TASKS, TASKS, Truth
from rewards.normal_form import normalise
from rewards.response import holds_markup, numbers_in

Pixels4 = tuple[float, float, float, float]
Pixels2 = tuple[float, float]
Metres3 = tuple[float, float, float]
Record = TypeVar("Record")


class RecordError(ValueError):
    """A line of a record file that cannot be used."""


@dataclass(frozen=True)
class QuestionObject:
    """An object that a question names (name without article), with its true box, centre and heading."""

    name: str
    bbox: Pixels4
    pixel: Pixels2
    xyz_m: Metres3
    category: str = ""
    yaw_rad: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """One question; a line of `questions.jsonl`. Both questions of a mirrored pair share `pair_id`.

    prompt: the whole text that follows the image, where it comes from outside templates; else it is made when needed.
    """

    id: str
    pair_id: str | None
    variant: int
    task: str
    image: str
    width: int
    height: int
    question: str
    options: tuple[str, ...]
    answer: str | tuple[int, int]
    objects: tuple[QuestionObject, ...]
    scene: str = ""
    camera: str = ""
    split: str = ""
    source: str = "real"
    depth_ranges: str = "official"
    prompt: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := _question_problem(self):
            raise ValueError(problem)

    @property
    def image_size(self) -> tuple[int, int]:
        """Width and height of the image file in pixels."""
        return self.width, self.height

    @property
    def unit(self) -> str:
        """Name of the unit this question is scored in: its pair, or itself."""
        return self.pair_id or self.id.rsplit("-", 1)[0]

    @property
    def truth(self) -> Truth:
        """What grading needs."""
        return Truth(self.task, self.answer_text, self.options, self.objects[0].bbox, self.image_size)

    @property
    def answer_text(self) -> str:
        """The answer as text, in original pixels for a point."""
        return self.answer if isinstance(self.answer, str) else f"[{self.answer[0]}, {self.answer[1]}]"


_QUESTION_FIELDS = tuple(item.name for item in fields(Question))
_OBJECT_FIELDS = tuple(item.name for item in fields(QuestionObject))


@dataclass(frozen=True)
class Trace:
    """A question with a reasoning trace; a line of `cot.jsonl`. `rules` is the sha256 of its rules."""

    question: Question
    reasoning: str
    teacher: str
    rules: str = ""
    attempts: int = 1
    verdict: tuple[str, ...] = ()


def _question_problem(question: Question) -> str | None:
    """Why a question cannot be asked or graded, or None."""
    task, named = question.task, len(question.objects)
    if task not in TASKS:
        return f"unknown task {task!r}; known: {', '.join(TASKS)}"
    if named != (2 if task in PAIR_TASKS else 1):
        return f"a {task} question is about {'two objects' if task in PAIR_TASKS else 'one object'}, got {named}"
    if (task in MIRRORED_TASKS) != (question.pair_id is not None):
        return f"a {task} question {'needs a' if question.pair_id is None else 'has no'} pair_id"
    if question.variant not in ((0, 1) if question.pair_id else (0,)):
        return f"variant {question.variant} of a {task} question"
    return _picture_problem(question) or _wording_problem(question) or _answer_problem(question)


def _picture_problem(question: Question) -> str | None:
    width, height = question.image_size
    if min(width, height) < 1 or max(width, height) > LARGEST_ASPECT * min(width, height):
        return f"an image of {width}x{height} pixels"
    for item in question.objects:
        x1, y1, x2, y2 = item.bbox
        if not (all(map(math.isfinite, item.bbox)) and x1 < x2 and y1 < y2):
            return f"the box of {item.name!r} is no [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
        if x2 <= 0 or y2 <= 0 or x1 >= width or y1 >= height:
            return f"the box of {item.name!r} lies outside the {width}x{height} image"
    return None


def _wording_problem(question: Question) -> str | None:
    """Empty texts, and texts that would be read as tags or tokens of their own."""
    names = [item.name for item in question.objects]
    texts = [("question", question.question), *(("option", text) for text in question.options)]
    for kind, text in [*texts, *(("name", name) for name in names)]:
        if not _is_wording(text):
            what = kind if kind == "question" else f"{kind} {text!r}"
            return f"the {what} is empty, has several lines, or holds tags or special tokens"
    if len(set(map(normalise, names))) < len(names):
        return f"its two objects have the same name, {question.objects[0].name!r}"
    return None


@lru_cache(maxsize=1 << 14)  # options and names come again with every question
def _is_wording(text: str) -> bool:
    return bool(text.strip()) and not holds_markup(text) and len(text.splitlines()) == 1


def _answer_problem(question: Question) -> str | None:
    if question.task == "pixel":
        if not isinstance(question.answer, tuple):
            return f"a pixel answer is [x, y], got {question.answer!r}"
        inside = all(0 <= value <= side for value, side in zip(question.answer, question.image_size, strict=True))
        return None if inside else f"the answer {list(question.answer)} lies outside the image"
    if question.answer not in question.options:
        return f"answer {question.answer!r} is none of the options {list(question.options)}"
    if len({normalise(option) for option in question.options}) < len(question.options):
        return f"two of the options {list(question.options)} say the same"
    if question.task == "depth" and any(len(numbers_in(option)) != 2 for option in question.options):
        return f"a depth option is a range of two numbers, got {list(question.options)}"
    return None


def question_to_row(question: Question) -> dict[str, Any]:
    """A question as a flat JSON object."""
    # Not dataclasses.asdict, which copies every number: thousands of questions are written and compared per run.
    row = flat_row({name: getattr(question, name) for name in _QUESTION_FIELDS})
    row["objects"] = [flat_row({name: getattr(item, name) for name in _OBJECT_FIELDS}) for item in question.objects]
    if not question.prompt:
        del row["prompt"]
    return row


def question_from_row(row: dict[str, Any]) -> Question:
    """A question from a JSON object; unknown fields go to `extra`."""
    if "paper_task" in row:
        raise ValueError("this is a question of DriveMLLM, whose tasks and scores are its own")
    if "choices" in row:
        raise ValueError("this is an item of CyclingVQA, whose tasks and scores are its own")
    nested = nested_row(row, Question)
    if isinstance(objects := nested.get("objects"), list):
        nested["objects"] = [nested_row(item, QuestionObject) if isinstance(item, dict) else item for item in objects]
    return msgspec.convert(nested, Question)


def flat_row(row: dict[str, Any]) -> dict[str, Any]:
    """A record as it stands in a file: the unknown fields beside the known ones."""
    return {**{name: value for name, value in row.items() if name != "extra"}, **row["extra"]}


def nested_row(row: dict[str, Any], kind: type) -> dict[str, Any]:
    """The other way round: the fields that `kind` does not know under `extra`."""
    known = _known_fields(kind)
    if row.keys() <= known:
        return dict(row)
    return {
        **{name: value for name, value in row.items() if name in known},
        "extra": {name: value for name, value in row.items() if name not in known},
    }


@cache
def _known_fields(kind: type) -> frozenset[str]:
    return frozenset(item.name for item in fields(kind)) - {"extra"}


_TRACE_FIELDS = ("reasoning", "teacher", "rules", "attempts", "verdict")


def trace_to_row(trace: Trace) -> dict[str, Any]:
    """A trace as its question's fields and its own."""
    return {**question_to_row(trace.question), **{name: getattr(trace, name) for name in _TRACE_FIELDS}}


def trace_from_row(row: dict[str, Any]) -> Trace:
    """A trace from a flat JSON object."""
    question = question_from_row({k: v for k, v in row.items() if k not in _TRACE_FIELDS})
    own = {name: row[name] for name in _TRACE_FIELDS if name in row}
    trace = replace(msgspec.convert({**own, "question": {**question_to_row(question)}}, Trace), question=question)
    if not trace.reasoning.strip() or holds_markup(trace.reasoning):
        raise ValueError("the reasoning is empty or holds tags or special tokens")
    if trace.verdict:
        raise ValueError(f"the trace was rejected: {', '.join(trace.verdict)}")
    return trace


def read_questions(path: Path) -> list[Question]:
    """All questions of a JSON Lines file, in file order.

    Raises RecordError on a bad line, a repeated id, a mirrored pair of which a half is missing, or no line.
    """
    if not path.is_file():
        raise RecordError(f"no file at {path}; build questions with: python data_gen/build_surds.py --help")
    questions = _distinct(path, question_from_row, lambda question: question)
    sides: dict[str, set[int]] = {}
    for question in questions:
        sides.setdefault(question.unit, set()).add(question.variant)
    for question in questions:
        if question.pair_id and sides[question.unit] != {0, 1}:
            raise RecordError(f"{path}: question {question.id!r} lacks the other half of its mirrored pair")
    if not questions:
        raise RecordError(f"{path} holds no question; build some with: python data_gen/build_surds.py --help")
    return questions


def read_traces(path: Path) -> list[Trace]:
    """All traces of a JSON Lines file. Raises RecordError on a bad line, a repeated id, or when there is none."""
    traces = _distinct(path, trace_from_row, lambda trace: trace.question)
    if not traces:
        raise RecordError(f"{path} holds no trace; write some with: python data_gen/build_cot.py --help")
    return traces


def _distinct(
    path: Path, convert: Callable[[dict[str, Any]], Record], question_of: Callable[[Record], Question]
) -> list[Record]:
    line_of: dict[str, int] = {}
    records = []
    for number, record in read_records(path, convert):
        name = question_of(record).id
        if name in line_of:
            raise RecordError(f"{path}, line {number}: repeats the id {name!r} of line {line_of[name]}")
        line_of[name] = number
        records.append(record)
    return records


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write JSON Lines under a temporary name, then move it into place. Returns the number of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    count = 0
    with partial.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    partial.replace(path)
    return count


def iterate_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line that is not blank. Raises RecordError naming file, line and reason."""
    if not path.is_file():
        raise RecordError(f"no file at {path}")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                row = _decoded(text) if text.strip() else None
            except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are the former
                raise RecordError(f"{path}, line {number}: no JSON in UTF-8: {error}") from error
            if row is None and not text.strip():
                continue
            if not isinstance(row, dict):
                raise RecordError(f"{path}, line {number}: an object was expected, got {type(row).__name__}")
            yield number, row


def _decoded(text: str) -> Any:
    """The value of a JSON text; what the fast decoder refuses (NaN) and what is wrong are left to Python's own."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def read_records(path: Path, convert: Callable[[dict[str, Any]], Record]) -> Iterator[tuple[int, Record]]:
    """(line number, record) of every line that is not blank. Raises RecordError naming file, line and reason."""
    for number, row in iterate_rows(path):
        try:
            yield number, convert(row)
        except KeyError as error:
            raise RecordError(f"{path}, line {number}: the field {error} is missing") from error
        except ValueError as error:  # msgspec.ValidationError is one
            raise RecordError(f"{path}, line {number}: {error}") from error
