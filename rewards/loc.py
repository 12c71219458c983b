"""The `loc` reward: do the boxes that the model names cover the objects of the question?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rewards.boxes import Box, CoordinateFrame, Size, giou, iou
from rewards.normal_form import normalise
from rewards.response import NamedBox, parse
from rewards.settings import RewardSettings, completion_text

IOU_THRESHOLD = 0.5


def loc_reward(
    completions: Sequence[object],
    *,
    settings: RewardSettings,
    objects: Sequence[Sequence[dict[str, Any]]],
    width: Sequence[int],
    height: Sequence[int],
    **_: object,
) -> list[float | None]:
    """Overlap of named boxes with the true ones, by `settings.loc_kind`.

    `mean`: mean over the named objects of [IoU > 0.5]; `all`: 1 if every IoU > 0.5; `linear`: mean IoU;
    `giou`: (mean GIoU + 1) / 2. objects: per row, dicts with `name` and `bbox` in original pixels.
    """
    return [
        settings.pay(located_score(_boxes(item, (w, h), settings), named, (w, h), settings))
        for item, named, w, h in zip(completions, objects, width, height, strict=True)
    ]


def matched_boxes(
    boxes: Sequence[NamedBox], names: Sequence[str], frame: CoordinateFrame, image_size: Size
) -> list[Box | None]:
    """For each name its box in original pixels, or None when it has no box or more than one.

    Names match in the normal form of answers; a single name with exactly one box matches whatever it is called.
    """
    if len(names) == 1 and len(boxes) == 1:
        return [frame.box_to_original(boxes[0].box_xyxy, image_size)]
    found = []
    for name in names:
        same = [item.box_xyxy for item in boxes if normalise(item.name) == normalise(name)]
        found.append(frame.box_to_original(same[0], image_size) if len(same) == 1 else None)
    return found


def _boxes(completion: object, image_size: Size, settings: RewardSettings) -> tuple[NamedBox, ...]:
    return parse(completion_text(completion), settings.frame.size(image_size)).boxes


def located_score(
    boxes: Sequence[NamedBox], objects: Sequence[dict[str, Any]], image_size: Size, settings: RewardSettings
) -> float:
    """Score in 0..1 of the boxes of a response, in the frame of the run, by `settings.loc_kind`."""
    predicted = matched_boxes(boxes, [item["name"] for item in objects], settings.frame, image_size)
    truths = [tuple(item["bbox"]) for item in objects]
    if settings.loc_kind == "giou":
        values = [giou(box, truth) if box else -1.0 for box, truth in zip(predicted, truths, strict=True)]
        return (fmean(values) + 1) / 2
    overlaps = [iou(box, truth) if box else 0.0 for box, truth in zip(predicted, truths, strict=True)]
    if settings.loc_kind == "linear":
        return fmean(overlaps)
    hits = [overlap > IOU_THRESHOLD for overlap in overlaps]
    return float(all(hits)) if settings.loc_kind == "all" else fmean(hits)
