"""One page to look at a question file: images with boxes, headings, questions, answers, and what was dropped and why.

    python data_gen/gallery.py data/surds/questions.jsonl --out gallery.html

The page needs no network and no other file. `scenes.jsonl`, `dropped.jsonl` and `manifest.json` beside the questions
add the other objects of an image, the dropped ones, images of which nothing was kept, and the totals.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_gen.command_line import HelpFormatter, UsageError, positive
from data_gen.files import write_whole
from data_gen.filters import GEOMETRIC_REASONS
from data_gen.floors import Unit
from data_gen.gallery_cards import Card, choose_units, empty_card, in_words, unit_card
from data_gen.images import MANIFEST, image_root
from data_gen.pages import TASK_TITLES, Picture, load_picture, page_template
from data_gen.questions import DEPTH_TIE_M, DISTANCE_TIE_M, PIXEL_TIE_PX
from data_gen.records import Question, RecordError, read_questions, read_records
from data_gen.scene_records import DroppedObjects, SceneImage, drops_from_row, scene_from_row
from rewards.boxes import Size
from rewards.grading import TASKS

TEMPLATE = Path(__file__).with_name("gallery_template.html")
LARGEST_SIDE_PX = 1000
EMPTY_IMAGES = 6
RULES = {
    "yaw": "The camera faces North in the first question, South in the second; seen from above, clockwise, East is to "
    "the right of the image.",
    "pixel": "Where the centre of the object is in the image.",
    "depth": "Metres along the viewing axis.",
    "distance": f"Metres from the camera; at most {DISTANCE_TIE_M:g} m apart is almost the same.",
    "left_right": f"By the centres in the image; less than {PIXEL_TIE_PX:g} pixels of 1600 apart is almost the same.",
    "front_behind": f"The farther object counts as in front; less than {DEPTH_TIE_M:g} m of depth apart is almost the "
    "same.",
}


@dataclass(frozen=True)
class Beside:
    """What lies beside a question file, of the images that are shown. reasons: dropped objects by reason, in all.

    empty: a few images of which nothing was kept, without those that show no vehicle and no pedestrian.
    """

    scenes: dict[str, SceneImage] = field(default_factory=dict)
    drops: dict[str, DroppedObjects] = field(default_factory=dict)
    empty: tuple[DroppedObjects, ...] = ()
    reasons: dict[str, int] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page; 0, or 2 with the remedy when the input cannot be used."""
    options = make_parser().parse_args(argv)
    try:
        print(write_gallery(options.questions, options.out, options.images, options.per_task, options.seed))
    except (UsageError, RecordError, OSError) as error:
        print(f"data_gen/gallery.py: error: {error}", file=sys.stderr)
        return 2
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("questions", type=Path, help="a questions.jsonl, as data_gen/build_surds.py writes it")
    parser.add_argument("--out", type=Path, default=Path("gallery.html"), metavar="FILE", help="the page")
    parser.add_argument(
        "--images", type=Path, metavar="DIR", help="folder of the images (default: what manifest.json says)"
    )
    parser.add_argument("--per-task", type=positive, default=12, metavar="N", help="units of each task")
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn")
    return parser


def write_gallery(path: Path, out: Path, images: Path | None, per_task: int, seed: int) -> str:
    """Write the page for a question file; returns a line on what it holds. Raises UsageError, RecordError, OSError."""
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsageError(f"--out names the page, a file that ends in .html; got {out}")
    questions = read_questions(path)
    root = image_root(path, images)
    units = choose_units(questions, per_task, seed)
    beside = read_beside(path.parent, questions, {unit[0].image for unit in units}, seed)
    pictures = load_pictures(root, _sizes(units, beside.empty))
    cards = [_card_of(unit, beside, pictures) for unit in units]
    cards += [empty_card(drops, pictures[drops.file_name]) for drops in beside.empty]
    write_whole(out, render(path, questions, cards, beside, seed))
    return _told(out, cards, pictures)


def read_beside(folder: Path, questions: Sequence[Question], shown: set[str], seed: int) -> Beside:
    """What lies in the folder of a question file about the images in `shown`; files are read line by line."""
    kept = {question.image for question in questions}
    scenes = {}
    for scene in _records(folder / "scenes.jsonl", scene_from_row):
        kept.add(scene.file_name)
        if scene.file_name in shown:
            scenes[scene.file_name] = scene
    drops: dict[str, DroppedObjects] = {}
    reasons: Counter[str] = Counter()
    rng = random.Random(seed)
    empty: list[tuple[float, DroppedObjects]] = []
    for image in _records(folder / "dropped.jsonl", drops_from_row):
        reasons.update(item.reason for item in image.objects)
        if image.file_name in shown:
            drops[image.file_name] = image
        elif image.file_name not in kept and _asked_about(image):
            empty = heapq.nsmallest(EMPTY_IMAGES, [*empty, (rng.random(), image)], key=lambda item: item[0])
    return Beside(
        scenes, drops, tuple(image for _, image in empty), dict(reasons.most_common()), _manifest(folder / MANIFEST)
    )


