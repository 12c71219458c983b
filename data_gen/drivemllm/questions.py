"""Images with their objects -> DriveMLLM's questions, one function per kind.

Truths, and how objects are drawn, are those of the published benchmark. The nearer object is the one in front; SURDS,
by the same authors, has the reverse. An exact tie, for which there is no answer, goes to the second object or to No.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from data_gen.drivemllm.prompts import question_text
from data_gen.drivemllm.records import KINDS, TASKS, YES_NO, Answer, DriveMLLMImage, DriveMLLMQuestion, box_in_image
from data_gen.records import QuestionObject
from data_gen.views import METRE_DECIMALS
from rewards.boxes import Size

Objects = Sequence[QuestionObject]


def position_answer(objects: Objects, size_px: Size) -> Answer:
    """PPos: the centre of the 2D box."""
    return objects[0].pixel


def box_answer(objects: Objects, size_px: Size) -> Answer:
    """BBox: the 2D box, up to the last pixel that the benchmark reads."""
    return box_in_image(objects[0].bbox, size_px)


def left_answer(objects: Objects, size_px: Size) -> Answer:
    """L/R: the name of the object with the smaller pixel x."""
    first, second = objects
    return first.name if first.pixel[0] < second.pixel[0] else second.name


def right_answer(objects: Objects, size_px: Size) -> Answer:
    """L/R: the name of the object with the larger pixel x."""
    first, second = objects
    return first.name if first.pixel[0] > second.pixel[0] else second.name


def front_answer(objects: Objects, size_px: Size) -> Answer:
    """F/B: Yes if the first object is nearer along the viewing axis."""
    first, second = objects
    return "Yes" if first.xyz_m[2] < second.xyz_m[2] else "No"


def behind_answer(objects: Objects, size_px: Size) -> Answer:
    """F/B: Yes if the first object is farther along the viewing axis."""
    first, second = objects
    return "Yes" if first.xyz_m[2] > second.xyz_m[2] else "No"


def camera_distance_answer(objects: Objects, size_px: Size) -> Answer:
    """CD: metres from the camera to the 3D centre."""
    return round(math.hypot(*objects[0].xyz_m), METRE_DECIMALS)


def depth_answer(objects: Objects, size_px: Size) -> Answer:
    """CVD: metres to the 3D centre along the viewing axis."""
    return objects[0].xyz_m[2]


def object_distance_answer(objects: Objects, size_px: Size) -> Answer:
    """RD: metres between the two 3D centres."""
    return round(math.dist(objects[0].xyz_m, objects[1].xyz_m), METRE_DECIMALS)


def horizontal_distance_answer(objects: Objects, size_px: Size) -> Answer:
    """RHD: metres between the two 3D centres along the camera's x axis."""
    return round(abs(objects[0].xyz_m[0] - objects[1].xyz_m[0]), METRE_DECIMALS)


ANSWERS: dict[str, Callable[[Objects, Size], Answer]] = {
    "xy": position_answer,
    "box": box_answer,
    "left": left_answer,
    "right": right_answer,
    "front": front_answer,
    "behind": behind_answer,
    "dA": camera_distance_answer,
    "dz": depth_answer,
    "dAB": object_distance_answer,
    "dx": horizontal_distance_answer,
}


def published_questions(
    images: Sequence[DriveMLLMImage], seed: int = 42, source: str = "real"
) -> list[DriveMLLMQuestion]:
    """One question of every kind about every image that has the objects for it, task by task in the paper's order.

    One generator draws the objects and their order, kind by kind in the order of KINDS and image by image, as the
    published zero-shot run does from its seed 42.
    """
    rng = random.Random(seed)
    by_task: dict[str, list[DriveMLLMQuestion]] = {task: [] for task in TASKS}
    for kind, facts in KINDS.items():
        for index, image in enumerate(images):
            if len(image.objects) >= facts.objects:
                drawn = rng.sample(range(len(image.objects)), facts.objects)
                by_task[facts.task].append(question_about(kind, index, image, drawn, source))
    return [question for questions in by_task.values() for question in questions]


def question_about(
    kind: str, index: int, image: DriveMLLMImage, drawn: Sequence[int], source: str
) -> DriveMLLMQuestion:
    """The question of a kind about the image of this index; `drawn`: which of its objects, in the order of asking."""
    objects = tuple(image.objects[place] for place in drawn)
    task = KINDS[kind].task
    options = {"left_right": tuple(item.name for item in image.objects), "front_behind": YES_NO}
    return DriveMLLMQuestion(
        id=f"{kind}-{index}",
        unit_id=f"{task.replace('_', '-')}-{index}",
        task=task,
        paper_task=TASKS[task],
        kind=kind,
        image=image.file_name,
        width=image.width,
        height=image.height,
        question=question_text(kind, [item.name for item in objects]),
        options=options.get(task, ()),
        answer=ANSWERS[kind](objects, image.image_size),
        objects=objects,
        scene=image.scene,
        camera=image.camera,
        split=image.split,
        source=source,
    )
