"""The output folder of a build: gone on with, finished, and what every build writes of its images.

A manifest marks a finished build. Until it is there, a folder of work in progress holds the settings of what is being
built, so that nothing else goes on with it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_gen.build_report import Tally
from data_gen.files import read_json, write_json
from data_gen.folders import OutputFolder
from data_gen.images import MANIFEST
from data_gen.records import write_rows
from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import SceneImage, drops_to_row

UNFINISHED = "unfinished"
SETTINGS = "settings.json"
DROPPED = "dropped.jsonl"
DESCRIPTIONS = "descriptions.jsonl"


def finished_build(folder: OutputFolder, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of a finished build that is gone on with, or None when there is something to do.

    Raises FileExistsError when the folder must not be touched or holds a build with other settings. Writes nothing.
    """
    folder.check()
    if not folder.resume:
        return None
    finished, started = folder.path / MANIFEST, folder.path / UNFINISHED / SETTINGS
    if not started.is_file() and not finished.is_file():
        return None
    held: dict[str, Any] = {"settings": read_json(started)} if started.is_file() else read_json(finished)
    if held.get("settings") != json.loads(json.dumps(settings)):
        raise FileExistsError(
            f"{folder.path} holds a build with other settings; choose another --out or --overwrite it"
        )
    return None if started.is_file() else held


def start_build(folder: OutputFolder, settings: dict[str, Any]) -> None:
    """Make the folder ready, and note what is built there until the manifest says so."""
    folder.prepare()
    write_json(folder.path / UNFINISHED / SETTINGS, settings)


def finish_build(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest, which marks a finished build, and remove what only an unfinished one needs."""
    write_json(out / MANIFEST, manifest)
    shutil.rmtree(out / UNFINISHED)
    return manifest


def write_dropped(out: Path, images: Iterable[JudgedImage], tally: Tally) -> list[SceneImage]:
    """Write what was dropped of the images, count everything into `tally`, and return what was kept."""
    scenes = []

    def rows() -> Iterator[dict[str, Any]]:
        for image in images:
            tally.add(image)
            if image.scene.objects:
                scenes.append(image.scene)
            if image.drops.objects:
                yield drops_to_row(image.drops)

    write_rows(out / DROPPED, rows())
    return scenes
