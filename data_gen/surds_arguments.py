"""The command line of the SURDS builder, and which of its options decide what is built."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from data_gen.build_report import describe_thresholds, tool_version
from data_gen.command_line import UsageError, available_cores, positive, version_name
from data_gen.depth_ranges import DEPTH_RANGES
from data_gen.describe import DescriberOptions, add_describer_options, describer_options
from data_gen.files import read_json
from data_gen.filters import AMBIGUITY_RULES, CLASS_LEVELS, PAPER_VALUES, Thresholds
from data_gen.images import MANIFEST
from data_gen.nuscenes_splits import SPLITS
from data_gen.scene_builder import PIXELS
from data_gen.templates import Templates
from data_gen.world import has_lidarseg, tables_checksum
from rewards.grading import TASKS

# What questions depend on beside the scenes.
QUESTION_SETTINGS = ("seed", "depth_ranges", "prompts", "balance", "tasks", "limit_units")
# Options that only a build from a nuScenes folder reads.
WORLD_OPTIONS = (
    "version", "split", "limit", "pixel", "compare_metadata", "describer", "describer_model", "endpoint",
    "concurrency", "describer_batch_size", "min_area_px", "max_overlap", "min_lidar_points", "ambiguity", "class_level",
)  # fmt: skip


def make_parser(description: str) -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nuscenes", type=Path, metavar="DIR", help="nuScenes root: the folder of samples/ and of the tables' folder")
    public = "instead of --nuscenes: the public metadata, a folder with metadata.jsonl or a dataset's name on the hub"
    add("--from-metadata", metavar="PATH|HUB_ID", help=public)
    scenes = "instead of --nuscenes: the folder of a finished build, of whose scenes other questions are made"
    add("--from-scenes", type=Path, metavar="DIR", help=scenes)
    add("--version", type=version_name, default="v1.0-trainval", help="folder of the tables (default: %(default)s)")
    add("--out", type=Path, default=Path("data/surds"), metavar="DIR", help="folder to write (default: %(default)s)")
    add("--split", choices=("all", *SPLITS), default="all", help="which scenes (default: %(default)s)")
    add_thresholds(parser.add_argument_group("filters"), Thresholds())
    add_describer_options(parser.add_argument_group("descriptions"))
    add_question_options(parser.add_argument_group("questions"))
    shared = "counts images and objects shared with the public metadata, and how they differ, into the manifest"
    add("--compare-metadata", metavar="PATH|HUB_ID", help=shared)
    add("--limit", type=positive, metavar="N", help="only the first N key frames")
    add("--workers", type=positive, default=available_cores(), metavar="N", help="processes (default: all cores)")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true", help="keep a finished build, go on with an interrupted one")
    either.add_argument("--overwrite", action="store_true", help="empty the output folder first")
    return parser


def add_question_options(group: argparse._ArgumentGroup) -> None:
    """What questions are made of the scenes, and how they are worded."""
    add = group.add_argument
    ranges = "how depth options are made (default: fair for --split train, else official; matched: give less away)"
    add("--depth-ranges", choices=DEPTH_RANGES, help=ranges)
    add("--balance", action="store_true", help="as many single-object images as pairs, by leaving out some of the more")
    few = "at most N units of every task, drawn; the three tasks that compare keep the same pairs (default: all)"
    add("--limit-units", type=positive, metavar="N", help=few)
    some = f"questions of some of {','.join(TASKS)}, the same ones as in a build of all (default: all)"
    add("--tasks", type=tasks_named, default=TASKS, metavar="TASK[,TASK]", help=some)
    where = "where an object is: its projected 3D centre, or the centre of its 2D box (default: %(default)s)"
    add("--pixel", choices=PIXELS, default="centre", help=where)
    add(
        "--prompts",
        type=Path,
        metavar="DIR",
        help="prompts from your templates, one .txt a task with {} slots (see data_gen/templates.py)",
    )
    add(
        "--seed",
        type=int,
        default=42,
        help="seed of option orders, depth ranges, --balance and --limit-units (default: %(default)s)",
    )


def tasks_named(text: str) -> tuple[str, ...]:
    """Tasks separated by commas, in the order of the benchmark, for the `type` of an option."""
    wanted = [name.strip() for name in text.split(",")]
    if unknown := [name for name in wanted if name not in TASKS]:
        raise argparse.ArgumentTypeError(f"unknown task {', '.join(map(repr, unknown))}; known: {', '.join(TASKS)}")
    return tuple(task for task in TASKS if task in wanted)


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


def check_options(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Raise UsageError or ValueError for options that are missing, do not fit together, or are out of range."""
    sources = [name for name in ("from_metadata", "from_scenes", "nuscenes") if getattr(options, name) is not None]
    if not sources:
        raise UsageError(
            "--nuscenes DIR or --from-metadata PATH|HUB_ID is needed; make a small world with: "
            "python data_gen/synthetic.py --out DIR"
        )
    thresholds_of(options)
    if options.split == "test" and (options.from_metadata or options.compare_metadata) is not None:
        raise UsageError("the public metadata has the splits train and val; leave out --split test")
    if sources == ["nuscenes"]:
        return
    read = {"from_metadata": ("split",), "from_scenes": ("balance", "limit_units")}[sources[0]]
    others = [name for name in ("balance", "limit_units", *WORLD_OPTIONS) if name not in read]
    given = sources[1:] + [name for name in others if getattr(options, name) != parser.get_default(name)]
    if given:
        named = ", ".join(map(_option, given))
        raise UsageError(f"{_option(sources[0])} takes scenes as they are: leave out {named}")


