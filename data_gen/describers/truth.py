"""Descriptions that a synthetic world gives of itself, by annotation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from data_gen.describers.crops import read_image
from data_gen.describers.standardise import standardise
from data_gen.descriptions import UNREADABLE, AskedImage, Describer, Description
from data_gen.in_order import map_in_processes
from data_gen.nuscenes_tables import WorldError


class _Row(msgspec.Struct):
    sample_annotation_token: str
    description: str


def truth_describer(version_folder: Path, workers: int = 1) -> Describer:
    """Descriptions from the folder's descriptions.json. Raises WorldError when it has none.

    The images are opened all the same, so that a build with the truth drops what a build with a model would drop.
    """
    path = version_folder / "descriptions.json"
    if not path.is_file():
        raise WorldError(f"--describer truth needs {path}, which only synthetic worlds have; use --describer colour")
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[_Row])
    except msgspec.DecodeError as error:
        raise WorldError(f"{path} does not list descriptions by sample_annotation_token: {error}") from error
    text_of = {row.sample_annotation_token: row.description for row in rows}

    def describe(images: Iterable[AskedImage]) -> Iterator[list[Description]]:
        for image, readable in map_in_processes(_checked, images, workers):
            texts = [(text_of.get(item.annotation_token, ""), item.category) for item in image.objects]
            yield [_as_it_is(*text) if readable else UNREADABLE for text in texts]

    return describe


def _as_it_is(text: str, category: str) -> Description:
    """The world's own words, where they pass what a model's words must pass."""
    problem = standardise(text, category).problem
    return Description(problem=problem, raw=text) if problem else Description(text)


def _checked(image: AskedImage) -> tuple[AskedImage, bool]:
    return image, read_image(image) is not None
