"""What a build did, in numbers: the manifest beside the question file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

from data_gen.filters import PAPER_VALUES, REASONS, Thresholds
from data_gen.records import Question
from data_gen.scene_builder import JudgedView
from data_gen.scene_records import SceneImage
from rewards.grading import TASKS

# SURDS: key frames read, images kept, single-object images used = pairs, questions.
PAPER_YIELD = {
    "train": {"key_frames": 28130, "images": 168780, "images_kept": 27152, "n": 4108, "questions": 41080},
    "val": {"key_frames": 6019, "images": 36114, "images_kept": 5919, "n": 925, "questions": 9250},
}


@dataclass
class Tally:
    """Running counts of a build: images and objects read, and objects dropped by reason."""

    key_frames: int = 0
    images: int = 0
    objects: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, judged: Iterable[JudgedView]) -> None:
        """Count the views of one more key frame."""
        self.key_frames += 1
        for item in judged:
            self.images += 1
            self.objects += len(item.view)
            self.dropped.update(str(reason) for reason in item.reasons if reason)


def tool_version() -> str:
    """Name and version of this package."""
    return f"drive-spatial-rl {version('drive-spatial-rl')}"


def describe_thresholds(thresholds: Thresholds) -> dict[str, Any]:
    """Every threshold with its value and the paper's, None where the paper gives none."""
    return {name: {"value": value, "paper": PAPER_VALUES.get(name)} for name, value in asdict(thresholds).items()}


def stages(tally: Tally) -> list[dict[str, Any]]:
    """Objects left after each check, in order, with the number that the check dropped."""
    left = tally.objects
    rows: list[dict[str, Any]] = [{"stage": "some part in the image", "left": left}]
    for reason in REASONS:
        left -= tally.dropped[reason]
        rows.append({"stage": reason, "dropped": tally.dropped[reason], "left": left})
    return rows


def counts(tally: Tally, scenes: Sequence[SceneImage], questions: Sequence[Question]) -> dict[str, Any]:
    """Numbers of key frames, images, objects, units and questions, the latter two per task."""
    per_task = Counter(question.task for question in questions)
    units = {(question.task, question.unit) for question in questions}
    per_task_units = Counter(task for task, _ in units)
    return {
        "key_frames": tally.key_frames,
        "images": {
            "read": tally.images,
            "kept": len(scenes),
            "with_one_object": sum(len(scene.objects) == 1 for scene in scenes),
            "with_several": sum(len(scene.objects) > 1 for scene in scenes),
        },
        "objects": {"in_images": tally.objects, "kept": sum(len(scene.objects) for scene in scenes)},
        "stages": stages(tally),
        "dropped": {reason: tally.dropped[reason] for reason in REASONS if tally.dropped[reason]},
        "units": {task: per_task_units[task] for task in TASKS},
        "questions": {task: per_task[task] for task in TASKS} | {"total": len(questions)},
    }
