"""Build DriveMLLM's eight tasks from the front images of a nuScenes-format folder, or from the public metadata.

    python data_gen/build_drivemllm.py --nuscenes DIR --version v1.0-trainval --out DIR
    python data_gen/build_drivemllm.py --from-metadata DIR --out DIR

writes `metadata.jsonl` (images with their objects), `questions.jsonl` and, last, `manifest.json` (what was kept, what
was dropped and why). A finished build is not repeated with --resume; an interrupted one starts over, with the same
output byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_gen.build_report import tool_version
from data_gen.command_line import UsageError, parse_with_config, positive
from data_gen.describe import Describer, add_describer_options, describer_options, distinct, make_describer
from data_gen.drivemllm import DriveMLLMImage, image_to_row, question_to_row
from data_gen.drivemllm_filters import FrontThresholds
from data_gen.drivemllm_questions import published_questions
from data_gen.drivemllm_report import (
    PAPER_YIELD,
    describe_thresholds,
    filter_counts,
    keep_list_report,
    question_counts,
    summary,
)
from data_gen.files import write_json
from data_gen.filters import AMBIGUITY_RULES, CLASS_LEVELS
from data_gen.folders import OutputFolder
from data_gen.front_images import CAMERA, FrontImage, asked_image, front_image, record_of
from data_gen.images import MANIFEST
from data_gen.keep_list import Found, Listed, find_listed, read_keep_list
from data_gen.nuscenes_tables import WorldError
from data_gen.public_drivemllm import METADATA, find_metadata, read_public
from data_gen.records import RecordError, write_rows
from data_gen.world import World, load_world, select_frames


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, build, report. Exits with 2 on input that cannot be used."""
    parser = make_parser()
    options = parse_with_config(parser, arguments)
    check_options(parser, options)
    try:
        manifest = build(options)
    except (UsageError, WorldError, RecordError, FileNotFoundError, FileExistsError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    print(summary(manifest))
    print(f"written to {options.out}")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nuscenes", type=Path, metavar="DIR", help="nuScenes root: the folder of samples/ and of the tables' folder")
    add("--from-metadata", type=Path, metavar="PATH", help=f"instead: {METADATA} of the public set, images beside it")
    add("--version", default="v1.0-trainval", help="folder of the tables (default: %(default)s)")
    add(
        "--out", type=Path, default=Path("data/drivemllm"), metavar="DIR", help="folder to write (default: %(default)s)"
    )
    add("--split", choices=("all", "train", "val"), default="val", help="which scenes (paper: val; default: val)")
    names = "keep only these images: a file name a line (folder and suffix may differ), or a metadata.jsonl, of whose "
    names += "images those with other names are found by location3D"
    add("--keep-list", type=Path, metavar="FILE", help=names)
    add("--seed", type=int, default=42, help="seed of which objects are asked about, in which order (published: 42)")
    add("--limit", type=positive, metavar="N", help="only the first N key frames, or images of --from-metadata")
    add("--workers", type=positive, default=1, metavar="N", help="processes that open images (default: %(default)s)")
    add_thresholds(parser.add_argument_group("filters of --nuscenes"), FrontThresholds())
    add_describer_options(parser.add_argument_group("descriptions of --nuscenes"))
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true", help="keep a finished build, redo an interrupted one")
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
    if options.from_metadata and (options.nuscenes or options.keep_list):
        parser.error("--from-metadata takes all images of the metadata: no --nuscenes and no --keep-list beside it")
    try:
        thresholds_of(options)
    except ValueError as error:
        parser.error(str(error))


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Build into `options.out` and return the manifest."""
    settings = settings_of(options)
    inputs = tuple(path for path in (options.nuscenes, options.from_metadata, options.keep_list) if path)
    folder = OutputFolder(options.out, "drivemllm", options.resume, options.overwrite, inputs)
    folder.check()
    if options.resume and (finished := finished_manifest(options.out, settings)):
        return finished
    if options.from_metadata:
        metadata = find_metadata(options.from_metadata)
        images = read_public(metadata)[: options.limit]
        folder.prepare()
        facts = metadata_facts(metadata, images)
    else:
        survey = survey_world(options)
        folder.prepare()
        images, facts = describe_survey(survey)
    questions = published_questions(images, options.seed, facts["source"])
    write_rows(options.out / METADATA, map(image_to_row, images))
    write_rows(options.out / "questions.jsonl", map(question_to_row, questions))
    own = {"benchmark": "DriveMLLM", "tool": tool_version(), "seed": options.seed, "settings": settings}
    manifest = own | facts | question_counts(questions) | {"paper_yield": PAPER_YIELD}
    write_json(options.out / MANIFEST, manifest)  # marks a finished build
    return manifest


@dataclass(frozen=True)
class Survey:
    """All front images of the chosen key frames, judged by the tables, which of them are wanted, and who names things.

    found: where the images of the keep list are, None without a list.
    """

    world: World
    split: str
    read: list[FrontImage]
    listed: list[Listed]
    found: Found | None
    describer: Describer

    @property
    def chosen(self) -> list[FrontImage]:
        """The images that the keep list names; all without one."""
        return self.read if self.found is None else [self.read[i] for i in sorted(set(self.found.images.values()))]


def survey_world(options: argparse.Namespace) -> Survey:
    """Read the tables and the keep list, and check that the images that will be opened are there."""
    world = load_world(options.nuscenes, options.version)
    describer = make_describer(describer_options(options, options.nuscenes / options.version))
    frames = select_frames(world, options.split, options.limit)
    thresholds = thresholds_of(options)
    read = [front_image(world[frame], thresholds) for frame in tqdm(frames, unit=" key frames", mininterval=1)]
    listed = read_keep_list(options.keep_list) if options.keep_list else []
    found = find_listed(listed, [i.file_name for i in read], [i.view.centres_m for i in read]) if listed else None
    if found is not None and not found.images:
        raise WorldError(
            f"none of the {len(listed)} images of {options.keep_list} ({listed[0].name}, ...) is a {CAMERA} image of "
            f"split {options.split} of {options.nuscenes}; names are compared without folder and suffix, and object "
            "centres where the list has them"
        )
    survey = Survey(world, options.split, read, listed, found, describer)
    missing = [i.file_name for i in survey.chosen if i.kept and not (world.root / i.file_name).is_file()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} is missing under {world.root} ({len(missing)} images that are needed)")
    return survey


def describe_survey(survey: Survey) -> tuple[list[DriveMLLMImage], dict[str, Any]]:
    """Name the objects that are left: the records of the images, and what the manifest says of them."""
    asked = [image for image in survey.chosen if image.kept]
    descriptions = survey.describer(asked_image(image, survey.world.root) for image in asked)
    problems: dict[str, Counter[str]] = {}
    images = []
    progress = tqdm(zip(asked, descriptions, strict=True), total=len(asked), unit=" images", mininterval=1)
    for image, named in progress:
        judged = distinct(named)
        problems[image.file_name] = Counter(item.problem for item in judged if item.problem)
        record = record_of(image, judged)
        images += [record] if record.objects else []
    return images, world_facts(survey, images, problems)


def world_facts(survey: Survey, images: list[DriveMLLMImage], problems: dict[str, Counter[str]]) -> dict[str, Any]:
    """What the manifest says of a build from a world; images of the keep list that are not in it are told of."""
    facts = {
        "source": survey.world.source,
        "version": survey.world.version,
        "split": survey.split,
        "camera": CAMERA,
        "image_root": str(survey.world.root.resolve()),
        **filter_counts(survey.read, survey.chosen, problems, images),
    }
    if survey.found is None:
        return facts
    kept = {image.file_name for image in images}
    report = keep_list_report(survey.listed, survey.found, survey.read, problems, kept)
    if report["not_kept"]:
        first, why = next(iter(report["not_kept"].items()))
        print(
            f"warning: {len(report['not_kept'])} images of the keep list are not kept, as {first}: {why}",
            file=sys.stderr,
        )
    return facts | {"keep_list": report}


def metadata_facts(metadata: Path, images: list[DriveMLLMImage]) -> dict[str, Any]:
    """What the manifest says of a build from the public metadata."""
    sizes = [len(image.objects) for image in images]
    return {
        "source": "metadata",
        "image_root": str(metadata.parent.resolve()),
        "images": {
            "read": len(images),
            "kept": len(images),
            "with_one_object": sizes.count(1),
            "with_several": sum(size > 1 for size in sizes),
        },
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
        metadata = find_metadata(options.from_metadata)
        return {"metadata": str(metadata.resolve()), "metadata_sha256": _digest(metadata), **shared}
    described = describer_options(options, options.nuscenes / options.version)
    return {
        "nuscenes": str(options.nuscenes.resolve()),
        "version": options.version,
        "split": options.split,
        **shared,
        **described.settings,
        "thresholds": describe_thresholds(thresholds_of(options)),
        "keep_list_sha256": _digest(options.keep_list) if options.keep_list else None,
    }


def _digest(path: Path) -> str:
    if not path.is_file():
        raise RecordError(f"no file at {path}")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def finished_manifest(out: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of a finished build, or None. Raises FileExistsError when it was made with other settings."""
    path = out / MANIFEST
    if not path.is_file():
        return None
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("settings") != settings:
        raise FileExistsError(f"{out} holds a build with other settings; choose another --out or --overwrite it")
    return manifest


if __name__ == "__main__":
    main()
