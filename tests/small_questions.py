"""A few images of coloured rectangles with questions about them, for tests that need files and no world."""

from __future__ import annotations

import json
import random
from pathlib import Path

from PIL import Image, ImageDraw

from data_gen.compass import direction_of
from data_gen.questions import own_units, questions_of
from data_gen.records import Question, question_to_row, write_rows
from data_gen.scene_records import SceneImage, SceneObject

SIZE = (160, 96)
COLOURS = ("red", "green", "blue", "yellow")


def make_scenes(images: int, seed: int = 0) -> list[SceneImage]:
    """Images with one object (even ones) or two (odd ones)."""
    rng = random.Random(seed)
    return [SceneImage(f"{index:03d}.png", _objects(1 + index % 2, rng), *SIZE) for index in range(images)]


def make_questions(images: int = 12, seed: int = 0) -> list[Question]:
    """All questions that the scenes allow."""
    units = own_units(make_scenes(images, seed), seed, depth_ranges="fair")
    return [question for unit in units for question in questions_of(unit, "val", "synthetic", "fair")]


def write_small_set(folder: Path, images: int = 12, seed: int = 0) -> Path:
    """Images, manifest.json and questions.jsonl in `folder`; the path of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    for scene in make_scenes(images, seed):
        picture = Image.new("RGB", SIZE, "gray")
        for item in scene.objects:
            ImageDraw.Draw(picture).rectangle(item.box_xyxy_px, fill=item.description.split()[0])
        picture.save(folder / scene.file_name)
    (folder / "manifest.json").write_text(json.dumps({"image_root": ".", "source": "synthetic"}))
    write_rows(folder / "questions.jsonl", map(question_to_row, make_questions(images, seed)))
    return folder / "questions.jsonl"


def perfect_output(question: Question) -> str:
    """The response of a model that knows everything, in original pixels."""
    boxes = ", ".join(f"{item.name}: {list(item.bbox)}" for item in question.objects)
    answer = question.answer_text
    if question.task == "pixel":
        x1, y1, x2, y2 = question.objects[0].bbox
        answer = f"[{(x1 + x2) / 2}, {(y1 + y2) / 2}]"
    return f"<location>{boxes}</location>\n<think>It is plain to see.</think>\n<answer>{answer}</answer>"


def _objects(count: int, rng: random.Random) -> tuple[SceneObject, ...]:
    return tuple(_object(f"{colour} car", rng) for colour in rng.sample(COLOURS, count))


def _object(description: str, rng: random.Random) -> SceneObject:
    x1, y1 = rng.randrange(0, 110), rng.randrange(20, 60)
    x2, y2 = x1 + rng.randrange(20, 50), y1 + rng.randrange(16, 36)
    depth_m, yaw_rad = rng.uniform(5, 40), rng.uniform(-3.1, 3.1)
    centre_m = (rng.uniform(-8, 8), 1.0, depth_m)
    distance_m = sum(value**2 for value in centre_m) ** 0.5
    middle = ((x1 + x2) / 2, (y1 + y2) / 2)
    heading = direction_of(yaw_rad)
    return SceneObject(description, (x1, y1, x2, y2), middle, centre_m, depth_m, distance_m, heading, yaw_rad)
