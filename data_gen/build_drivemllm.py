"""Build DriveMLLM's eight tasks from the front images of a nuScenes-format folder, or from the public metadata.

    python data_gen/build_drivemllm.py --nuscenes DIR --version v1.0-trainval --out DIR
    python data_gen/build_drivemllm.py --from-metadata DIR --out DIR

writes `metadata.jsonl` (images with their objects), `dropped.jsonl` (every other object and why), `descriptions.jsonl`
(what the describer said), `questions.jsonl` and, last, `manifest.json` (what was kept, what was dropped and why). With
--resume a finished build is not repeated and an interrupted one asks no describer twice, with the same output byte for
byte.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from data_gen.build_folder import DESCRIPTIONS, finish_build, finished_build, start_build, write_dropped
from data_gen.build_report import Tally, describe_thresholds, tool_version
from data_gen.command_line import UsageError, available_cores, ends_well, parse_with_config, positive, version_name
from data_gen.describe import add_describer_options, describer_options, make_describer
from data_gen.describe_scenes import candidates, describe_scenes, tell_unreadable, with_descriptions
from data_gen.drivemllm.filters import PAPER_VALUES, FrontThresholds
from data_gen.drivemllm.front_images import CAMERA, front_image, record_of, without_unlisted
from data_gen.drivemllm.keep_list import Found, Listed, find_listed, keep_list_file, read_keep_list
from data_gen.drivemllm.public import count_missing, read_public
from data_gen.drivemllm.questions import published_questions
from data_gen.drivemllm.records import DriveMLLMImage, image_to_row, question_to_row
from data_gen.drivemllm.report import (
    PAPER_YIELD,
    REASONS,
    filter_counts,
    keep_list_report,
    question_counts,
    summary,
)
from data_gen.filters import AMBIGUITY_RULES, CLASS_LEVELS
from data_gen.folders import OutputFolder
from data_gen.nuscenes_tables import WorldError
from data_gen.public_metadata import METADATA, find_metadata
from data_gen.records import RecordError, write_rows
from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import SceneImage
from data_gen.world import load_world, select_frames, tables_checksum

# Options that only a build from a nuScenes folder reads.
WORLD_OPTIONS = (
    "nuscenes", "keep_list", "version", "split", "min_pedestrian_width_px", "min_vehicle_area_px", "max_overlap",
    "ambiguity", "class_level", "describer", "describer_model", "endpoint", "concurrency", "describer_batch_size",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, build, report. Exits with 2 on input that cannot be used."""
    parser = make_parser()
    options = parse_with_config(parser, arguments)
    check_options(parser, options)
    with ends_well(parser, UsageError, WorldError, RecordError, OSError):
        manifest = build(options)
    print(summary(manifest))
    print(f"written to {options.out}")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nuscenes", type=Path, metavar="DIR", help="nuScenes root: the folder of samples/ and of the tables' folder")
    add("--from-metadata", type=Path, metavar="PATH", help=f"instead: {METADATA} of the public set, images beside it")
    add("--version", type=version_name, default="v1.0-trainval", help="folder of the tables (default: %(default)s)")
    add(
        "--out", type=Path, default=Path("data/drivemllm"), metavar="DIR", help="folder to write (default: %(default)s)"
    )
    add("--split", choices=("all", "train", "val"), default="val", help="which scenes (paper: val; default: val)")
    names = "keep only these images: a file name a line (folder and suffix may differ), or a metadata.jsonl, of whose "
    names += "images those with other names are found by location3D"
    add("--keep-list", type=Path, metavar="FILE", help=names)
    add("--seed", type=int, default=42, help="seed of which objects are asked about, in which order (published: 42)")
    add("--limit", type=positive, metavar="N", help="only the first N key frames, or images of --from-metadata")
    add(
        "--workers",
        type=positive,
        default=available_cores(),
        metavar="N",
        help="processes that open images (default: all cores)",
    )
    add_thresholds(parser.add_argument_group("filters of --nuscenes"), FrontThresholds())
    add_describer_options(parser.add_argument_group("descriptions of --nuscenes"))
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true", help="keep a finished build, go on with an interrupted one")
    either.add_argument("--overwrite", action="store_true", help="empty the output folder first")
    return parser


