"""Records -> the columns that TRL's trainers read. Images stay paths; coordinates become those of the run's frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.prompts import located_response, prompt_of
from data_gen.records import Question, Trace
from rewards.boxes import CoordinateFrame
from rewards.response import map_coordinates

if TYPE_CHECKING:
    from datasets import Dataset


def sft_rows(traces: Sequence[Trace], root: Path, frame: CoordinateFrame) -> list[dict[str, Any]]:
    """Prompt, target response and image path of each trace."""
    return [
        {**_prompt(trace.question, root, frame), "completion": _message("assistant", target_response(trace, frame))}
        for trace in traces
    ]


def grpo_rows(questions: Sequence[Question], root: Path, frame: CoordinateFrame) -> list[dict[str, Any]]:
    """Prompt and image path of each question, and what the rewards need, in original pixels."""
    return [
        {
            **_prompt(question, root, frame),
            "question_id": question.id,
            "pair_id": question.pair_id,
            "variant": question.variant,
            "task": question.task,
            "options": list(question.options),
            "answer": question.answer_text,
            "objects": [{"name": item.name, "bbox": list(item.bbox)} for item in question.objects],
            "width": question.width,
            "height": question.height,
        }
        for question in questions
    ]


def target_response(trace: Trace, frame: CoordinateFrame) -> str:
    """The response to learn: true boxes, the trace, the answer, all coordinates in `frame`."""
    question = trace.question
    size = question.image_size

    def to_frame(values: Sequence[float]) -> tuple[float, ...]:
        return frame.to_model(values, size)

    answer = question.answer_text
    if not isinstance(question.answer, str):
        answer = f"[{', '.join(str(round(value)) for value in to_frame(question.answer))}]"
    boxes = [(item.name, to_frame(item.bbox)) for item in question.objects]
    return located_response(boxes, map_coordinates(trace.reasoning, to_frame), answer)


def to_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """Rows as a `datasets.Dataset` with plain string paths, never decoded images."""
    from datasets import Dataset

    return Dataset.from_list(list(rows))


def _prompt(question: Question, root: Path, frame: CoordinateFrame) -> dict[str, Any]:
    return {"prompt": _message("user", prompt_of(question, frame)), "images": [str((root / question.image).resolve())]}


def _message(role: str, content: str) -> list[dict[str, str]]:
    return [{"role": role, "content": content}]
