"""The JSON tables of a nuScenes-format folder, decoded with types: only those that the builder needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

Row = TypeVar("Row", bound="TableRow")

BLOCK_BYTES = 1 << 24
_ROW_TOKEN = re.compile(rb'"token"\s*:\s*"([^"]*)"')


class WorldError(ValueError):
    """A nuScenes-format folder that cannot be used as it is."""


class TableRow(msgspec.Struct, frozen=True, gc=False):
    """A row of any table; fields that are not named here are skipped while decoding."""


class Sensor(TableRow, frozen=True, gc=False):
    """sensor.json: what is mounted, by channel name."""

    token: str
    channel: str


class CalibratedSensor(TableRow, frozen=True, gc=False):
    """calibrated_sensor.json: where a sensor sits on the vehicle (metres, (w, x, y, z)) and a camera's 3x3 matrix."""

    token: str
    sensor_token: str
    translation: tuple[float, float, float]
    rotation: tuple[float, float, float, float]
    camera_intrinsic: list[list[float]]


class EgoPose(TableRow, frozen=True, gc=False):
    """ego_pose.json: where the vehicle is in the global frame at one moment."""

    token: str
    translation: tuple[float, float, float]
    rotation: tuple[float, float, float, float]


class Scene(TableRow, frozen=True, gc=False):
    """scene.json: a drive of about 20 seconds."""

    token: str
    name: str


class Sample(TableRow, frozen=True, gc=False):
    """sample.json: an annotated key frame; timestamps in microseconds."""

    token: str
    timestamp: int
    scene_token: str


class SampleData(TableRow, frozen=True, gc=False):
    """sample_data.json: one file of one sensor; width and height are 0 for lidar and radar."""

    token: str
    sample_token: str
    ego_pose_token: str
    calibrated_sensor_token: str
    is_key_frame: bool
    filename: str
    width: int = 0
    height: int = 0


class Category(TableRow, frozen=True, gc=False):
    """category.json; `index` is the lidarseg label and only there once the lidarseg part was unpacked."""

    token: str
    name: str
    index: int | None = None


class Instance(TableRow, frozen=True, gc=False):
    """instance.json: one object over time."""

    token: str
    category_token: str


class Annotation(TableRow, frozen=True, gc=False):
    """sample_annotation.json: one 3D box of one key frame in the global frame; size is (width, length, height)."""

    token: str
    sample_token: str
    instance_token: str
    translation: tuple[float, float, float]
    size: tuple[float, float, float]
    rotation: tuple[float, float, float, float]


class Lidarseg(TableRow, frozen=True, gc=False):
    """lidarseg.json: the file with one label per point of a lidar key frame."""

    sample_data_token: str
    filename: str


_FILES: dict[type[TableRow], str] = {
    Sensor: "sensor", CalibratedSensor: "calibrated_sensor", EgoPose: "ego_pose", Scene: "scene", Sample: "sample",
    SampleData: "sample_data", Category: "category", Instance: "instance", Annotation: "sample_annotation",
    Lidarseg: "lidarseg",
}  # fmt: skip


def version_folder(root: Path, version: str) -> Path:
    """The folder of the tables of a version. Raises WorldError naming the versions that are there."""
    folder = root / version
    if folder.is_dir():
        return folder
    if not root.is_dir():
        raise WorldError(f"no folder at {root}; give the nuScenes root, the folder that holds samples/ and {version}/")
    found = sorted(path.parent.name for path in root.glob("*/sample.json"))
    raise WorldError(f"{root} has no version {version!r}; versions there: {', '.join(found) or 'none'}")


def table_files(folder: Path) -> list[Path]:
    """The tables of a version folder that the builder reads, those that are there."""
    return [path for name in _FILES.values() if (path := folder / f"{name}.json").is_file()]


def has_table(folder: Path, row_type: type[TableRow]) -> bool:
    """Whether a version folder holds the table of a row type."""
    return (folder / f"{_FILES[row_type]}.json").is_file()


def read_table(folder: Path, row_type: type[Row]) -> list[Row]:
    """All rows of a table. Raises WorldError as `read_batches` does."""
    return [row for rows in read_batches(folder, row_type) for row in rows]


def read_batches(folder: Path, row_type: type[Row]) -> Iterator[list[Row]]:
    """The rows of a table, some ten thousand at a time: tables of gigabytes are never in memory as a whole.

    Raises WorldError naming the file when it is missing or its content does not fit, with the row's token if there is
    one.
    """
    path = folder / f"{_FILES[row_type]}.json"
    if not path.is_file():
        raise WorldError(f"the table {path} is missing; unpack the metadata of {folder.name} again")
    decoder = msgspec.json.Decoder(list[row_type])  # type: ignore[valid-type]
    with path.open("rb") as file:
        opening, rest = b"", b""
        while block := file.read(BLOCK_BYTES):
            rest += block
            end = _last_row_end(rest)
            try:
                rows = decoder.decode(b"".join((opening, memoryview(rest)[:end], b"]"))) if end else []
            except msgspec.DecodeError:  # a comma inside a row, or a broken table: the rest as one will tell
                rest += file.read()
                break
            if end:
                opening, rest = b"[", rest[end + 1 :]
                yield rows
    try:
        yield decoder.decode(opening + rest)
    except msgspec.DecodeError as error:  # also its subclass ValidationError
        raise _table_error(path, row_type, str(error)) from error


def _last_row_end(text: bytes) -> int:
    """Where the last comma between two JSON objects is, or 0."""
    start = text.rfind(b"{")
    while start > 0:
        before = text[max(0, start - 64) : start].rstrip()
        if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
            return max(0, start - 64) + len(before) - 1
        start = text.rfind(b"{", 0, start)
    return 0


def _table_error(path: Path, row_type: type[TableRow], problem: str) -> WorldError:
    """What is wrong with a table that cannot be decoded, and in which row; places are those in the whole file."""
    content = path.read_bytes()
    try:
        msgspec.json.decode(content, type=list[row_type])  # type: ignore[valid-type]
    except msgspec.DecodeError as error:
        problem = str(error)
    row = b""
    if place := re.search(r"\(byte (\d+)\)", problem):
        row = content[max(0, int(place[1]) - 4096) : int(place[1])]
    elif place := re.search(r"\$\[(\d+)\]", problem):
        row = bytes(msgspec.json.decode(content, type=list[msgspec.Raw])[int(place[1])])
    tokens = _ROW_TOKEN.findall(row)
    where = f", in the row with the token {tokens[-1].decode(errors='replace')!r}" if tokens else ""
    return WorldError(f"the table {path} cannot be read: {problem}{where}")


def positions(tokens: Iterable[str], place_of: dict[str, int], table: str) -> NDArray[np.int32]:
    """Where each token stands in its table. Raises WorldError naming a token that is not in it."""
    try:
        return np.array([place_of[token] for token in tokens], dtype=np.int32)
    except KeyError as error:
        raise WorldError(f"{table}.json lacks the token {error}, which another table refers to") from error


def index_of(rows: Sequence[Row]) -> dict[str, int]:
    """Token -> place in the table, for tables whose rows carry a token. Raises WorldError naming one that repeats."""
    tokens: list[str] = [row.token for row in rows]  # type: ignore[attr-defined]
    place_of = {token: place for place, token in enumerate(tokens)}
    if len(place_of) < len(tokens):
        repeated = next(token for place, token in enumerate(tokens) if place_of[token] != place)
        raise WorldError(f"{_FILES[type(rows[0])]}.json has the token {repeated!r} twice")
    return place_of
