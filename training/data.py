"""Records -> the columns that TRL's trainers read. Images stay paths; coordinates become those of the run's frame."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.prompts import located_response, prompt_of, verifier_text
from data_gen.records import Question, Trace
from rewards.boxes import CoordinateFrame, Size
from rewards.response import map_coordinates

if TYPE_CHECKING:
    from datasets import Dataset


def sft_rows(traces: Sequence[Trace], root: Path, frame: CoordinateFrame) -> list[dict[str, Any]]:
    """Prompt, target response, image path and size of each trace."""
    return [
        {**_prompt(trace.question, root, frame), "completion": _message("assistant", target_response(trace, frame))}
        for trace in traces
    ]


def grpo_rows(questions: Sequence[Question], root: Path, frame: CoordinateFrame) -> list[dict[str, Any]]:
    """Prompt, image path and size of each question, and what the rewards need, in original pixels."""
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
        }
        for question in questions
    ]


def verifier_rows(traces: Sequence[Trace], frame: CoordinateFrame) -> list[dict[str, Any]]:
    """Without images: the trace alone, as the verifier of the `logic` reward is asked, and the answer it leads to."""
    told = [(trace.question.image_size, _told(trace, frame)) for trace in traces]
    return [
        {
            "prompt": _message("user", verifier_text(think)),
            "completion": _message("assistant", f"<answer>{answer}</answer>"),
            "images": [],
            "width": width,
            "height": height,
        }
        for (width, height), (_, think, answer) in told
    ]


def target_response(trace: Trace, frame: CoordinateFrame) -> str:
    """The response to learn: true boxes, the trace, the answer, all coordinates in `frame`."""
    return located_response(*_told(trace, frame))


def _told(trace: Trace, frame: CoordinateFrame) -> tuple[list[tuple[str, tuple[float, ...]]], str, str]:
    """Named true boxes, the trace and the answer, all coordinates in `frame`.

    A true box that the trace repeats in whole pixels has the very numbers that it has in the location part.
    """
    question = trace.question
    size = question.image_size
    true_boxes = {tuple(map(round, item.bbox)): item.bbox for item in question.objects}

    def to_frame(values: Sequence[float]) -> tuple[float, ...]:
        return frame.to_model(true_boxes.get(tuple(map(round, values)), values), size)

    answer = question.answer_text
    if not isinstance(question.answer, str):
        answer = f"[{', '.join(str(round(value)) for value in to_frame(question.answer))}]"
    boxes = [(item.name, to_frame(item.bbox)) for item in question.objects]
    return boxes, map_coordinates(trace.reasoning, to_frame), answer


def to_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """Rows as a `datasets.Dataset` with plain string paths, never decoded images."""
    from datasets import Dataset

    return Dataset.from_list(list(rows))


def image_sizes(dataset: Dataset) -> set[Size]:
    """The distinct sizes, (width, height) in pixels, of the images of rows made here."""
    return set(zip(dataset["width"], dataset["height"], strict=True))


def image_tokens(frame: CoordinateFrame, size: Size) -> int:
    """How many tokens an image of `size` is for the model: cells of its resized form."""
    width, height = resized_size(frame, size)
    return width * height // frame.factor**2


def resized_size(frame: CoordinateFrame, size: Size) -> Size:
    """(width, height) of an image after the model's own resizing, whatever coordinates the model writes."""
    return replace(frame, kind="resized").size(size)


def describe_images(frame: CoordinateFrame, sizes: Collection[Size]) -> str:
    """The tokens of images of some sizes in words, with the resized size of the one in the middle."""
    ordered = sorted(sizes, key=lambda size: (image_tokens(frame, size), size))
    least, middle, most = (image_tokens(frame, ordered[at]) for at in (0, len(ordered) // 2, -1))
    example = ordered[len(ordered) // 2]
    shown = "{}x{} as {}x{}".format(*example, *resized_size(frame, example))
    if len(ordered) == 1:
        return f"{middle} tokens per image ({shown})"
    return f"{least}/{middle}/{most} tokens per image (min/median/max of {len(ordered)} sizes; {shown})"


def _prompt(question: Question, root: Path, frame: CoordinateFrame) -> dict[str, Any]:
    return {
        "prompt": _message("user", prompt_of(question, frame)),
        "images": [str((root / question.image).resolve())],
        "width": question.width,
        "height": question.height,
    }


def _message(role: str, content: str) -> list[dict[str, str]]:
    return [{"role": role, "content": content}]
