"""Stored outputs of the published DriveMLLM code: a folder of ten JSON files, one per prompt, and an index.

Each file holds rows of `dataset_index` (of the image) and `output`; the files in the order of their names are the kinds
of questions. `inference_sample_index.json` tells, per file and image, which objects were named and in which order, null
where the image has too few. Boxes are read as written: of Gemini, which writes y first and thousandths, the published
code turns them beforehand, and so must who replays its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from data_gen.command_line import UsageError
from data_gen.drivemllm.questions import question_about
from data_gen.drivemllm.records import KINDS, DriveMLLMImage, DriveMLLMQuestion
from data_gen.records import RecordError
from eval.engines import Reply
from eval.runner import digest, file_digest

INDEX_FILE = "inference_sample_index.json"
# A published folder is named after the folder of its prompts.
SHOTS_OF_NAME = {"zero": 0, "one": 1, "five": 5}


class _Sample(msgspec.Struct):
    inference_sample_index: tuple[int, ...] | None


class _Output(msgspec.Struct):
    dataset_index: int
    output: str


@dataclass(frozen=True)
class Published:
    """The questions that a published run asked, and its outputs by question id."""

    questions: list[DriveMLLMQuestion]
    stored: dict[str, Reply]
    digest: str
    shots: int | None


def is_published(path: Path) -> bool:
    """Whether a folder is one of the published code's."""
    return (path / INDEX_FILE).is_file()


def read_published(folder: Path, images: Sequence[DriveMLLMImage], source: str) -> Published:
    """The questions and outputs of a folder about these images, which are those of the published run in its order.

    Raises UsageError when the folder is about others or has other files, RecordError for a file that cannot be read.
    """
    files = sorted(path for path in folder.glob("*.json") if path.name != INDEX_FILE)
    samples = _read(folder / INDEX_FILE, list[list[_Sample]])
    if len(files) != len(KINDS) or len(samples) != len(KINDS):
        raise UsageError(
            f"{folder} has {len(files)} output files and {len(samples)} lists in {INDEX_FILE}; wanted are "
            f"{len(KINDS)} of each, in the order {', '.join(KINDS)}"
        )
    if odd := next((len(row) for row in samples if len(row) != len(images)), None):
        raise UsageError(f"{folder / INDEX_FILE} is about {odd} images, the metadata beside the questions has "
                         f"{len(images)}; build them with --from-metadata")  # fmt: skip
    questions: list[DriveMLLMQuestion] = []
    stored: dict[str, Reply] = {}
    for kind, file, row in zip(KINDS, files, samples, strict=True):
        asked = {
            index: _question(kind, index, images[index], sample.inference_sample_index, source)
            for index, sample in enumerate(row)
            if sample.inference_sample_index is not None
        }
        questions += asked.values()
        for item in _read(file, list[_Output]):
            if item.dataset_index not in asked:
                raise UsageError(f"{file} has an output to image {item.dataset_index}, which was not asked about")
            reply = Reply(asked[item.dataset_index].id, item.output)
            stored[reply.id] = reply
    known = digest(" ".join(map(file_digest, [folder / INDEX_FILE, *files])))
    return Published(questions, stored, known, _shots(folder))


def _question(kind: str, index: int, image: DriveMLLMImage, objects: Sequence[int], source: str) -> DriveMLLMQuestion:
    wanted, there = KINDS[kind].objects, len(image.objects)
    if len(objects) != wanted or not all(0 <= place < there for place in objects):
        raise UsageError(f"{INDEX_FILE}: a question of kind {kind} names {wanted} of the {there} objects of image "
                         f"{index} ({image.file_name}), got {list(objects)}")  # fmt: skip
    return question_about(kind, index, image, objects, source)


def _shots(folder: Path) -> int | None:
    name = folder.resolve().name
    return next((shots for word, shots in SHOTS_OF_NAME.items() if f"{word}_shot" in name), None)


def _read(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise RecordError(f"{path}: {error}") from error