def add_thresholds(group: argparse._ArgumentGroup, default: FrontThresholds) -> None:
    """An option for every threshold of the filters; its help says whether the paper gives the value."""
    numbers = {
        "min_pedestrian_width_px": "least width of a pedestrian's box, pixels of a 1600x900 image (paper: 40)",
        "min_vehicle_area_px": "least area of a vehicle's box, pixels of a 1600x900 image (paper: 2000)",
        "max_overlap": "share of the smaller of two boxes above which the farther object goes (paper: 0.3)",
    }
    for name, text in numbers.items():
        group.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=getattr(default, name), metavar="X", help=text
        )
    ambiguity = "when a class repeats: drop the image, or only the objects of that class (default: %(default)s)"
    group.add_argument("--ambiguity", choices=AMBIGUITY_RULES, default=default.ambiguity, help=ambiguity)
    level = "a class is the category, or its first two parts (paper gives none; default: %(default)s)"
    group.add_argument("--class-level", choices=CLASS_LEVELS, default=default.class_level, help=level)


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with 2 on options that do not go together or are out of range."""
    if options.nuscenes is None and options.from_metadata is None:
        make = "make a small world with: python data_gen/synthetic.py --out DIR"
        parser.error(f"--nuscenes DIR or --from-metadata DIR is needed; {make}")
    given = [name for name in WORLD_OPTIONS if getattr(options, name) != parser.get_default(name)]
    if options.from_metadata and given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        parser.error(f"--from-metadata takes all images of the metadata as they are: leave out {named}")
    try:
        thresholds_of(options)
    except ValueError as error:
        parser.error(str(error))


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Build into `options.out` and return the manifest."""
    settings = settings_of(options)
    inputs = tuple(
        path for path in (options.nuscenes, options.from_metadata, options.keep_list, options.config) if path
    )
    folder = OutputFolder(options.out, "drivemllm", options.resume, options.overwrite, inputs)
    if finished := finished_build(folder, settings, of_scenes(settings)):
        return finished
    images, facts = (from_metadata if options.from_metadata else from_world)(options, folder, settings)
    questions = published_questions(images, options.seed, facts["source"])
    write_rows(options.out / METADATA, map(image_to_row, images))
    write_rows(options.out / "questions.jsonl", map(question_to_row, questions))
    own = {"benchmark": "DriveMLLM", "tool": tool_version(), "seed": options.seed, "settings": settings}
    manifest = own | facts | question_counts(questions) | {"paper_yield": PAPER_YIELD}
    return finish_build(options.out, manifest)


def from_metadata(
    options: argparse.Namespace, folder: OutputFolder, settings: dict[str, Any]
) -> tuple[list[DriveMLLMImage], dict[str, Any]]:
    """The images of the public metadata, and what the manifest says of them."""
    metadata = find_metadata(options.from_metadata, "val")
    images = read_public(metadata)[: options.limit]
    start_build(folder, of_scenes(settings))
    return images, metadata_facts(metadata, images)


def from_world(
    options: argparse.Namespace, folder: OutputFolder, settings: dict[str, Any]
) -> tuple[list[DriveMLLMImage], dict[str, Any]]:
    """The front images of a nuScenes folder with what is kept of them, and what the manifest says of them."""
    world = load_world(options.nuscenes, options.version)
    describer = make_describer(describer_options(options, options.nuscenes / options.version))
    frames = select_frames(world, options.split, options.limit)
    thresholds = thresholds_of(options)
    read = [
        front_image(world[frame], thresholds)
        for frame in tqdm(frames, unit=" key frames", mininterval=1, desc="geometry")
    ]
    listed = read_keep_list(options.keep_list) if options.keep_list else []
    found = find_in_world(listed, read, options) if listed else None
    wanted = set(range(len(read))) if found is None else set(found.images.values())
    chosen = [image if place in wanted else without_unlisted(image) for place, image in enumerate(read)]
    asked = candidates(iter(chosen))
    check_there(asked, world.root)
    start_build(folder, of_scenes(settings))
    said = describe_scenes(asked, world.root, describer, options.out / DESCRIPTIONS)
    images = [with_descriptions(image, said.get(image.scene.file_name)) for image in chosen]
    tally = Tally(REASONS)
    scenes = write_dropped(options.out, images, tally)
    facts = {
        "source": world.source,
        "version": world.version,
        "split": options.split,
        "camera": CAMERA,
        "image_root": str(world.root.resolve()),
        **filter_counts(tally, scenes),
        "unreadable_images": tell_unreadable(said.values()),
    }
    if found is not None:
        facts["keep_list"] = warn_of_not_kept(keep_list_report(listed, found, images))
    return [record_of(scene) for scene in scenes], facts


