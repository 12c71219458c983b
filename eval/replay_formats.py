"""Outputs that others stored: how each format is told from the content of its files, and read.

A question is named by its id where the file holds ids (a `doc` or a column `id`), else by its place: among the
questions of the task that the file's name holds, or among all, unit by unit, first then second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import msgspec

from data_gen.command_line import UsageError
from data_gen.records import RecordError, iterate_rows
from data_gen.templates import FILE_WORDS
from eval.runner import PREDICTIONS_FILE

OURS, PUBLISHED, EVALSCOPE, LMMS_EVAL, VLMEVALKIT = "ours", "published", "evalscope", "lmms-eval", "VLMEvalKit"
KNOWN_FORMATS = f"""known formats:
  {OURS:10}  JSON Lines with `id` and `output`: a predictions.jsonl or a run folder
  {PUBLISHED:10}  JSON lists of `vqa_idx`, `prompt`, `output`, a file a task: 00_yaw_vqas.json, 01_xy2d_vqas.json, ...
  {EVALSCOPE:10}  JSON Lines of its prediction cache, predictions/MODEL/surds_TASK.jsonl, with the samples' metadata
  {LMMS_EVAL:10}  JSON Lines of --log_samples, samples_TASK.jsonl: `doc_id` with `resps` or `filtered_resps`
  {VLMEVALKIT:10}  a .tsv or .xlsx table with the columns `index` and `prediction`"""
# Files of a folder that hold outputs; the first pattern that matches any decides.
_FOLDER_PATTERNS = (
    PREDICTIONS_FILE, "[0-9][0-9]_*_vqas.json", "*samples_*.jsonl", "*.jsonl", "predictions/*/*.jsonl", "*.tsv",
    "*.xlsx",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A question by its place, from 0, among those of a task, or of the whole file where `task` is None."""

    task: str | None
    index: int


@dataclass(frozen=True)
class StoredOutput:
    """One stored output: the id or the place of its question, the raw text, tokens (0: unknown), and where it is."""

    question: str | Place
    output: str
    tokens: int
    where: str


@dataclass(frozen=True)
class _Part:
    text: str = ""


@dataclass(frozen=True)
class _Message:
    content: str | tuple[_Part, ...]


@dataclass(frozen=True)
class _Choice:
    message: _Message


@dataclass(frozen=True)
class _Usage:
    output_tokens: int = 0


@dataclass(frozen=True)
class _ModelOutput:
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None


@dataclass(frozen=True)
class _SampleMetadata:
    pair_id: str
    variant_index: int


@dataclass(frozen=True)
class _CachedResult:
    """What is read of a line of evalscope's prediction cache."""

    model_output: _ModelOutput
    metadata: _SampleMetadata


def output_files(path: Path) -> list[Path]:
    """The files of outputs that a file or folder stands for. Raises UsageError when there are none or of two models."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"no predictions at {path}; --replay takes a file or a folder of outputs; {KNOWN_FORMATS}")
    for pattern in _FOLDER_PATTERNS:
        if files := sorted(path.glob(pattern)):
            folders = sorted({str(file.parent) for file in files})
            if len(folders) > 1:
                raise UsageError(f"{path} holds outputs of several models; give one of {', '.join(folders)}")
            return files
    raise UsageError(f"{path} holds no file of outputs; {KNOWN_FORMATS}")


def read_outputs(path: Path) -> tuple[str, list[StoredOutput]]:
    """The format of a file or folder of outputs, and the outputs.

    Raises UsageError, naming file and row, for a file of no known format, a broken row, or several formats.
    """
    outputs: list[StoredOutput] = []
    formats = {}
    for file in output_files(path):
        kind = format_of(file)
        formats[kind] = file.name
        outputs += _READERS[kind](file)
    if len(formats) > 1:
        raise UsageError(f"{path} mixes formats: " + ", ".join(f"{file} is {kind}" for kind, file in formats.items()))
    return next(iter(formats)), outputs


def format_of(path: Path) -> str:
    """The format of a file, told from its content. Raises UsageError when it is none of those known."""
    with path.open("rb") as file:
        head = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"PK") or (path.suffix == ".tsv" and not head.startswith((b"{", b"["))):
        return VLMEVALKIT
    if head.startswith(b"["):
        return PUBLISHED
    if not head:
        raise UsageError(f"{path} is empty")
    fields = set(_first_row(path))
    if {"id", "output"} <= fields:
        return OURS
    if {"index", "model_output"} <= fields:
        return EVALSCOPE
    if "doc_id" in fields and fields & {"resps", "filtered_resps"}:
        return LMMS_EVAL
    if "id" in fields or "output" in fields:
        raise UsageError(f"{path}, line 1: a prediction needs the texts `id` and `output`; {KNOWN_FORMATS}")
    raise UsageError(f"{path} is of no known format (its first row holds {', '.join(sorted(fields))}); {KNOWN_FORMATS}")


def task_named(name: str) -> str | None:
    """The task whose name, or published short name, is a word of a file's name; None where none or several are."""
    padded = f"_{Path(name).stem.lower().replace('-', '_')}_"
    found = [task for task, words in FILE_WORDS.items() if any(f"_{word}_" in padded for word in words)]
    return found[0] if len(found) == 1 else None