def load_pictures(root: Path, sizes: dict[str, Size]) -> dict[str, Picture]:
    """The images of these sizes, each once. Raises UsageError when not one of them is there."""
    if not any((root / name).is_file() for name in sizes):
        raise UsageError(f"none of the {len(sizes)} images is under {root}, such as {next(iter(sizes))}; give --images")
    return {
        name: load_picture(root / name, size, f"image{place}", LARGEST_SIDE_PX)
        for place, (name, size) in enumerate(sizes.items())
    }


def render(path: Path, questions: Sequence[Question], cards: Sequence[Card], beside: Beside, seed: int) -> str:
    """The page as text; everything that comes from a file is escaped."""
    shown = [card for card in cards if card.questions]
    return page_template(TEMPLATE).render(
        file=path,
        seed=seed,
        counts=_counts(questions, shown),
        questions=len(questions),
        images=len({question.image for question in questions}),
        origins=_origins(questions),
        synthetic=any(question.source == "synthetic" for question in questions),
        titles=TASK_TITLES,
        rules=RULES,
        sections={task: [card for card in shown if card.task == task] for task in TASKS},
        empty=[card for card in cards if not card.questions],
        pictures={card.picture.key: card.picture for card in cards}.values(),
        cameras=_names(card.camera for card in cards),
        splits=_names(card.split for card in cards),
        reasons=beside.reasons,
        stages=_stages(beside.manifest),
        in_words=in_words,
    )


def _records(path: Path, convert: Callable[[dict[str, Any]], Any]) -> Iterator[Any]:
    """The records of a file, none where it is not there."""
    return (record for _, record in read_records(path, convert)) if path.is_file() else iter(())


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest of a build, empty where there is none. Raises RecordError."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise RecordError(f"{path} is no manifest: {error}") from error
    if not isinstance(manifest, dict):
        raise RecordError(f"{path} is no manifest: an object was expected, got {type(manifest).__name__}")
    return manifest


def _asked_about(image: DroppedObjects) -> bool:
    """Whether some object is of a kind that questions ask about."""
    return any(item.reason != GEOMETRIC_REASONS[0] for item in image.objects)


def _sizes(units: Sequence[Unit], empty: Sequence[DroppedObjects]) -> dict[str, Size]:
    sizes = {unit[0].image: unit[0].image_size for unit in units}
    return sizes | {drops.file_name: (drops.width, drops.height) for drops in empty}


def _card_of(unit: Unit, beside: Beside, pictures: dict[str, Picture]) -> Card:
    image = unit[0].image
    return unit_card(unit, pictures[image], beside.scenes.get(image), beside.drops.get(image))


def _counts(questions: Sequence[Question], shown: Sequence[Card]) -> list[tuple[str, int, int, int]]:
    """Task, units, questions and units shown, of the tasks that have questions."""
    asked = Counter(question.task for question in questions)
    units = Counter(task for task, _ in {(question.task, question.unit) for question in questions})
    drawn = Counter(card.task for card in shown)
    return [(task, units[task], asked[task], drawn[task]) for task in TASKS if asked[task]]


def _origins(questions: Sequence[Question]) -> dict[str, str]:
    """Where the questions come from: each field with its values."""
    values = {
        "source": {question.source for question in questions},
        "split": {question.split for question in questions},
        "depth ranges": {question.depth_ranges for question in questions if question.task == "depth"},
    }
    return {name: ", ".join(sorted(filter(None, found))) for name, found in values.items() if any(found)}


def _stages(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The stages of a build by our own builder, of other manifests none."""
    stages = manifest.get("stages")
    return [row for row in stages if isinstance(row, dict) and row.keys() >= {"stage", "left"}] if stages else []


def _names(names: Iterator[str]) -> list[str]:
    return sorted(set(filter(None, names)))


def _told(out: Path, cards: Sequence[Card], pictures: dict[str, Picture]) -> str:
    missing = sum(picture.uri is None for picture in pictures.values())
    lines = [f"{out}: {len(cards)} cards on {len(pictures)} images, {out.stat().st_size / 2**20:.1f} MB"]
    if missing:
        lines.append(f"{missing} of these images are missing; give the folder that holds them with --images")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