def find_in_world(listed: list[Listed], read: list[JudgedImage], options: argparse.Namespace) -> Found:
    """Where the listed images are among those read. Raises WorldError when none of them is there."""
    centres_m = [np.array(image.centres_m).reshape(-1, 3) for image in read]
    found = find_listed(listed, [image.scene.file_name for image in read], centres_m)
    if found.images:
        return found
    raise WorldError(
        f"none of the {len(listed)} images of {options.keep_list} ({listed[0].name}, ...) is a {CAMERA} image of "
        f"split {options.split} of {options.nuscenes}; names are compared without folder and suffix, and object "
        "centres where the list has them"
    )


def check_there(scenes: Sequence[SceneImage], root: Path) -> None:
    """Raise FileNotFoundError naming the first image that will be opened and is not there."""
    missing = [scene.file_name for scene in scenes if not (root / scene.file_name).is_file()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} is missing under {root} ({len(missing)} images that are needed)")


def warn_of_not_kept(report: dict[str, Any]) -> dict[str, Any]:
    """The report of a keep list; a warning when it names images that are not kept."""
    if not_kept := report["not_kept"]:
        first, why = next(iter(not_kept.items()))
        print(f"warning: {len(not_kept)} images of the keep list are not kept, as {first}: {why}", file=sys.stderr)
    return report


def metadata_facts(metadata: Path, images: list[DriveMLLMImage]) -> dict[str, Any]:
    """What the manifest says of a build from the public metadata."""
    sizes = [len(image.objects) for image in images]
    missing = count_missing(images, metadata.parent)
    if missing:
        print(f"warning: {missing} images are not beside {metadata}; later steps need --images DIR", file=sys.stderr)
    return {
        "source": "metadata",
        "image_root": str(metadata.parent.resolve()),
        "images": {
            "read": len(images),
            "kept": len(images),
            "with_one_object": sizes.count(1),
            "with_several": sum(size > 1 for size in sizes),
        },
        "missing_images": missing,
    }


def thresholds_of(options: argparse.Namespace) -> FrontThresholds:
    """The filters' thresholds from the command line."""
    return FrontThresholds(
        options.min_pedestrian_width_px, options.min_vehicle_area_px, options.max_overlap, options.ambiguity,
        options.class_level,
    )  # fmt: skip


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """What decides the output: a finished build with the same settings need not be repeated."""
    shared = {"seed": options.seed, "limit": options.limit}
    if options.from_metadata:
        metadata = find_metadata(options.from_metadata, "val")
        return {"metadata": str(metadata.resolve()), "metadata_sha256": _digest(metadata), **shared}
    described = describer_options(options, options.nuscenes / options.version)
    return {
        "tool": tool_version(),
        "nuscenes": str(options.nuscenes.resolve()),
        "tables": tables_checksum(options.nuscenes, options.version),
        "version": options.version,
        "split": options.split,
        **shared,
        **described.settings,
        "thresholds": describe_thresholds(thresholds_of(options), PAPER_VALUES),
        "keep_list_sha256": _digest(keep_list_file(options.keep_list)) if options.keep_list else None,
    }


def of_scenes(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without those that only questions depend on."""
    return {name: value for name, value in settings.items() if name != "seed"}


def _digest(path: Path) -> str:
    if not path.is_file():
        raise RecordError(f"no file at {path}")
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
