"""A few images of two things with DriveMLLM questions about them, for tests that need files and no world."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from data_gen.drivemllm.questions import published_questions
from data_gen.drivemllm.records import DriveMLLMImage, image_to_row, question_to_row
from data_gen.records import QuestionObject, write_rows

SIZE = (320, 180)


def small_set(folder: Path, images: int = 8) -> Path:
    """Grey images (odd ones with two objects), metadata.jsonl, questions.jsonl and manifest.json."""
    folder.mkdir(parents=True)
    records = []
    for index in range(images):
        objects = [_thing("red car", 30 + 3 * index, 8.0 + index), _thing("blue bus", 180 + 5 * index, 15.0 - index)]
        records.append(DriveMLLMImage(f"{index:03d}.png", tuple(objects[: 1 + index % 2]), *SIZE))
        Image.new("RGB", SIZE, "gray").save(folder / records[-1].file_name)
    (folder / "manifest.json").write_text(json.dumps({"image_root": ".", "source": "synthetic"}))
    write_rows(folder / "metadata.jsonl", map(image_to_row, records))
    write_rows(folder / "questions.jsonl", map(question_to_row, published_questions(records, source="synthetic")))
    return folder / "questions.jsonl"


def _thing(name: str, x_px: float, depth_m: float) -> QuestionObject:
    return QuestionObject(name, (x_px - 20, 80, x_px + 20, 120), (x_px, 100), (x_px / 50, 1.0, depth_m))
