"""What a DriveMLLM build did, in numbers: the parts of the manifest beside its question file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data_gen.build_report import Tally, image_counts
from data_gen.drivemllm.filters import GEOMETRIC_REASONS
from data_gen.drivemllm.front_images import NOT_LISTED
from data_gen.drivemllm.keep_list import Found, Listed
from data_gen.drivemllm.records import KINDS, TASKS, DriveMLLMQuestion
from data_gen.filters import DESCRIPTION_REASONS
from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import SceneImage

REASONS = (*GEOMETRIC_REASONS, NOT_LISTED, *DESCRIPTION_REASONS)
PAPER_YIELD = {
    "images_passing_filters": 2734,
    "images_picked_by_hand": 880,
    "questions_of_each_kind_about_one_object": 880,
    "questions_of_each_kind_about_two_objects": 191,
}


def filter_counts(tally: Tally, scenes: Sequence[SceneImage]) -> dict[str, Any]:
    """Images and objects after each stage, and dropped objects by reason."""
    counts = image_counts(tally, scenes)
    after = {row["stage"]: row["images"] for row in counts["stages"]}
    return counts | {"images": {"passing_filters": after[GEOMETRIC_REASONS[-1]], **counts["images"]}}


def keep_list_report(listed: Sequence[Listed], found: Found, images: Sequence[JudgedImage]) -> dict[str, Any]:
    """How many of the listed images were found and kept, and by name why the others were not.

    images: all front images in the order in which they were read, judged and described.
    """
    not_kept = {}
    for place, item in enumerate(listed):
        image = images[found.images[place]] if place in found.images else None
        if image is None:
            not_kept[item.name] = "no front image of the key frames that were read"
        elif not image.scene.objects:
            not_kept[item.name] = _why_dropped(image)
    return {
        "names": len(listed),
        "found_by_name": found.by_name,
        "found_by_object_centres": found.by_centres,
        "kept": len(listed) - len(not_kept),
        "not_kept": not_kept,
    }


def _why_dropped(image: JudgedImage) -> str:
    counts = Counter(item.reason for item in image.drops.objects)
    listed = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
    return f"no object left: {listed}" if listed else "no object in the image"


def question_counts(questions: Sequence[DriveMLLMQuestion]) -> dict[str, Any]:
    """Numbers of questions per task and per kind."""
    tasks, kinds = (Counter(getattr(question, name) for question in questions) for name in ("task", "kind"))
    return {
        "questions": {task: tasks[task] for task in TASKS} | {"total": len(questions)},
        "questions_by_kind": {kind: kinds[kind] for kind in KINDS},
    }


def summary(manifest: Mapping[str, Any]) -> str:
    """A few lines for the terminal."""
    images, kinds = manifest["images"], manifest["questions_by_kind"]
    of_one, of_two = (PAPER_YIELD[f"questions_of_each_kind_about_{number}"] for number in ("one_object", "two_objects"))
    lines = [
        f"source {manifest['source']}: {images['kept']} of {images['read']} images kept ({images['with_one_object']} "
        f"with one object, {images['with_several']} with several)",
        "questions: " + ", ".join(f"{TASKS[task]} {manifest['questions'][task]}" for task in TASKS),
        f"of each kind about one object {kinds['xy']} (paper: {of_one}), about two {kinds['left']} (paper: {of_two})",
    ]
    if manifest.get("dropped"):
        lines.insert(1, "objects dropped: " + ", ".join(f"{why} {count}" for why, count in manifest["dropped"].items()))
    if manifest.get("keep_list"):
        report = manifest["keep_list"]
        lines.append(f"keep list: {report['kept']} of {report['names']} images kept; the others are in the manifest")
    return "\n".join(lines)
