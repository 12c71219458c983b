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
from data_gen.folders import MARKER, OutputFolder
from data_gen.images import MANIFEST
from data_gen.records import write_rows
from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import SceneImage, drops_to_row

Settings = dict[str, Any]
UNFINISHED = "unfinished"
SETTINGS = "settings.json"
SCENES = "scenes.jsonl"
DROPPED = "dropped.jsonl"
DESCRIPTIONS = "descriptions.jsonl"


def finished_build(folder: OutputFolder, settings: dict[str, Any], of_scenes: Settings) -> dict[str, Any] | None:
    """The manifest of a finished build that is gone on with, or None when there is something to do.

    settings: all that decide the output; of_scenes: those of them that unfinished work depends on. Raises
    FileExistsError when the folder must not be touched or holds something made with others. Writes nothing.
    """
    folder.check()
    if not folder.resume:
        return None
    finished, started = folder.path / MANIFEST, folder.path / UNFINISHED / SETTINGS
    if started.is_file():
        check_same(folder.path, read_json(started), of_scenes)
        return None
    if not finished.is_file():
        return None
    manifest = read_json(finished)
    lost = [name for name in manifest.get("files", []) if not (folder.path / name).is_file()]
    if lost:
        raise FileExistsError(f"{folder.path} lacks {', '.join(lost)} of its build; make it anew with --overwrite")
    shutil.rmtree(folder.path / UNFINISHED, ignore_errors=True)
    check_same(folder.path, manifest.get("settings", {}), settings, "; its scenes give other questions: --from-scenes")
    print(f"{folder.path} holds this build already")
    return manifest


def start_build(folder: OutputFolder, of_scenes: Settings) -> None:
    """Make the folder ready, and note what is built there until the manifest says so."""
    folder.prepare()
    write_json(folder.path / UNFINISHED / SETTINGS, of_scenes)


def check_same(out: Path, held: Settings, wanted: Settings, hint: str = "") -> None:
    """Raise FileExistsError naming what differs."""
    wanted = json.loads(json.dumps(wanted))
    differing = [name for name in {**held, **wanted} if held.get(name) != wanted.get(name)]
    if differing:
        told = ", ".join(f"{name} {_value(held.get(name))} -> {_value(wanted.get(name))}" for name in differing)
        raise FileExistsError(
            f"{out} holds a build with other settings ({told}); choose another --out or --overwrite it{hint}"
        )


def _value(setting: Any) -> str:
    """A setting for a message: of thresholds the numbers alone."""
    if isinstance(setting, dict):
        return str({name: item["value"] if isinstance(item, dict) else item for name, item in setting.items()})
    return str(setting)


def finish_build(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest, which marks a finished build, and remove what only an unfinished one needs."""
    files = sorted(path.name for path in out.iterdir() if path.is_file() and path.name not in (MANIFEST, MARKER))
    manifest = manifest | {"files": files}
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
