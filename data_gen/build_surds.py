"""Build the SURDS questions from a nuScenes-format folder.

    python data_gen/build_surds.py --nuscenes DIR --version v1.0-trainval --out DIR

writes `scenes.jsonl` (images with their objects), `questions.jsonl` (six tasks, mirrored pairs) and, last,
`manifest.json` (what was kept, what was dropped and why). A finished build is not repeated with --resume; an
interrupted one starts over, with the same output byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_gen.build_report import PAPER_YIELD, Tally, counts, describe_thresholds, tool_version
from data_gen.command_line import parse_with_config, positive
from data_gen.describe import DESCRIBERS, make_describer
from data_gen.files import write_json
from data_gen.filters import AMBIGUITY_RULES, CLASS_LEVELS, Thresholds
from data_gen.folders import OutputFolder
from data_gen.images import MANIFEST
from data_gen.nuscenes_tables import WorldError
from data_gen.questions import own_units, questions_of
from data_gen.records import Question, RecordError, question_to_row, write_rows
from data_gen.scene_builder import judge_frame, scene_of
from data_gen.scene_records import SceneImage, scene_to_row
from data_gen.world import World, check_files, load_world, select_frames
from rewards.boxes import CoordinateFrame
from rewards.grading import SCORINGS, grade_text

LIDAR_RULES = {
    True: "lidarseg points of the object's own class in its 2D box",
    False: "no lidarseg on disk: lidar points inside the 3D box",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, build, report. Exits with 2 on input that cannot be used."""
    parser = make_parser()
    options = parse_with_config(parser, arguments)
    if options.nuscenes is None:
        parser.error("--nuscenes DIR is needed; make a small world with: python data_gen/synthetic.py --out DIR")
    try:
        thresholds_of(options)
    except ValueError as error:
        parser.error(str(error))
    try:
        manifest = build(options)
    except (WorldError, RecordError, FileNotFoundError, FileExistsError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    print(summary(manifest))
    print(f"written to {options.out}")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nuscenes", type=Path, metavar="DIR", help="nuScenes root: the folder of samples/ and of the tables' folder")
    add("--version", default="v1.0-trainval", help="folder of the tables (default: %(default)s)")
    add("--out", type=Path, default=Path("data/surds"), metavar="DIR", help="folder to write (default: %(default)s)")
    add("--split", choices=("all", "train", "val"), default="all", help="which scenes (default: %(default)s)")
    add_thresholds(parser.add_argument_group("filters"), Thresholds())
    source = "how objects get their names: dominant colour, or what a synthetic world says (default: %(default)s)"
    add("--describer", choices=tuple(DESCRIBERS), default="colour", help=source)
    ranges = "how depth options are made (default: fair for --split train, else official)"
    add("--depth-ranges", choices=("official", "fair"), help=ranges)
    add("--balance", action="store_true", help="as many single-object images as pairs, by leaving out some of the more")
    add("--seed", type=int, default=42, help="seed of option orders, depth ranges and --balance (default: %(default)s)")
    add("--limit", type=positive, metavar="N", help="only the first N key frames")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true", help="keep a finished build, redo an interrupted one")
    either.add_argument("--overwrite", action="store_true", help="empty the output folder first")
    return parser


def add_thresholds(group: argparse._ArgumentGroup, default: Thresholds) -> None:
    """An option for every threshold of the filters; its help says whether the paper gives the value."""
    ambiguity = "when a class repeats: drop the image (paper, default) or only the objects of that class"
    group.add_argument("--ambiguity", choices=AMBIGUITY_RULES, default=default.ambiguity, help=ambiguity)
    level = "a class is the category, or its first two parts (paper gives none; default: %(default)s)"
    group.add_argument("--class-level", choices=CLASS_LEVELS, default=default.class_level, help=level)
    numbers = {
        "min_area_px": "least area of a 2D box, pixels of a 1600x900 image (paper gives none; default: %(default)s)",
        "max_overlap": "share of the smaller of two boxes above which the farther one goes (paper: %(default)s)",
        "min_lidar_points": "least points of its own class in an object's box (paper gives none; default: %(default)s)",
    }
    for name, text in numbers.items():
        value = getattr(default, name)
        group.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, metavar="X", help=text)


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Build into `options.out` and return the manifest."""
    settings = settings_of(options)
    world = load_world(options.nuscenes, options.version)
    frames = select_frames(world, options.split, options.limit)
    check_files(world, frames)
    describer = make_describer(options.describer, options.nuscenes / options.version)
    OutputFolder(options.out, "questions", options.resume, options.overwrite, (options.nuscenes,)).prepare()
    if finished := finished_manifest(options.out, settings):
        return finished
    if not world.has_lidarseg:
        print(f"warning: {LIDAR_RULES[False]}", file=sys.stderr)
    tally, scenes = Tally(), []
    for frame in tqdm((world[place] for place in frames), total=len(frames), unit=" key frames", mininterval=1):
        judged = judge_frame(world, frame, thresholds_of(options), describer)
        tally.add(judged)
        scenes += [scene for scene in (scene_of(frame, item) for item in judged) if scene]
    questions = make_questions(scenes, world, settings)
    write_rows(options.out / "scenes.jsonl", map(scene_to_row, scenes))
    write_rows(options.out / "questions.jsonl", map(question_to_row, questions))
    manifest = header(world, options, settings) | counts(tally, scenes, questions) | {"paper_yield": PAPER_YIELD}
    return write_manifest(options.out, manifest)


def make_questions(scenes: Sequence[SceneImage], world: World, settings: dict[str, Any]) -> list[Question]:
    """All questions of the scenes, each checked to be answerable."""
    depth_ranges = settings["depth_ranges"]
    units = own_units(scenes, settings["seed"], depth_ranges, settings["balance"])
    questions = [
        question for unit in units for question in questions_of(unit, source=world.source, depth_ranges=depth_ranges)
    ]
    for question in questions:
        check_truth(question)
    return questions


def check_truth(question: Question) -> None:
    """Raise RuntimeError when a question's true answer does not score full marks: that is a bug of the builder.

    For a point, whose score is graded, full marks are the reward's: inside the box. The official scoring of points
    knows 1600x900 images only.
    """
    scorings = SCORINGS if question.image_size == (1600, 900) else ("strict",)
    for scoring in scorings:
        text = f"<answer>{question.answer_text}</answer>"
        grade = grade_text(text, question.truth, CoordinateFrame("original"), scoring)
        if grade.reasons or not grade.score:
            raise RuntimeError(f"the true answer of {question.id} fails ({scoring}): {grade}; question: {question}")


def thresholds_of(options: argparse.Namespace) -> Thresholds:
    """The filters' thresholds from the command line."""
    return Thresholds(
        options.min_area_px, options.max_overlap, options.min_lidar_points, options.ambiguity, options.class_level
    )


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """What decides the output: a finished build with the same settings need not be repeated."""
    kept = ("version", "split", "describer", "balance", "seed", "limit")
    fair = options.split == "train"
    return {
        "nuscenes": str(options.nuscenes.resolve()),
        **{name: getattr(options, name) for name in kept},
        "depth_ranges": options.depth_ranges or ("fair" if fair else "official"),
        "thresholds": describe_thresholds(thresholds_of(options)),
    }


