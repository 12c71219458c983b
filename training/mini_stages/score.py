"""How well a model names and places objects of rendered pictures that it has not been trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from data_gen.pretraining.pictures import SHOWN_PX, Pictures, Seen, nameable
from data_gen.pretraining.texts import name_question, place_question
from rewards.boxes import Box, iou, sort_corners
from rewards.response import read_boxes

GOOD_IOU = 0.5
BATCH = 32
LONGEST_REPLY = 32


@dataclass(frozen=True)
class Asked:
    """A picture, by its index, and one of its objects."""

    picture: int
    item: Seen


@dataclass(frozen=True)
class SeeingScores:
    """Shares of questions: boxes whose IoU with the true one is above 0.5, whole names right, and their parts."""

    questions: int
    placed: float
    mean_iou: float
    named: float
    colour_named: float
    kind_named: float


def seeing_scores(model: Any, processor: Any, pictures: Pictures, questions: int) -> SeeingScores:
    """Ask a model, which decodes greedily, for the box and for the name of the first objects."""
    asked = list(_asked(pictures))[:questions]
    places = replies(model, processor, pictures, asked, [place_question(each.item) for each in asked])
    names = replies(model, processor, pictures, asked, [name_question(each.item) for each in asked])
    overlaps = [overlap(reply, each.item) for reply, each in zip(places, asked, strict=True)]
    wanted = [f"The {each.item.name}".split() for each in asked]
    said = [reply.split() for reply in names]
    count = len(asked)
    return SeeingScores(
        count,
        sum(value > GOOD_IOU for value in overlaps) / count,
        sum(overlaps) / count,
        sum(a == b for a, b in zip(said, wanted, strict=True)) / count,
        sum(_colour(a) == _colour(b) for a, b in zip(said, wanted, strict=True)) / count,
        sum(_kind(a) == _kind(b) for a, b in zip(said, wanted, strict=True)) / count,
    )


def _asked(pictures: Pictures) -> Iterator[Asked]:
    for picture, seen in enumerate(pictures.objects):
        yield from (Asked(picture, item) for item in nameable(seen))


def overlap(reply: str, item: Seen) -> float:
    """IoU of the first box of a reply and an object's; 0 when there is none."""
    boxes, _ = read_boxes(reply, SHOWN_PX)
    first: Box | None = sort_corners(boxes[0].box_xyxy) if boxes else None
    return iou(first, item.box_xyxy_px) if first else 0.0


def _colour(words: Sequence[str]) -> str:
    """Of "The red car" and "The adult wearing a red shirt"."""
    return "" if len(words) < 3 else words[-2] if "wearing" in words else words[1]


def _kind(words: Sequence[str]) -> str:
    return "" if len(words) < 3 else words[1] if "wearing" in words else words[-1]


@torch.no_grad()
def replies(
    model: Any, processor: Any, pictures: Pictures, asked: Sequence[Asked], prompts: Sequence[str], **settings: Any
) -> list[str]:
    """The model's replies to prompts about pictures, through the processor and the stock generation."""
    said: list[str] = []
    for start in range(0, len(asked), BATCH):
        images = [Image.fromarray(pictures.pixels[each.picture]) for each in asked[start : start + BATCH]]
        content = [
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}]
            for prompt in prompts[start : start + BATCH]
        ]
        texts = processor.apply_chat_template(content, tokenize=False, add_generation_prompt=True)
        inputs = processor(text=texts, images=images, return_tensors="pt", padding=True).to(model.device)
        new = model.generate(**inputs, **{"do_sample": False, "max_new_tokens": LONGEST_REPLY, **settings})
        said += processor.batch_decode(new[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return said
