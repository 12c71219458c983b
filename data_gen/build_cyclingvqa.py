"""Build items of CyclingVQA's eight tasks from annotated photographs, or from a small drawn sample.

    python data_gen/build_cyclingvqa.py --annotations FILE --images DIR --out DIR
    python data_gen/build_cyclingvqa.py --sample --out DIR

writes `items.jsonl`, `images/` (photographs with numbered boxes and shaded lanes drawn on them), `dropped.jsonl` (what
gave no item of a task, and why) and, last, `manifest.json`. With --resume a finished build is not repeated, and images
that an interrupted one has drawn are kept.

The annotations are JSON Lines, one photograph a line:

    {"image": "a.jpg", "ride": "monday", "frame": 12,
     "signs": [{"box": [x1, y1, x2, y2], "label": "no cycling", "depth_order": 1}],
     "others": [{"box": [x1, y1, x2, y2], "label": "poster", "depth_order": 2}],
     "lanes": [{"polygon": [[x, y], [x, y], [x, y]], "use": "bicycle", "cycling_allowed": true}]}

Pixels of the upright image. All signs of a photograph are listed. depth_order 1 is nearest. `frame` orders the
photographs of a ride. The lane of use "bicycle" is the cyclist's. Everything but `image` may be left out: the tasks
that need it then have no item of that photograph.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_gen.build_folder import finish_build, finished_build, start_build
from data_gen.build_report import tool_version
from data_gen.command_line import UsageError, ends_well, parse_with_config, positive
from data_gen.cycling.annotations import Photo, read_annotations, sizes_of
from data_gen.cycling.catalogue import SIGN_LABELS, read_catalogue, without
from data_gen.cycling.drafts import Dealer, Draft, Drop
from data_gen.cycling.items import item_of, make_drafts, picture_of
from data_gen.cycling.records import ITEMS, MOST_CHOICES, TASKS, CyclingItem, item_to_row
from data_gen.files import write_whole
from data_gen.folders import OutputFolder
from data_gen.records import RecordError, write_rows
from rewards.boxes import Size

SAMPLE_COMMAND = "python data_gen/build_cyclingvqa.py --sample --out DIR"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, build, report. Exits with 2 on input that cannot be used."""
    parser = make_parser()
    options = parse_with_config(parser, arguments)
    check_options(parser, options)
    with ends_well(parser, UsageError, RecordError, OSError):
        manifest = build(options)
    print(summary(manifest))
    print(f"written to {options.out}")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--annotations", type=Path, metavar="FILE", help="annotated photographs, JSON Lines as above")
    add("--images", type=Path, metavar="DIR", help="folder of the photographs (default: that of the annotations)")
    add("--sample", action="store_true", help="instead of --annotations: draw a few rides and use those")
    add("--out", type=Path, default=Path("data/cyclingvqa"), metavar="DIR", help="folder (default: %(default)s)")
    catalogue = "labels to draw wrong choices from, one a line (default: our own and those of the annotations)"
    add("--catalogue", type=Path, metavar="FILE", help=catalogue)
    choices = f"choices of an item about labels, and regions of TSG, 2 to {MOST_CHOICES} (default: %(default)s)"
    add("--choices", type=positive, default=7, metavar="N", help=choices)
    add("--seed", type=int, default=0, help="seed of what is asked, the wrong choices and the places of the right ones")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true", help="keep a finished build, go on with an interrupted one")
    either.add_argument("--overwrite", action="store_true", help="empty the output folder first")
    return parser


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with 2 on options that do not go together or are out of range."""
    if options.sample and (options.annotations or options.images):
        parser.error("--sample draws its own photographs: leave out --annotations and --images")
    if not options.sample and options.annotations is None:
        parser.error(f"--annotations FILE is needed; make a small sample with: {SAMPLE_COMMAND}")
    if not 2 <= options.choices <= MOST_CHOICES:
        parser.error(f"--choices is 2 to {MOST_CHOICES}, got {options.choices}")


def build(options: argparse.Namespace) -> dict[str, Any]:
    """Build into `options.out` and return the manifest."""
    catalogue = read_catalogue(options.catalogue) if options.catalogue else None
    photos = [] if options.sample else read_annotations(options.annotations)
    images = options.images or (options.annotations.parent if options.annotations else Path())
    sizes = sizes_of(photos, images)
    settings = settings_of(options)
    inputs = (*(path for path in (options.annotations, options.catalogue) if path), *(images / p.image for p in photos))
    folder = OutputFolder(options.out, "cyclingvqa", options.resume, options.overwrite, inputs)
    if finished := finished_build(folder, settings, settings):
        return finished
    start_build(folder, settings)
    if options.sample:
        photos, images, sizes = drawn_sample(options.out, options.seed)
    labels = catalogue or without([*SIGN_LABELS, *(sign.label for photo in photos for sign in photo.signs)], [])
    made = list(make_drafts(photos, sizes, Dealer(options.seed, options.choices, labels)))
    drafts = [item for item in made if isinstance(item, Draft)]
    if not drafts:
        raise RecordError(f"none of the {len(photos)} photographs gives an item; what a line holds: --help")
    items = write_items(options.out, drafts, images, sizes, "synthetic" if options.sample else "real")
    drops = [item for item in made if isinstance(item, Drop)]
    write_rows(options.out / "dropped.jsonl", map(asdict, drops))
    return finish_build(options.out, manifest_of(settings, photos, items, drops))


def drawn_sample(out: Path, seed: int) -> tuple[list[Photo], Path, dict[str, Size]]:
    """The drawn photographs, which become part of the output."""
    from data_gen.cycling.sample import write_sample

    annotations, images = write_sample(out / "sample", seed)
    photos = read_annotations(annotations)
    return photos, images, sizes_of(photos, images)


def write_items(
    out: Path, drafts: Sequence[Draft], images: Path, sizes: dict[str, Size], source: str
) -> list[CyclingItem]:
    """Write the images that are not there yet, then the items."""
    from tqdm import tqdm

    counts: Counter[str] = Counter()
    items = []
    for draft in tqdm(drafts, unit=" items", mininterval=1):
        item = item_of(draft, counts[draft.task], source)
        counts[draft.task] += 1
        items.append(item)
        if draft.regions or draft.lanes:
            if not (out / item.images[0]).is_file():
                write_whole(out / item.images[0], picture_of(draft, images, sizes))
            continue
        for name, photo in zip(item.images, draft.photos, strict=True):
            if not (out / name).is_file():
                write_whole(out / name, (images / photo).read_bytes())
    write_rows(out / ITEMS, map(item_to_row, items))
    return items


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """What decides the output: a finished build with the same settings need not be repeated."""
    return {
        "tool": tool_version(),
        "annotations_sha256": _digest(options.annotations) if options.annotations else "sample",
        "images": str(options.images.resolve()) if options.images else None,
        "catalogue_sha256": _digest(options.catalogue) if options.catalogue else None,
        "choices": options.choices,
        "seed": options.seed,
    }


def manifest_of(
    settings: dict[str, Any], photos: Sequence[Photo], items: Sequence[CyclingItem], drops: Sequence[Drop]
) -> dict[str, Any]:
    """What was made, how even it is, and what was dropped."""
    dropped = Counter((drop.task, drop.reason) for drop in drops)
    by_task = {task: [item for item in items if item.task == task] for task in TASKS}
    return {
        "benchmark": "CyclingVQA",
        "tool": tool_version(),
        "source": items[0].source,
        "image_root": ".",
        "settings": settings,
        "photos": len(photos),
        "items": {task: len(made) for task, made in by_task.items()} | {"total": len(items)},
        "answers": {
            task: dict(sorted(Counter(item.answer for item in made).items())) for task, made in by_task.items()
        },
        "choices": {task: _counted(str(len(item.choices)) for item in made) for task, made in by_task.items()},
        "dropped": {task: {reason: count for (of, reason), count in dropped.items() if of == task} for task in TASKS},
    }


def summary(manifest: dict[str, Any]) -> str:
    """A few lines for the terminal."""
    items = manifest["items"]
    lines = [
        f"source {manifest['source']}: {items['total']} items from {manifest['photos']} photographs",
        "items: " + ", ".join(f"{task} {items[task]}" for task in TASKS),
    ]
    told = [
        f"{task} {reason} {count}" for task, reasons in manifest["dropped"].items() for reason, count in reasons.items()
    ]
    return "\n".join([*lines, *(["dropped: " + ", ".join(told)] if told else [])])


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