def header(world: World, options: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """The part of the manifest that says what was built from what."""
    return {
        "tool": tool_version(),
        "source": world.source,
        "version": world.version,
        "split": options.split,
        "image_root": settings["nuscenes"],
        "seed": options.seed,
        "lidar_rule": LIDAR_RULES[world.has_lidarseg],
        "settings": settings,
    }


def finished_manifest(out: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of a finished build, or None. Raises FileExistsError when it was made with other settings."""
    path = out / MANIFEST
    if not path.is_file():
        return None
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("settings") != settings:
        raise FileExistsError(f"{out} holds a build with other settings; choose another --out or --overwrite it")
    return manifest


def write_manifest(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest, which marks a finished build."""
    write_json(out / MANIFEST, manifest)
    return manifest


def summary(manifest: dict[str, Any]) -> str:
    """A few lines for the terminal."""
    images, questions, dropped = manifest["images"], manifest["questions"], manifest["dropped"]
    lines = [
        f"{manifest['source']} world {manifest['version']}, split {manifest['split']}: "
        f"{manifest['key_frames']} key frames",
        f"{images['kept']} of {images['read']} images kept ({images['with_one_object']} with one object, "
        f"{images['with_several']} with several)",
        "objects dropped: " + (", ".join(f"{reason} {count}" for reason, count in dropped.items()) or "none"),
        "questions: " + ", ".join(f"{task} {count}" for task, count in questions.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
