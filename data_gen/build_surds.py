"""Build the SURDS questions from a nuScenes-format folder, or from the public metadata.

    python data_gen/build_surds.py --nuscenes DIR --version v1.0-trainval --split train --out DIR
    python data_gen/build_surds.py --from-metadata bonbon-rj/SURDS_eval --out DIR
    python data_gen/build_surds.py --from-scenes BUILD --depth-ranges matched --tasks depth --out DIR

writes `scenes.jsonl` (images with their objects), `dropped.jsonl` (every other object and why), `descriptions.jsonl`
(what the describer said), `questions.jsonl` (six tasks, mirrored pairs) and, last, `manifest.json` (what was kept, what
was dropped and why); from the metadata neither the second nor the third. Scenes of a finished build give other
questions without being described again. With --resume a finished build is not repeated and an interrupted one goes on
where it was, with the same output byte for byte.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from data_gen.build_folder import (
    DESCRIPTIONS,
    DROPPED,
    SCENES,
    UNFINISHED,
    finish_build,
    finished_build,
    start_build,
    write_dropped,
)
from data_gen.build_report import (
    PAPER_YIELD,
    Tally,
    image_counts,
    metadata_counts,
    question_counts,
    summary,
    tool_version,
)
from data_gen.command_line import UsageError, ends_well, parse_with_config
from data_gen.compare_metadata import compare, read_build
from data_gen.describe import make_describer
from data_gen.describe_scenes import candidates, describe_scenes, tell_unreadable, with_descriptions
from data_gen.files import read_json, write_json
from data_gen.filters import REASONS
from data_gen.folders import OutputFolder
from data_gen.images import MANIFEST
from data_gen.judge_world import Judging, judge_world, read_judged
from data_gen.nuscenes_tables import WorldError
from data_gen.public_metadata import PublicMetadata, read_public_metadata
from data_gen.question_set import QuestionSet, make_questions
from data_gen.questions import Unit, own_units, published_units
from data_gen.records import RecordError, question_to_row, write_rows
from data_gen.scene_records import SceneImage, read_scenes, scene_to_row
from data_gen.surds_arguments import (
    check_options,
    describer_of,
    make_parser,
    of_scenes,
    settings_of,
    thresholds_of,
)
from data_gen.templates import Templates, read_templates
from data_gen.world import check_files, load_world, select_frames

LIDAR_RULES = {
    True: "lidarseg points of the object's own class in its 2D box",
    False: "no lidarseg (its table or its files): lidar points inside the 3D box",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, build, report. Exits with 2 on input that cannot be used."""
    parser = make_parser(__doc__ or "")
    options = parse_with_config(parser, arguments)
    try:
        check_options(options, parser)
    except ValueError as error:  # UsageError is one
        parser.error(str(error))
    with ends_well(parser, UsageError, WorldError, RecordError, OSError):
        manifest = build(options)
    print(summary(manifest))
    if not manifest["questions"]["total"]:
        print("warning: no question came out", file=sys.stderr)
    for task in options.tasks if options.limit_units else ():
        if (count := manifest["units"][task]) < options.limit_units:
            print(f"warning: {count} units of {task}, fewer than --limit-units {options.limit_units}", file=sys.stderr)
    print(f"written to {options.out}")


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Build into `options.out` and return the manifest."""
    templates = read_templates(options.prompts) if options.prompts else None
    settings = settings_of(options, templates)
    if options.from_metadata is not None:
        return build_from_metadata(options, settings, templates)
    if options.from_scenes is not None:
        return build_from_scenes(options, settings, templates)
    compared = options.compare_metadata
    public = None if compared is None else read_public_metadata(compared, options.split)
    manifest = build_from_world(options, settings, templates)
    if public is None:
        return manifest
    comparison = {"metadata": str(public.path), **compare(read_build(options.out), public.scenes)}
    write_json(options.out / MANIFEST, manifest := manifest | {"comparison": comparison})
    return manifest


def build_from_world(
    options: argparse.Namespace, settings: dict[str, Any], templates: Templates | None
) -> dict[str, Any]:
    """Scenes and questions of a nuScenes folder: tables, lidar, then descriptions; each object kept or dropped."""
    folder = output_folder(options, options.nuscenes)
    if finished := finished_build(folder, settings, of_scenes(settings)):
        return finished
    world = load_world(options.nuscenes, options.version)
    frames = select_frames(world, options.split, options.limit)
    check_files(world, frames)
    describer = make_describer(describer_of(options))
    start_build(folder, of_scenes(settings))
    if not world.has_lidarseg:
        print(f"warning: {LIDAR_RULES[False]}", file=sys.stderr)
    job = Judging(world, frames, thresholds_of(options), options.pixel, options.out / UNFINISHED)
    judge_world(job, options.workers)
    asked = candidates(read_judged(job))
    said = describe_scenes(asked, options.nuscenes, describer, options.out / DESCRIPTIONS)
    images = (with_descriptions(image, said.get(image.scene.file_name)) for image in read_judged(job))
    tally = Tally(REASONS)
    scenes = write_dropped(options.out, images, tally)
    write_rows(options.out / SCENES, map(scene_to_row, scenes))
    units = chosen_units(scenes, options, settings["depth_ranges"])
    made = make_questions(units, world.source, settings["depth_ranges"], templates)
    write_rows(options.out / "questions.jsonl", map(question_to_row, made.questions))
    manifest = {
        **header(options, settings, templates, world.source, options.nuscenes),
        "version": world.version,
        "lidar_rule": LIDAR_RULES[world.has_lidarseg],
        "key_frames": len(frames),
        **image_counts(tally, scenes),
        **question_counts(made.questions),
        "unreadable_images": tell_unreadable(said.values()),
        "paper_yield": PAPER_YIELD,
    }
    return finish_build(options.out, manifest)


def build_from_metadata(
    options: argparse.Namespace, settings: dict[str, Any], templates: Templates | None
) -> dict[str, Any]:
    """The published construction on the public metadata: its scenes, and its way to choose and order the units."""
    public = read_public_metadata(options.from_metadata, options.split)
    settings = settings | {"metadata_sha256": sha256(public.path.read_bytes()).hexdigest()}
    folder = output_folder(options, public.path)
    if finished := finished_build(folder, settings, settings):
        return finished
    try:
        units = of_tasks(published_units(public.scenes, options.seed, settings["depth_ranges"]), options.tasks)
    except ValueError as error:
        raise UsageError(f"{public.path}: {error}") from error
    made = make_questions(units, "metadata", settings["depth_ranges"], templates, trusted=False)
    start_build(folder, settings)
    write_rows(options.out / SCENES, map(scene_to_row, public.scenes))
    write_rows(options.out / "questions.jsonl", map(question_to_row, made.questions))
    manifest = {
        **header(options, settings, templates, "metadata", public.image_root),
        "metadata": str(public.path.resolve()),
        **metadata_counts(public.scenes),
        "missing_images": public.missing_images,
        **question_counts(made.questions),
        "left_out": made.left_out,
        "unscorable": made.unscorable,
        "paper_yield": PAPER_YIELD,
    }
    warn_of_gaps(public, made)
    return finish_build(options.out, manifest)


def build_from_scenes(
    options: argparse.Namespace, settings: dict[str, Any], templates: Templates | None
) -> dict[str, Any]:
    """All questions that the scenes of a finished build allow; what is known of its images goes along."""
    built: Path = options.from_scenes
    if not (built / MANIFEST).is_file():
        raise UsageError(f"{built} holds no finished build: no {MANIFEST}")
    earlier, scenes = read_json(built / MANIFEST), read_scenes(built / SCENES)
    if missing := [name for name in ("source", "split", "image_root", "settings", "images") if name not in earlier]:
        raise UsageError(f"{built / MANIFEST} is no manifest of a build: it lacks {', '.join(missing)}")
    settings = settings | {"scenes_sha256": sha256((built / SCENES).read_bytes()).hexdigest()}
    folder = output_folder(options, built)
    if finished := finished_build(folder, settings, settings):
        return finished
    units = chosen_units(scenes, options, settings["depth_ranges"])
    made = make_questions(units, earlier["source"], settings["depth_ranges"], templates, trusted=False)
    start_build(folder, settings)
    for name in (SCENES, DROPPED, DESCRIPTIONS):
        if (built / name).is_file():
            shutil.copy(built / name, options.out / name)
    write_rows(options.out / "questions.jsonl", map(question_to_row, made.questions))
    manifest = {
        **earlier,
        **header(options, settings, templates, earlier["source"], built / earlier["image_root"]),
        "split": earlier["split"],
        "scenes_of": {"build": str(built.resolve()), "settings": earlier["settings"]},
        **question_counts(made.questions),
        "left_out": made.left_out,
        "unscorable": made.unscorable,
    }
    return finish_build(options.out, manifest)


def chosen_units(scenes: Sequence[SceneImage], options: argparse.Namespace, depth_ranges: str) -> list[Unit]:
    """The units of one's own scenes that the options leave."""
    units = own_units(scenes, options.seed, depth_ranges, options.balance, options.limit_units)
    return of_tasks(units, options.tasks)


