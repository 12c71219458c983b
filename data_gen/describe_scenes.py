"""The objects that passed geometry and lidar get their words, or a reason to be dropped.

What the describer said is appended image by image to a log, so that an interrupted build asks nothing twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import msgspec
from tqdm import tqdm

from data_gen.descriptions import UNREADABLE, Asked, AskedImage, Describer, Description, distinct
from data_gen.files import write_whole
from data_gen.records import RecordError
from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import DroppedObject, SceneImage, SceneObject


@dataclass(frozen=True)
class Described:
    """What was said about the objects of one image, in their order; a line of `descriptions.jsonl`."""

    file_name: str
    annotation_tokens: tuple[str, ...]
    descriptions: tuple[Description, ...]


def candidates(images: Iterator[JudgedImage]) -> list[SceneImage]:
    """The scenes of which some object is left to describe."""
    return [image.scene for image in images if image.scene.objects]


def describe_scenes(scenes: Sequence[SceneImage], root: Path, describer: Describer, log: Path) -> dict[str, Described]:
    """Descriptions of all scenes by file name: those in the log, and new ones, which are appended to it.

    root: folder of the images. Raises RecordError for an image of another size than its scene says.
    """
    said = {item.file_name: item for item in _fitting(log, scenes)}
    left = [scene for scene in scenes if scene.file_name not in said]
    if not left:
        return said
    answers = describer(_asked(scene, root) for scene in left)
    bar = tqdm(answers, total=len(left), unit=" images", mininterval=1, desc="descriptions")
    with log.open("ab") as file:
        for scene, descriptions in zip(left, bar, strict=True):
            said[scene.file_name] = Described(scene.file_name, _tokens(scene), tuple(descriptions))
            file.write(msgspec.json.encode(said[scene.file_name]) + b"\n")
            file.flush()
    return said


def read_log(log: Path) -> list[Described]:
    """The lines of a log; one that was cut off by a kill is removed from the file."""
    if not log.is_file():
        return []
    content = log.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        log.write_bytes(whole)
    try:
        return list(msgspec.json.Decoder(Described).decode_lines(whole))
    except msgspec.DecodeError as error:
        raise RecordError(f"{log} cannot be read ({error}); start anew with --overwrite") from error


def _fitting(log: Path, scenes: Sequence[SceneImage]) -> list[Described]:
    """The lines of a log that are about the objects of the scenes; the log is cut at the first that is not."""
    wanted = {scene.file_name: _tokens(scene) for scene in scenes}
    found = read_log(log)
    fitting = list(takewhile(lambda item: wanted.get(item.file_name) == item.annotation_tokens, found))
    if len(fitting) < len(found):
        write_whole(log, b"".join(msgspec.json.encode(item) + b"\n" for item in fitting))
    return fitting


def _tokens(scene: SceneImage) -> tuple[str, ...]:
    return tuple(item.annotation_token for item in scene.objects)


def with_descriptions(image: JudgedImage, said: Described | None) -> JudgedImage:
    """The image with its objects described; those without a description of their own are dropped."""
    if said is None:
        return image
    objects = list(zip(image.scene.objects, distinct(said.descriptions), strict=True))
    kept = tuple(replace(item, description=words.text) for item, words in objects if not words.problem)
    dropped = tuple(_dropped(item, words.problem) for item, words in objects if words.problem)
    drops = replace(image.drops, objects=image.drops.objects + dropped)
    return JudgedImage(replace(image.scene, objects=kept), drops)


def tell_unreadable(said: Iterable[Described]) -> list[str]:
    """The images that could not be read; a warning when there are some."""
    names = [item.file_name for item in said if UNREADABLE in item.descriptions]
    if names:
        print(f"warning: {len(names)} images could not be read and are dropped, as {names[0]}", file=sys.stderr)
    return names


def _asked(scene: SceneImage, root: Path) -> AskedImage:
    objects = tuple(Asked(item.annotation_token, item.category, item.box_xyxy_px) for item in scene.objects)
    return AskedImage(root / scene.file_name, (scene.width, scene.height), objects)


def _dropped(item: SceneObject, reason: str) -> DroppedObject:
    return DroppedObject(item.category, item.box_xyxy_px, item.xyz_m, reason, item.annotation_token, item.lidar_points)
