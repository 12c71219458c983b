"""What a build did, in numbers: the manifest beside the question file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from data_gen.columns import aligned, percent
from data_gen.records import Question
from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import SceneImage
from rewards.grading import TASKS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# SURDS: key frames read, images kept, single-object images used = pairs, questions.
PAPER_YIELD = {
    "train": {"key_frames": 28130, "images": 168780, "images_kept": 27152, "n": 4108, "questions": 41080},
    "val": {"key_frames": 6019, "images": 36114, "images_kept": 5919, "n": 925, "questions": 9250},
}


@dataclass
class Tally:
    """Running counts over images: objects, drops by reason, and how far the object that got farthest got.

    `reasons` are those of the checks, in order; `reached` counts images by the number of checks that some object of
    theirs passed; `twins` are kept objects beside a dropped one of their category, which may be seen all the same.
    """

    reasons: Sequence[str]
    twins: int = 0
    images: int = 0
    objects: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    reached: Counter[int] = field(default_factory=Counter)

    def add(self, image: JudgedImage) -> None:
        """Count one more image."""
        self.images += 1
        self.objects += len(image.scene.objects) + len(image.drops.objects)
        reasons = [item.reason for item in image.drops.objects]
        dropped_categories = {item.category for item in image.drops.objects}
        self.twins += sum(item.category in dropped_categories for item in image.scene.objects)
        self.dropped.update(reasons)
        passed = [len(self.reasons)] if image.scene.objects else [self.reasons.index(reason) for reason in reasons]
        if passed:
            self.reached[max(passed)] += 1


def tool_version() -> str:
    """Name and version of this package."""
    return f"drive-spatial-rl {version('drive-spatial-rl')}"


def describe_thresholds(thresholds: DataclassInstance, paper: Mapping[str, Any]) -> dict[str, Any]:
    """Every threshold with its value and the paper's, None where the paper gives none."""
    return {name: {"value": value, "paper": paper.get(name)} for name, value in asdict(thresholds).items()}


def stages(tally: Tally) -> list[dict[str, Any]]:
    """Objects, and images with an object, left after each check, in order, with the objects that the check dropped."""
    left, images = tally.objects, sum(tally.reached.values())
    rows: list[dict[str, Any]] = [{"stage": "some part in the image", "left": left, "images": images}]
    for place, reason in enumerate(tally.reasons):
        left -= tally.dropped[reason]
        images -= tally.reached[place]
        rows.append({"stage": reason, "dropped": tally.dropped[reason], "left": left, "images": images})
    return rows


def image_counts(tally: Tally, scenes: Sequence[SceneImage]) -> dict[str, Any]:
    """Numbers of images and objects read, kept, and left after each check."""
    return {
        "images": {"read": tally.images, **kept_images(scenes)},
        "objects": {
            "in_images": tally.objects,
            "kept": sum(len(scene.objects) for scene in scenes),
            "kept_beside_a_dropped_one_of_its_category": tally.twins,
        },
        "stages": stages(tally),
        "dropped": {reason: tally.dropped[reason] for reason in tally.reasons if tally.dropped[reason]},
    }


def metadata_counts(scenes: Sequence[SceneImage]) -> dict[str, Any]:
    """Numbers of images and objects of scenes that were chosen elsewhere."""
    return {"images": kept_images(scenes), "objects": {"kept": sum(len(scene.objects) for scene in scenes)}}


def kept_images(scenes: Sequence[SceneImage]) -> dict[str, int]:
    """Numbers of images by how many objects they have."""
    alone = sum(len(scene.objects) == 1 for scene in scenes)
    return {"kept": len(scenes), "with_one_object": alone, "with_several": len(scenes) - alone}


def question_counts(questions: Sequence[Question]) -> dict[str, Any]:
    """Numbers of units and questions per task."""
    per_task = Counter(question.task for question in questions)
    per_task_units = Counter(task for task, _ in {(question.task, question.unit) for question in questions})
    return {
        "units": {task: per_task_units[task] for task in TASKS},
        "questions": {task: per_task[task] for task in TASKS} | {"total": len(questions)},
    }


def summary(manifest: dict[str, Any]) -> str:
    """A few lines for the terminal."""
    images = manifest["images"]
    kinds = f"{images['with_one_object']} with one object, {images['with_several']} with several"
    questions = ", ".join(f"{task} {count}" for task, count in manifest["questions"].items())
    if manifest["source"] == "metadata":
        lines = [f"public metadata {manifest['metadata']}: {images['kept']} images ({kinds})"]
    else:
        share = images["kept"] / images["read"]
        lines = [
            f"{manifest['source']} world {manifest['version']}, split {manifest['split']}: "
            f"{manifest['key_frames']} key frames",
            *aligned([["check", "objects dropped", "left", "images left"], *_funnel(manifest["stages"])]),
            f"{images['kept']:,} of {images['read']:,} images kept, {percent(share)} % (the paper "
            f"{_paper_share(manifest['split'])}): {kinds}",
        ]
    lines.append(f"questions: {questions} ({manifest['depth_ranges']} depth ranges)")
    if "comparison" in manifest:
        lines.append(_shared_line(manifest["comparison"]))
    return "\n".join(lines)


def _funnel(stages: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The checks that dropped something, with what is left after each."""
    first, *others = stages
    rows = [[first["stage"], "", f"{first['left']:,}", f"{first['images']:,}"]]
    return rows + [
        [row["stage"], f"{row['dropped']:,}", f"{row['left']:,}", f"{row['images']:,}"]
        for row in others
        if row["dropped"]
    ]


def _paper_share(split: str) -> str:
    """Share of the images that the paper kept, of both splits where it has no such one."""
    rows = [PAPER_YIELD[split]] if split in PAPER_YIELD else list(PAPER_YIELD.values())
    return f"{percent(sum(row['images_kept'] for row in rows) / sum(row['images'] for row in rows))} %"


def _shared_line(comparison: dict[str, Any]) -> str:
    images, objects = comparison["images"], comparison["objects"]
    return (
        f"shared with the public metadata: {images['shared']} of its {images['public']} images, "
        f"{objects['shared']} of its {objects['public']} objects"
    )
