"""Completions of one prompt to one packed row, and back: prompt and pictures are laid down once per group.

    row = [ p_1 .. p_(n-1) | p_n c1_1 .. c1_(k-1) | p_n c2_1 .. c2_(k-1) | the next group .. ]

The last prompt token heads every branch, so that each place of a branch predicts exactly one token (one last prompt
token for all would have to predict the first tokens of all). The last token of a completion predicts nothing and is
left out. The groups of a micro-batch lie end to end, without padding.

Letters of shapes: B rows of a micro-batch (blocks of equal prompts one after the other), P prompt width, C completion
width, S places of the packed row, N places that predict a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

IGNORED = -100


@dataclass(frozen=True)
class GroupSpan:
    """Where one group lies in the row: `prefix` places of prompt, then the branches; each in tokens."""

    prefix: int
    branches: tuple[int, ...]


@dataclass(frozen=True)
class PackedRow:
    """One row for the model.

    input_ids (1, S), position_ids (3, 1, S): time, height, width. scored (N,): places that predict a token, labels
    (1, N): which. cells (N,): where their scores belong in the flat (B, C) grid; where nothing at all is scored, N is
    one in `scored` and `labels` (ignored), and zero in `cells`: the model still has something to compute.
    """

    input_ids: Tensor
    position_ids: Tensor
    spans: tuple[GroupSpan, ...]
    scored: Tensor
    labels: Tensor
    cells: Tensor
    grid: tuple[int, int]


@dataclass(frozen=True)
class Completions:
    """B prompts with their completions as TRL holds them: prompts padded on the left, completions on the right.

    input_ids, attention_mask: (B, P + C). width: C. block: rows of one prompt, one after the other; divides B.
    """

    input_ids: Tensor
    attention_mask: Tensor
    width: int
    block: int

    @property
    def heads(self) -> tuple[Tensor, Tensor]:
        """Ids and mask of the prompts, each once: (B / block, P)."""
        return self.input_ids[:: self.block, : -self.width], self.attention_mask[:: self.block, : -self.width]

    def check(self) -> None:
        """Raise ValueError when the rows of a block do not share their prompt."""
        rows, block = len(self.input_ids), self.block
        if rows % block:
            raise ValueError(f"{rows} completions are no whole blocks of {block} completions of one prompt")
        for name, whole in (("ids", self.input_ids), ("mask", self.attention_mask)):
            prompts = whole[:, : -self.width].unflatten(0, (-1, block))
            if not torch.equal(prompts, prompts[:, :1].expand_as(prompts)):
                raise ValueError(
                    f"completions of different prompts (by {name}) in one block of {block}: groups were taken apart "
                    "before the update; train with --shared_prefix false, and report how the batch came about"
                )


def pack(batch: Completions, positions: Tensor) -> PackedRow:
    """Lay the blocks end to end. positions (3, B / block, P): of the prompts, pads included.

    Raises ValueError when the rows of a block do not share their prompt.
    """
    batch.check()
    prompts = batch.attention_mask[:: batch.block, : -batch.width].sum(1).tolist()
    completions = batch.attention_mask[:, -batch.width :].sum(1).tolist()
    by_group = [completions[first : first + batch.block] for first in range(0, len(completions), batch.block)]
    device, ids = batch.input_ids.device, batch.input_ids.flatten()
    at = {name: torch.cat(parts).to(device) for name, parts in _lay_out(batch, prompts, by_group).items()}
    nothing = sum(completions) == 0
    return PackedRow(
        input_ids=ids[at["tokens"]][None],
        position_ids=(positions.flatten(1)[:, at["places"]] + at["offsets"])[:, None],
        spans=tuple(
            GroupSpan(prompt - 1, tuple(filter(None, of))) for prompt, of in zip(prompts, by_group, strict=True)
        ),
        scored=torch.zeros(1, dtype=torch.long, device=device) if nothing else at["scored"],
        labels=ids.new_full((1, 1), IGNORED) if nothing else ids[at["labels"]][None],
        cells=at["cells"],
        grid=(len(completions), batch.width),
    )


def _lay_out(batch: Completions, prompts: list[int], by_group: list[list[int]]) -> dict[str, list[Tensor]]:
    """Indices for every group and branch in turn: `tokens` of the row and `labels` into the flat ids, `places` into the
    flat prompt positions, to which `offsets` are added, `scored` into the row, `cells` into the flat (B, C) grid.

    prompts, by_group: lengths in tokens, of the prompts and of each one's completions.
    """
    length = batch.input_ids.shape[1]
    ends = length - batch.width  # of all prompts, which are padded on the left
    found: dict[str, list[Tensor]] = {name: [] for name in ("tokens", "places", "offsets", "scored", "labels", "cells")}
    at = 0
    for index, (prompt, lengths) in enumerate(zip(prompts, by_group, strict=True)):
        first = index * batch.block
        steps = torch.arange(prompt - 1)
        found["tokens"].append(first * length + ends - prompt + steps)
        found["places"].append(index * ends + ends - prompt + steps)
        found["offsets"].append(torch.zeros_like(steps))
        at += prompt - 1
        for row, count in enumerate(lengths, first):
            # From the last prompt token to the last but one of the completion, each predicting the next.
            steps = torch.arange(count)
            found["tokens"].append(row * length + ends - 1 + steps)
            found["places"].append(torch.full_like(steps, (index + 1) * ends - 1))
            found["offsets"].append(steps)
            found["scored"].append(at + steps)
            found["labels"].append(row * length + ends + steps)
            found["cells"].append(row * batch.width + steps)
            at += count
    return found


def unpack(row: PackedRow, scores: Tensor) -> Tensor:
    """Scores (1, N) of the scored places as (B, C), zero where nothing was scored; differentiable."""
    rows, width = row.grid
    flat = scores.new_zeros(rows * width)
    return flat.index_copy(0, row.cells, scores[0, : len(row.cells)]).view(rows, width)


@dataclass(frozen=True)
class Pictures:
    """Pictures of consecutive rows. pixel_values (patches of all, channels), grid_thw (pictures, 3) in patches.

    per_row: how many belong to each row; zero too where a row shows those of the row before it.
    """

    pixel_values: Tensor
    grid_thw: Tensor
    per_row: tuple[int, ...]

    def of_rows(self, start: int, stop: int) -> Pictures:
        """Those of rows `start` to `stop`."""
        first, last = sum(self.per_row[:start]), sum(self.per_row[:stop])
        pixels = self.pixel_values[self._bounds[first] : self._bounds[last]]
        return Pictures(pixels, self.grid_thw[first:last], self.per_row[start:stop])

    @cached_property
    def _bounds(self) -> list[int]:
        """Where the patches of each picture begin, and where the last ones end; read off the device once."""
        return [0, *accumulate(self.grid_thw.prod(-1).tolist())]

    def once_per(self, block: int) -> Pictures:
        """Those of the first row of each block. Raises ValueError when a later row of the block shows others."""
        kept = [self._shared(start, block) for start in range(0, len(self.per_row), block)]
        per_row = [count for one in kept for count in (one.per_row[0], *[0] * (block - 1))]
        pixels = torch.cat([one.pixel_values for one in kept])
        return Pictures(pixels, torch.cat([one.grid_thw for one in kept]), tuple(per_row))

    def _shared(self, start: int, block: int) -> Pictures:
        """Those of the row at `start`, after a look at the other rows of its block."""
        head = self.of_rows(start, start + 1)
        for row in range(start + 1, start + block):
            other = self.of_rows(row, row + 1)
            if other.per_row[0] and not (
                torch.equal(head.grid_thw, other.grid_thw) and torch.equal(head.pixel_values, other.pixel_values)
            ):
                raise ValueError(f"rows {start} and {row} are completions of one prompt, but show different pictures")
        return head


def shuffle_blocks(batch: dict[str, Any], block: int) -> dict[str, Any]:
    """The columns of a batch in one random order of its blocks of `block` consecutive rows.

    Stands in for TRL's `shuffle_sequence_dict`, which takes groups apart. Columns are tensors, lists or None; a tensor
    without dimensions stays.
    """
    rows = len(next(column for column in batch.values() if column is not None))
    order = torch.randperm(rows // block)[:, None] * block + torch.arange(block)
    return {name: _taken(column, order.flatten()) for name, column in batch.items()}


def _taken(column: Tensor | Sequence[Any] | None, order: Tensor) -> Any:
    if column is None or (isinstance(column, Tensor) and column.ndim == 0):
        return column
    return column[order] if isinstance(column, Tensor) else [column[index] for index in order.tolist()]