def _first_row(path: Path) -> dict[str, Any]:
    try:
        return next((row for _, row in iterate_rows(path)), {})
    except RecordError as error:
        raise UsageError(f"{path} is of no known format ({error}); {KNOWN_FORMATS}") from error


def _read_ours(path: Path) -> Iterator[StoredOutput]:
    for number, row in iterate_rows(path):
        if not (isinstance(row.get("id"), str) and isinstance(row.get("output"), str)):
            raise UsageError(f"{path}, line {number}: a prediction needs the texts `id` and `output`")
        yield StoredOutput(row["id"], row["output"], _count(row.get("tokens")), f"{path}, line {number}")


def _read_published(path: Path) -> Iterator[StoredOutput]:
    task = task_named(path.name)
    if task is None:
        words = ", ".join(words[0] for words in FILE_WORDS.values())
        raise UsageError(f"{path}: the name of a published file says its task, with one of {words} between `_`")
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise UsageError(f"{path} is no JSON in UTF-8: {error}") from error
    for number, row in enumerate(rows, 1):
        where = f"{path}, row {number}"
        index = row.get("vqa_idx") if isinstance(row, dict) else None
        if not (isinstance(index, int) and isinstance(row.get("output"), str)):
            raise UsageError(f"{where}: a published row needs the whole number `vqa_idx` and the text `output`")
        yield StoredOutput(Place(task, index), row["output"], 0, where)


def _read_evalscope(path: Path) -> Iterator[StoredOutput]:
    for number, row in iterate_rows(path):
        where = f"{path}, line {number}"
        try:
            cached = msgspec.convert(row, _CachedResult)
        except msgspec.ValidationError as error:
            raise UsageError(f"{where} is no prediction of evalscope's task surds: {error}") from error
        usage = cached.model_output.usage
        content = cached.model_output.choices[0].message.content if cached.model_output.choices else ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        name = f"{cached.metadata.pair_id.replace('xy2d-', 'pixel-')}-{cached.metadata.variant_index}"
        yield StoredOutput(name, text, usage.output_tokens if usage else 0, where)


def _read_lmms_eval(path: Path) -> Iterator[StoredOutput]:
    task = task_named(path.name)
    for number, row in iterate_rows(path):
        where = f"{path}, line {number}"
        texts = list(_texts(row["resps"] if "resps" in row else row.get("filtered_resps")))
        if len(texts) != 1:
            raise UsageError(f"{where}: one response was expected in `resps` or `filtered_resps`, got {len(texts)}")
        doc = row.get("doc")
        name = doc.get("id") if isinstance(doc, dict) else None
        yield StoredOutput(_question(name, row.get("doc_id"), task, where), texts[0], 0, where)


def _read_vlmevalkit(path: Path) -> Iterator[StoredOutput]:
    task = task_named(path.name)
    for number, row in enumerate(_table(path), 2):
        where = f"{path}, row {number}"
        if not {"index", "prediction"} <= set(row):
            raise UsageError(f"{path} needs the columns index and prediction, it has {', '.join(row)}; {KNOWN_FORMATS}")
        yield StoredOutput(_question(row.get("id"), row["index"], task, where), row["prediction"], 0, where)


def _table(path: Path) -> list[dict[str, str]]:
    import pandas

    options: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    try:
        if path.suffix == ".tsv":
            frame = pandas.read_csv(path, sep="\t", **options)
        else:
            frame = pandas.read_excel(path, engine="openpyxl", **options)
    except ImportError as error:
        raise UsageError(f"{path}: Excel files are read by openpyxl: pip install openpyxl, or save a .tsv") from error
    except (ValueError, KeyError, BadZipFile) as error:  # of both parsers
        raise UsageError(f"{path} is no table: {error}") from error
    return frame.to_dict("records")


def _question(name: object, place: object, task: str | None, where: str) -> str | Place:
    """The id of a row's question, else its place, which may be written as text."""
    if isinstance(name, str) and name:
        return name
    text = str(place).removesuffix(".0")
    if text.isdecimal():
        return Place(task, int(text))
    if isinstance(place, str) and place:
        return place
    raise UsageError(f"{where}: neither an id nor a whole number says which question this is, got {place!r}")


def _texts(value: Any) -> Iterator[str]:
    """All texts in nested lists."""
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


_READERS: dict[str, Callable[[Path], Iterator[StoredOutput]]] = {
    OURS: _read_ours,
    PUBLISHED: _read_published,
    EVALSCOPE: _read_evalscope,
    LMMS_EVAL: _read_lmms_eval,
    VLMEVALKIT: _read_vlmevalkit,
}
