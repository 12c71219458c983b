"""An lmms-eval task: the folder that its --include_path takes, and the functions that its YAML file names.

A line of the pack's `questions.jsonl` is flat, as `datasets` wants all lines alike: the whole question stands in
`record` as JSON, and with it what grading needs of the export, the frame and the scoring.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.images import open_rgb
from data_gen.prompts import prompt_of
from data_gen.records import Question, question_from_row, question_to_row, write_rows
from eval.plugins.unit_scores import graded, scores_by_task
from rewards.boxes import CoordinateFrame

if TYPE_CHECKING:
    from PIL import Image

TASK_NAME = "drive_surds"
PACK = Path(__file__).with_name("lmms_eval_pack")
PACK_FILES = ("drive_surds.yaml", "utils.py")


@dataclass(frozen=True)
class Terms:
    """How questions are asked and answers read: prompt style, coordinates of the model, scoring."""

    style: str = "reasoning"
    frame: CoordinateFrame = field(default_factory=CoordinateFrame)
    scoring: str = "strict"


def write_pack(questions: Sequence[Question], image_root: Path, terms: Terms, out: Path) -> None:
    """Write YAML, functions and questions into the folder `out`. Images are not copied: lines name where they lie."""
    for name in PACK_FILES:
        shutil.copyfile(PACK / name, out / name)
    write_rows(out / "questions.jsonl", (_line(question, image_root, terms) for question in questions))


def doc_to_visual(doc: dict[str, Any]) -> list[Image.Image]:
    """The image of a line, upright and in RGB. Raises RecordError when it is not the recorded one."""
    return [open_rgb(Path(doc["image_file"]), _question(doc).image_size)]


def doc_to_text(doc: dict[str, Any]) -> str:
    """What is asked; the image comes first."""
    return str(doc["prompt"])


def process_results(doc: dict[str, Any], results: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The graded answer, for its task and for the score of all."""
    answer = graded(_question(doc), results[0], CoordinateFrame(**json.loads(doc["frame"])), doc["scoring"])
    return {"surds_score": answer, answer["task"]: answer}


def mean_of_tasks(answers: Sequence[dict[str, Any]]) -> float:
    """The Score: the plain mean of the tasks."""
    return scores_by_task(answers)["score"]


def mean_of_units(answers: Sequence[dict[str, Any]]) -> float:
    """The score of the one task that these answers are of."""
    return scores_by_task(answers)[answers[0]["task"]]


def _line(question: Question, image_root: Path, terms: Terms) -> dict[str, str]:
    return {
        "id": question.id,
        "task": question.task,
        "prompt": prompt_of(question, terms.frame, terms.style),
        "answer": question.answer_text,
        "image_file": str((image_root / question.image).resolve()),
        "record": json.dumps(question_to_row(question), ensure_ascii=False),
        "frame": json.dumps(terms.frame.as_dict()),
        "scoring": terms.scoring,
    }


def _question(doc: dict[str, Any]) -> Question:
    return question_from_row(json.loads(doc["record"]))
