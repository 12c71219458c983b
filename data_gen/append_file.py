"""JSON Lines that grow line by line and outlive a kill: each record is in the file before the next one is awaited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, TypeVar

import msgspec

from data_gen.records import RecordError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kind = TypeVar("Kind")
_CHUNK_BYTES = 1 << 16


class AppendFile:
    """A file of records, dataclasses, that is added to; a context manager. A last line that was cut is removed.

    Safe to share between threads.
    """

    def __init__(self, path: Path) -> None:
        cut_unfinished_line(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._lock = Lock()

    def __enter__(self) -> AppendFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def append(self, records: Iterable[DataclassInstance]) -> None:
        """Write some records at once, a line each."""
        lines = [json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records]
        with self._lock:
            self._file.write("".join(lines).encode())
            self._file.flush()


def cut_unfinished_line(path: Path) -> None:
    """Remove what follows the last line end, which is what a kill leaves of a line. Nothing to do without a file."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        size = end = file.seek(0, 2)
        while end:
            start = max(0, end - _CHUNK_BYTES)
            file.seek(start)
            if (found := file.read(end - start).rfind(b"\n")) >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)


def records_with_offsets(path: Path, kind: type[Kind]) -> Iterator[tuple[int, Kind]]:
    """(offset in bytes, record) of every line; none without a file. Raises RecordError naming the bad line."""
    if not path.is_file():
        return
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield offset, msgspec.json.decode(line, type=kind)
            except msgspec.DecodeError as error:
                raise RecordError(
                    f"{path}, line {number}: {error}; repair it, or start anew with --overwrite"
                ) from error
            offset += len(line)


def record_at(file: IO[bytes], offset: int, kind: type[Kind]) -> Kind:
    """The record of the line that begins at `offset` of an open file."""
    file.seek(offset)
    return msgspec.json.decode(file.readline(), type=kind)
