"""One prefill, many continuations: what several prompts share in front is computed once and its cache copied.

For Qwen2.5-VL, whose image tokens have places in height and width: text after an image counts on from an offset of
its own (`rope_deltas`), which must be that of the prefix, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from training.behind_prompts import SharedPrompts, shared_prompts
from training.growing_cache import growing_cache

FAMILIES = ("qwen2_5_vl",)


@dataclass(frozen=True)
class Prefixes:
    """What prompts begin with, as the processor gives it: N texts with all their images, padded on the left.

    input_ids, attention_mask: (N, L). pixel_values: (patches of all images in order, channels).
    image_grid_thw: (images, 3), in patches. Both are None where no text has an image.
    """

    input_ids: Tensor
    attention_mask: Tensor
    pixel_values: Tensor | None = None
    image_grid_thw: Tensor | None = None


@dataclass(frozen=True)
class Continuation:
    """One prompt: the index of its prefix, and the token ids that follow it (at least one)."""

    prefix: int
    ids: tuple[int, ...]


def can_share(model: Any) -> bool:
    """Whether prompts of this model can share a prefix: it must number image tokens as Qwen2.5-VL does."""
    return model.config.model_type in FAMILIES


@dataclass(frozen=True)
class BegunRows:
    """Rows to go on with. cache: of all their tokens but the last ones, one at least; with `behind`, of none, as that
    has all but the last.

    input_ids, attention_mask: (rows, length), the rows whole, their pads wherever they are. offsets: (rows, 1), from a
    text token's count in its row to its position.
    """

    cache: Any
    input_ids: Tensor
    attention_mask: Tensor
    offsets: Tensor
    behind: SharedPrompts | None = None


@torch.no_grad()
def generate_from(model: Any, prefixes: Prefixes, rows: Sequence[Continuation], pad_id: int, **settings: Any) -> Tensor:
    """Generate after every row's prefix and ids; as `model.generate` of the whole prompts would, up to rounding.

    settings: of `generate`, such as `max_new_tokens`, or a `generation_config` that names the pad token.
    Returns the new tokens (rows, longest), padded on the right.
    """
    begun = begin_rows(model, prefixes, rows, pad_id)
    model.model.rope_deltas = begun.offsets  # set before every call: another image leaves its own behind
    if "generation_config" not in settings:
        settings["pad_token_id"] = pad_id
    # The class's own method: a trainer may have put a sharing one in its place on the instance.
    sequences = type(model).generate(
        model,
        input_ids=begun.input_ids,
        attention_mask=begun.attention_mask,
        past_key_values=begun.cache,
        **settings,
    )
    return sequences[:, begun.input_ids.shape[1] :]


@torch.no_grad()
def begin_rows(model: Any, prefixes: Prefixes, rows: Sequence[Continuation], pad_id: int) -> BegunRows:
    """Compute what the rows begin with: every prefix once, and once what rows share that are alike."""
    of_row = torch.tensor([row.prefix for row in rows], device=prefixes.input_ids.device)
    cache, deltas_N1 = prefill(model, prefixes)
    tails, tail_mask = _padded_left([row.ids for row in rows], pad_id, of_row.device)
    # The pads of shorter rows lie between prefix and continuation; the mask hides them and positions skip them.
    input_ids = torch.cat([prefixes.input_ids[of_row], tails], dim=1)
    mask = torch.cat([prefixes.attention_mask[of_row], tail_mask], dim=1)
    _extend(model, cache, rows, input_ids, mask, deltas_N1)
    return BegunRows(cache, input_ids, mask, deltas_N1[of_row])


def _extend(
    model: Any, cache: Any, rows: Sequence[Continuation], input_ids: Tensor, mask: Tensor, deltas_N1: Tensor
) -> None:
    """Turn the cache of the prefixes into that of the rows.

    Where some rows are alike, it is filled up to the last token, with every distinct row computed once.
    input_ids, mask: (rows, length) of the rows whole. deltas_N1: as of `prefill`.
    """
    distinct = list(dict.fromkeys(rows))
    start = cache.get_seq_length()
    if len(distinct) == len(rows) or input_ids.shape[1] == start + 1:
        cache.batch_select_indices(torch.tensor([row.prefix for row in rows], device=input_ids.device))
        return
    firsts = [rows.index(row) for row in distinct]
    of_distinct = torch.tensor([row.prefix for row in distinct], device=input_ids.device)
    cache.batch_select_indices(of_distinct)
    positions_UL = mask[firsts, :-1].cumsum(dim=1) - 1 + deltas_N1[of_distinct]
    model(
        input_ids=input_ids[firsts, start:-1],
        attention_mask=mask[firsts, :-1],
        position_ids=positions_UL[:, start:].expand(3, -1, -1),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    place = {row: index for index, row in enumerate(distinct)}
    cache.batch_select_indices(torch.tensor([place[row] for row in rows], device=input_ids.device))


@torch.no_grad()
def begin_behind(model: Any, prompts: Prefixes) -> BegunRows:
    """Whole prompts (B, L) to go on with, each distinct one computed once and kept once; see `distinct_prompts`.

    For models with the attention of `training/cpu_attention.py`.
    """
    firsts, of_row = distinct_prompts(prompts, model)
    heads = _without_last_token(_rows(prompts, firsts, model))
    cache, deltas_N1 = prefill(model, heads)
    behind = shared_prompts(cache, heads.attention_mask, of_row)
    own = growing_cache(model.config)
    return BegunRows(own, prompts.input_ids, prompts.attention_mask, deltas_N1[of_row], behind)


def generate_shared(model: Any, prompts: Prefixes, pad_id: int, **settings: Any) -> Tensor:
    """`model.generate` of whole prompts (B, L), equal up to rounding; equal prompts are prefilled once.

    Prompts are equal when their tokens and the pixels of their images are. Returns prompts and new tokens.
    """
    firsts, of_row = distinct_prompts(prompts, model)
    heads = _without_last_token(_rows(prompts, firsts, model))
    last_ids = prompts.input_ids[:, -1].tolist()
    rows = [Continuation(prefix, (last,)) for prefix, last in zip(of_row, last_ids, strict=True)]
    new = generate_from(model, heads, rows, pad_id, **settings)
    return torch.cat([prompts.input_ids, new], dim=1)


def _without_last_token(prompts: Prefixes) -> Prefixes:
    """The last token of a prompt is run row by row: what follows it is drawn from there."""
    return replace(prompts, input_ids=prompts.input_ids[:, :-1], attention_mask=prompts.attention_mask[:, :-1])


def distinct_prompts(prompts: Prefixes, model: Any) -> tuple[list[int], list[int]]:
    """(first row of every distinct prompt, for each row the index of its prompt among these)."""
    spans, patches = image_spans(prompts, model)
    alike: dict[tuple[int, ...], list[int]] = {}  # rows with other pixels behind the same tokens
    firsts: list[int] = []
    of_row: list[int] = []
    for row, (ids, mask) in enumerate(zip(prompts.input_ids, prompts.attention_mask, strict=True)):
        known = alike.setdefault(tuple(ids[mask.bool()].tolist()), [])
        place = next((place for place in known if _same_images(prompts, spans, patches, firsts[place], row)), None)
        if place is None:
            place = len(firsts)
            known.append(place)
            firsts.append(row)
        of_row.append(place)
    return firsts, of_row


def image_spans(prompts: Prefixes, model: Any) -> tuple[list[slice], list[slice]]:
    """For each row its images (slice of `image_grid_thw`) and their patches (slice of `pixel_values`)."""
    if prompts.image_grid_thw is None:
        return [slice(0, 0)] * len(prompts.input_ids), [slice(0, 0)] * len(prompts.input_ids)
    tokens_N = (prompts.input_ids == model.config.image_token_id).sum(1)
    patches_I = prompts.image_grid_thw.prod(-1)
    cell = model.config.vision_config.spatial_merge_size**2
    ends = torch.searchsorted(patches_I.cumsum(0) // cell, tokens_N.cumsum(0), right=True).tolist()
    rows_of_pixels = [0, *patches_I.cumsum(0).tolist()]
    images = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    return images, [slice(rows_of_pixels[span.start], rows_of_pixels[span.stop]) for span in images]


def _same_images(prompts: Prefixes, spans: list[slice], patches: list[slice], first: int, second: int) -> bool:
    """Whether two rows have the same images, compared by all their pixels."""
    grids, pixels = prompts.image_grid_thw, prompts.pixel_values
    if grids is None or pixels is None:
        return True
    return torch.equal(grids[spans[first]], grids[spans[second]]) and torch.equal(
        pixels[patches[first]], pixels[patches[second]]
    )


def _rows(prompts: Prefixes, rows: Sequence[int], model: Any) -> Prefixes:
    """Some of the prompts, with their images."""
    grids, pixels = prompts.image_grid_thw, prompts.pixel_values
    if grids is not None and pixels is not None:
        spans, patches = image_spans(prompts, model)
        grids = torch.cat([grids[spans[row]] for row in rows])
        pixels = torch.cat([pixels[patches[row]] for row in rows])
    return Prefixes(prompts.input_ids[rows], prompts.attention_mask[rows], pixels, grids)


def prefill(model: Any, prefixes: Prefixes) -> tuple[Any, Tensor]:
    """The cache of N prefixes, and (N, 1) offsets from a text token's count in its row to its position."""
    is_image = (prefixes.input_ids == model.config.image_token_id).int()
    positions_3NL, deltas_N1 = model.model.get_rope_index(
        prefixes.input_ids,
        mm_token_type_ids=is_image,
        image_grid_thw=prefixes.image_grid_thw,
        attention_mask=prefixes.attention_mask,
    )
    cache = growing_cache(model.config)
    model(  # as `generate` does, not the part without head: a trainer's mixed precision is wrapped round the whole
        input_ids=prefixes.input_ids,
        attention_mask=prefixes.attention_mask,
        position_ids=positions_3NL,
        pixel_values=prefixes.pixel_values,
        image_grid_thw=prefixes.image_grid_thw,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return cache, deltas_N1


def _padded_left(rows: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(rows, longest) ids and their mask."""
    longest = max(map(len, rows))
    ids = [[pad_id] * (longest - len(row)) + list(row) for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
