"""DriveMLLM's records: images with their objects (`metadata.jsonl`) and questions (`questions.jsonl`).

Ten kinds of questions make the eight tasks of the paper: left and right are asked apart, and so are front and behind.
The columns of an image are those of the public metadata and ours, so that either file loads. Pixels are original
ones, metres those of the camera (x right, y down, z ahead).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from data_gen.records import QuestionObject, RecordError, flat_row, nested_row, read_records
from rewards.boxes import Box, Size
from rewards.response import holds_markup

Answer = str | float | tuple[float, ...]
YES_NO = ("Yes", "No")

# Field name -> the paper's abbreviation, in the paper's order.
TASKS = {
    "left_right": "L/R",
    "front_behind": "F/B",
    "horizontal_distance": "RHD",
    "object_distance": "RD",
    "position": "PPos",
    "box": "BBox",
    "depth": "CVD",
    "camera_distance": "CD",
}


@dataclass(frozen=True)
class Kind:
    """One way of asking: its task, and the number of objects that it names."""

    task: str
    objects: int


# In the order of the published prompt files, whose names these are.
KINDS = {
    "xy": Kind("position", 1),
    "box": Kind("box", 1),
    "left": Kind("left_right", 2),
    "right": Kind("left_right", 2),
    "front": Kind("front_behind", 2),
    "behind": Kind("front_behind", 2),
    "dA": Kind("camera_distance", 1),
    "dz": Kind("depth", 1),
    "dAB": Kind("object_distance", 2),
    "dx": Kind("horizontal_distance", 2),
}


@dataclass(frozen=True)
class DriveMLLMImage:
    """One image with its objects; a line of `metadata.jsonl`. A size of 0 x 0: the record does not say.

    An object's `pixel` is the centre of its 2D box, as in the public metadata (SURDS has the projected 3D centre).
    """

    file_name: str
    objects: tuple[QuestionObject, ...]
    width: int = 0
    height: int = 0
    camera: str = ""
    scene: str = ""
    sample_token: str = ""
    split: str = ""
    annotation_tokens: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := _image_problem(self):
            raise ValueError(problem)

    @property
    def image_size(self) -> Size:
        """Width and height of the image file in pixels, 0 where the record does not say."""
        return self.width, self.height


@dataclass(frozen=True)
class DriveMLLMQuestion:
    """One question; a line of DriveMLLM's `questions.jsonl`.

    unit_id: shared by the questions of one task about one image. paper_task: the paper's abbreviation of the task.
    options: the answers that are read at all (left and right: every description of the image, front and behind: Yes
    and No), empty where numbers are asked for. answer: one of the options, metres, [x, y], or [x1, y1, x2, y2].
    """

    id: str
    unit_id: str
    task: str
    paper_task: str
    kind: str
    image: str
    width: int
    height: int
    question: str
    options: tuple[str, ...]
    answer: Answer
    objects: tuple[QuestionObject, ...]
    scene: str = ""
    camera: str = ""
    split: str = ""
    source: str = "real"
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := _question_problem(self):
            raise ValueError(problem)

    @property
    def image_size(self) -> Size:
        """Width and height of the image file in pixels."""
        return self.width, self.height

    @property
    def answer_text(self) -> str:
        """The answer as the benchmark wants it between its markers, in original pixels."""
        if isinstance(self.answer, tuple):
            return f"[{', '.join(map(_plain, self.answer))}]"
        return self.answer if isinstance(self.answer, str) else _plain(self.answer)


def box_in_image(box_xyxy_px: Sequence[float], size_px: Size) -> Box:
    """The box up to the image's last pixel: the published evaluation reads no coordinate above width - 1, height - 1.

    The public boxes reach the width and the height, so that a box at the edge could not be answered exactly.
    """
    last_x, last_y = size_px[0] - 1, size_px[1] - 1
    x1, y1, x2, y2 = (min(max(value, 0.0), last) for value, last in zip(box_xyxy_px, (last_x, last_y) * 2, strict=True))
    return x1, y1, x2, y2


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _image_problem(image: DriveMLLMImage) -> str | None:
    """Why no question can be asked about an image, or None."""
    names = [item.name for item in image.objects]
    if repeated := [name for name in names if names.count(name) > 1]:
        return f"two objects are called {repeated[0]!r}"
    if image.annotation_tokens and len(image.annotation_tokens) != len(names):
        return f"{len(image.annotation_tokens)} annotation_tokens for {len(names)} objects"
    problems = (_object_problem(item, image.image_size) for item in image.objects)
    return next((problem for problem in problems if problem), None)


def _object_problem(item: QuestionObject, size_px: Size) -> str | None:
    if not item.name.strip() or holds_markup(item.name):
        return f"the name {item.name!r} is empty or holds tags or special tokens"
    if not all(map(math.isfinite, (*item.bbox, *item.pixel, *item.xyz_m))):
        return f"a number of {item.name!r} is not finite"
    x1, y1, x2, y2 = item.bbox
    if not (x1 < x2 and y1 < y2):
        return f"the box of {item.name!r} is no [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
    if size_px == (0, 0):
        return None
    size = f"{size_px[0]}x{size_px[1]} image"
    x1, y1, x2, y2 = box_in_image(item.bbox, size_px)
    if not (x1 < x2 and y1 < y2):
        return f"the box of {item.name!r} lies outside the {size}"
    if not all(0 <= value <= side - 1 for value, side in zip(item.pixel, size_px, strict=True)):
        return f"the centre of {item.name!r}, {list(item.pixel)}, lies outside the {size}"
    return None


def _question_problem(question: DriveMLLMQuestion) -> str | None:
    """Why a question cannot be asked or graded, or None."""
    kind = KINDS.get(question.kind)
    if kind is None:
        return f"unknown kind of question {question.kind!r}; known: {', '.join(KINDS)}"
    if (question.task, question.paper_task) != (kind.task, TASKS[kind.task]):
        return f"a question of kind {question.kind} is of task {kind.task} ({TASKS[kind.task]}), got {question.task}"
    if len(question.objects) != kind.objects:
        return f"a question of kind {question.kind} names {kind.objects} objects, got {len(question.objects)}"
    if min(question.image_size) < 1:
        return f"an image of {question.width}x{question.height} pixels"
    if not question.question.strip() or holds_markup(question.question):
        return "the question is empty or holds tags or special tokens"
    problems = (_object_problem(item, question.image_size) for item in question.objects)
    return next((problem for problem in problems if problem), None) or _answer_problem(question, kind)


def _answer_problem(question: DriveMLLMQuestion, kind: Kind) -> str | None:
    answer = question.answer
    if kind.task in ("left_right", "front_behind"):
        if kind.task == "front_behind" and question.options != YES_NO:
            return f"the options of a front_behind question are Yes and No, got {list(question.options)}"
        return None if answer in question.options else f"answer {answer!r} is none of {list(question.options)}"
    if question.options:
        return f"a {kind.task} question has no options, got {list(question.options)}"
    if kind.task in ("position", "box"):
        count = 2 if kind.task == "position" else 4
        if not isinstance(answer, tuple) or len(answer) != count:
            return f"the answer to a {kind.task} question is a list of {count} numbers, got {answer!r}"
        last = [side - 1 for side in question.image_size] * 2
        inside = all(0 <= value <= most for value, most in zip(answer, last, strict=False))
        return None if inside else f"the answer {list(answer)} lies outside the image"
    metres = not isinstance(answer, str | tuple) and math.isfinite(answer)
    return None if metres else f"the answer to a {kind.task} question is a number of metres, got {answer!r}"


_PUBLIC_COLUMNS = {"descriptions": "name", "bboxes2D": "bbox", "location2D": "pixel", "location3D": "xyz_m"}
_OUR_COLUMNS = {"categories": "category"}


def image_to_row(image: DriveMLLMImage) -> dict[str, Any]:
    """An image as the columns of the public metadata and ours."""
    columns = {
        name: [getattr(item, attribute) for item in image.objects]
        for name, attribute in (_PUBLIC_COLUMNS | _OUR_COLUMNS).items()
    }
    own = {item.name: getattr(image, item.name) for item in fields(image) if item.name not in ("objects", "extra")}
    return {"file_name": image.file_name, **columns, **own, **image.extra}


def image_from_row(row: dict[str, Any]) -> DriveMLLMImage:
    """An image from a row of ours or of the public metadata. Raises ValueError, KeyError on bad columns."""
    columns = {attribute: row[name] for name, attribute in _PUBLIC_COLUMNS.items()}
    columns |= {attribute: row[name] for name, attribute in _OUR_COLUMNS.items() if name in row}
    if odd := [name for name, values in columns.items() if not isinstance(values, list)]:
        raise ValueError(f"the column of {odd[0]!r} must hold a list, one entry per object")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    objects = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    rest = {name: value for name, value in row.items() if name not in _PUBLIC_COLUMNS | _OUR_COLUMNS}
    return msgspec.convert({**nested_row(rest, DriveMLLMImage), "objects": objects}, DriveMLLMImage)


def question_to_row(question: DriveMLLMQuestion) -> dict[str, Any]:
    """A question as a flat JSON object."""
    row = asdict(question)
    return {**flat_row(row), "objects": [flat_row(item) for item in row["objects"]]}


def question_from_row(row: dict[str, Any]) -> DriveMLLMQuestion:
    """A question from a JSON object; unknown fields go to `extra`. Raises ValueError on bad fields."""
    nested = nested_row(row, DriveMLLMQuestion)
    if isinstance(objects := nested.get("objects"), list):
        nested["objects"] = [nested_row(item, QuestionObject) if isinstance(item, dict) else item for item in objects]
    return msgspec.convert(nested, DriveMLLMQuestion)


def read_images(path: Path) -> list[DriveMLLMImage]:
    """All images of a metadata file, ours or the public one. Raises RecordError on a bad line or when there is none."""
    images = [image for _, image in read_records(path, image_from_row)]
    if not images:
        raise RecordError(f"{path} holds no image; make some with: python data_gen/build_drivemllm.py --help")
    return images


def read_questions(path: Path) -> list[DriveMLLMQuestion]:
    """All questions of a file, in file order.

    Raises RecordError on a bad line, a repeated id, or when there is no question.
    """
    line_of: dict[str, int] = {}
    questions = []
    for number, question in read_records(path, question_from_row):
        if question.id in line_of:
            raise RecordError(f"{path}, line {number}: repeats the id {question.id!r} of line {line_of[question.id]}")
        line_of[question.id] = number
        questions.append(question)
    if not questions:
        raise RecordError(f"{path} holds no question; build some with: python data_gen/build_drivemllm.py --help")
    return questions