def thresholds_of(options: argparse.Namespace) -> Thresholds:
    """The filters' thresholds from the command line."""
    return Thresholds(
        options.min_area_px, options.max_overlap, options.min_lidar_points, options.ambiguity, options.class_level
    )


def depth_ranges_of(options: argparse.Namespace) -> str:
    """Fair ranges for training, the published ones otherwise, unless told."""
    split = options.split
    if options.from_scenes is not None and (options.from_scenes / MANIFEST).is_file():
        split = read_json(options.from_scenes / MANIFEST).get("split")
    chosen: str = options.depth_ranges or ("fair" if split == "train" else "official")
    return chosen


def describer_of(options: argparse.Namespace) -> DescriberOptions:
    """Which describer. Raises UsageError as `describer_options` does."""
    return describer_options(options, options.nuscenes / options.version)


def settings_of(options: argparse.Namespace, templates: Templates | None) -> dict[str, Any]:
    """What decides the output: a finished build with the same settings need not be repeated."""
    shared: dict[str, Any] = {
        "split": options.split,
        "seed": options.seed,
        "depth_ranges": depth_ranges_of(options),
        "prompts": templates.digest if templates else "own",
        **({"tasks": list(options.tasks)} if options.tasks != TASKS else {}),
    }
    if options.from_metadata is not None:
        given = Path(options.from_metadata)
        return {"from_metadata": str(given.resolve()) if given.exists() else options.from_metadata, **shared}
    shared["balance"] = options.balance
    if options.limit_units is not None:
        shared["limit_units"] = options.limit_units
    if options.from_scenes is not None:
        return {"from_scenes": str(options.from_scenes.resolve()), **shared}
    kept = ("version", "limit", "pixel")
    return {
        "tool": tool_version(),
        "nuscenes": str(options.nuscenes.resolve()),
        "tables": tables_checksum(options.nuscenes, options.version),
        "lidarseg": has_lidarseg(options.nuscenes, options.version),
        **shared,
        **{name: getattr(options, name) for name in kept},
        **describer_of(options).settings,
        "thresholds": describe_thresholds(thresholds_of(options), PAPER_VALUES),
    }


def of_scenes(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that scenes depend on. Where the folder lies does not matter: its tables are known by content."""
    return {name: value for name, value in settings.items() if name not in (*QUESTION_SETTINGS, "nuscenes")}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
