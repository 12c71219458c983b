"""What a DriveMLLM build did, in numbers: the parts of the manifest beside its question file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from data_gen.drivemllm import KINDS, TASKS, DriveMLLMImage, DriveMLLMQuestion
from data_gen.drivemllm_filters import GEOMETRIC_REASONS, PAPER_VALUES, FrontThresholds
from data_gen.front_images import FrontImage
from data_gen.keep_list import Found, Listed

Problems = Mapping[str, Counter[str]]  # by image file: why objects got no description
NOT_LISTED = "image_not_in_keep_list"
PAPER_YIELD = {
    "images_passing_filters": 2734,
    "images_picked_by_hand": 880,
    "questions_of_each_kind_about_one_object": 880,
    "questions_of_each_kind_about_two_objects": 191,
}


def describe_thresholds(thresholds: FrontThresholds) -> dict[str, Any]:
    """Every threshold with its value and the paper's, None where the paper gives none."""
    return {name: {"value": value, "paper": PAPER_VALUES.get(name)} for name, value in asdict(thresholds).items()}


def filter_counts(
    read: Sequence[FrontImage], chosen: Sequence[FrontImage], problems: Problems, images: Sequence[DriveMLLMImage]
) -> dict[str, Any]:
    """Images and objects after each stage, and dropped objects by reason.

    read: all front images; chosen: those that the keep list names, all without one; images: what is left at the end.
    """
    dropped = Counter(str(reason) for image in read for reason in image.reasons if reason)
    passing = sum(len(image.kept) for image in read)
    listed = sum(len(image.kept) for image in chosen)
    dropped[NOT_LISTED] = passing - listed
    unnamed: Counter[str] = sum(problems.values(), Counter())
    dropped += unnamed
    left = sum(len(image.view) for image in read)
    stages: list[dict[str, Any]] = [{"stage": "some part in the image", "left": left}]
    unlisted = [NOT_LISTED] if dropped[NOT_LISTED] else []
    for reason in [*GEOMETRIC_REASONS, *unlisted, *sorted(unnamed)]:
        left -= dropped[reason]
        stages.append({"stage": reason, "dropped": dropped[reason], "left": left})
    return {
        "images": {
            "read": len(read),
            "passing_filters": sum(bool(image.kept) for image in read),
            "kept": len(images),
            "with_one_object": sum(len(image.objects) == 1 for image in images),
            "with_several": sum(len(image.objects) > 1 for image in images),
        },
        "stages": stages,
        "dropped": {stage["stage"]: stage["dropped"] for stage in stages[1:] if stage["dropped"]},
    }


def keep_list_report(
    listed: Sequence[Listed], found: Found, read: Sequence[FrontImage], problems: Problems, kept: set[str]
) -> dict[str, Any]:
    """How many of the listed images were found and kept (file names), and by name why the others were not."""
    not_kept = {}
    for place, item in enumerate(listed):
        image = read[found.images[place]] if place in found.images else None
        if image is None:
            not_kept[item.name] = "no front image of the key frames that were read"
        elif image.file_name not in kept:
            not_kept[item.name] = _why_dropped(image, problems.get(image.file_name, Counter()))
    return {
        "names": len(listed),
        "found_by_name": found.by_name,
        "found_by_object_centres": found.by_centres,
        "kept": len(listed) - len(not_kept),
        "not_kept": not_kept,
    }


def _why_dropped(image: FrontImage, problems: Counter[str]) -> str:
    counts = Counter(str(reason) for reason in image.reasons if reason) + problems
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