def of_tasks(units: Sequence[Unit], tasks: Sequence[str]) -> list[Unit]:
    """The units of some tasks."""
    return [unit for unit in units if unit.task in tasks]


def output_folder(options: argparse.Namespace, read_from: Path) -> OutputFolder:
    """The folder that is written to."""
    compared = Path(options.compare_metadata) if options.compare_metadata else None
    inputs = (read_from, options.prompts, options.config, compared)
    read = tuple(path for path in inputs if path is not None and path.exists())
    return OutputFolder(options.out, "questions", options.resume, options.overwrite, read)


def header(
    options: argparse.Namespace, settings: dict[str, Any], templates: Templates | None, source: str, image_root: Path
) -> dict[str, Any]:
    """The part of every manifest that says what was built from what."""
    return {
        "tool": tool_version(),
        "source": source,
        "split": options.split,
        "image_root": str(image_root.resolve()),
        "seed": options.seed,
        "depth_ranges": settings["depth_ranges"],
        "prompts": {"folder": str(options.prompts), "sha256": templates.digest} if templates else "own",
        "settings": settings,
    }


def warn_of_gaps(public: PublicMetadata, made: QuestionSet) -> None:
    """One line for each thing that is not as it should be in metadata that others made."""
    lines = {
        f"images are not beside {public.path}; later steps need --images DIR": public.missing_images,
        "units cannot be asked and are left out; see left_out in the manifest": len(made.left_out),
        "true answers cannot score full marks; see unscorable in the manifest": len(made.unscorable),
    }
    for text, count in lines.items():
        if count:
            print(f"warning: {count} {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
