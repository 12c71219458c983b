"""The vision warm-up: a head that is thrown away tells for every image token what its cell of the picture shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from data_gen.compass import DIRECTIONS
from data_gen.pretraining.pictures import COLOUR_NAMES, KIND_NAMES, SHOWN_PX, Seen
from rewards.boxes import intersection
from training.mini_stages.forward import CELLS_HW, IGNORED, IMAGE_TOKENS

CELL_PX = 28
SHOWN_AREA_PX = 20.0  # of an object in a cell, from which on the cell shows it
# What the head says of a cell, and in how many numbers.
PARTS = {
    "colour": len(COLOUR_NAMES), "kind": len(KIND_NAMES), "heading": len(DIRECTIONS), "box": 4, "depth": 1,
    "row": CELLS_HW[0], "column": CELLS_HW[1], "shown": 1,
}  # fmt: skip
_DEPTH_UNIT_M = 10.0
# Headings are the last thing that the tower learns.
HEADING_WEIGHT = 3.0


@dataclass(frozen=True)
class CellTruth:
    """What the cells of N pictures show: classes (N, cells, 3: colour, kind, heading; IGNORED where nothing is) and
    values (N, cells, 5: box as shares of the picture, logarithm of the depth in units of 10 m).
    """

    classes: Tensor
    values: Tensor


def new_head(width: int) -> nn.Linear:
    """The throw-away head over image tokens of a width."""
    return nn.Linear(width, sum(PARTS.values()))


def cell_truth(objects: Sequence[Sequence[Seen]]) -> CellTruth:
    """Each cell shows the object with the largest share of it, if that is large enough."""
    classes = torch.full((len(objects), IMAGE_TOKENS, 3), IGNORED)
    values = torch.zeros(len(objects), IMAGE_TOKENS, 5)
    for picture, seen in enumerate(objects):
        for cell in range(IMAGE_TOKENS):
            item = _shown_in(cell, seen)
            if item is not None:
                classes[picture, cell] = torch.tensor([item.colour, item.kind, item.heading])
                values[picture, cell] = torch.tensor(_values_of(item))
    return CellTruth(classes, values)


def _shown_in(cell: int, seen: Sequence[Seen]) -> Seen | None:
    row, column = divmod(cell, CELLS_HW[1])
    left, top = column * CELL_PX, row * CELL_PX
    square = (left, top, left + CELL_PX, top + CELL_PX)
    shared = {index: intersection(item.box_xyxy_px, square) for index, item in enumerate(seen)}
    best = max(shared, key=shared.__getitem__)
    return seen[best] if shared[best] >= SHOWN_AREA_PX else None


def _values_of(item: Seen) -> list[float]:
    x1, y1, x2, y2 = item.box_xyxy_px
    width, height = SHOWN_PX
    return [x1 / width, y1 / height, x2 / width, y2 / height, math.log(item.depth_m / _DEPTH_UNIT_M)]


def dense_losses(said_NTH: Tensor, truth: CellTruth) -> dict[str, Tensor]:
    """The losses of what the head says (N, cells, head), by part."""
    said = dict(zip(PARTS, said_NTH.split(list(PARTS.values()), dim=-1), strict=True))
    shown = truth.classes[..., 0] != IGNORED
    losses = {
        part: functional.cross_entropy(said[part][shown], truth.classes[..., index][shown])
        for index, part in enumerate(("colour", "kind", "heading"))
    }
    losses["heading"] = HEADING_WEIGHT * losses["heading"]
    losses["box"] = 10 * functional.smooth_l1_loss(said["box"][shown], truth.values[..., :4][shown], beta=0.02)
    losses["depth"] = 2 * functional.smooth_l1_loss(said["depth"][shown], truth.values[..., 4:][shown], beta=0.1)
    losses["shown"] = functional.binary_cross_entropy_with_logits(said["shown"][..., 0], shown.float())
    cells = torch.arange(IMAGE_TOKENS).repeat(len(said_NTH))
    for part, place in (("row", cells // CELLS_HW[1]), ("column", cells % CELLS_HW[1])):
        losses[part] = functional.cross_entropy(said[part].flatten(0, 1), place)
    return losses
