"""Forward passes of the stock modules for pictures of one size: one attention call for a batch of them in the tower,
and one row of text per picture, in which several conversations about it share its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision
from transformers.vision_utils import get_vision_position_ids

from data_gen.pretraining.pictures import SHOWN_PX

PATCH_PX, MERGE = 14, 2
GRID_HW = SHOWN_PX[1] // PATCH_PX, SHOWN_PX[0] // PATCH_PX  # of patches
CELLS_HW = GRID_HW[0] // MERGE, GRID_HW[1] // MERGE  # of image tokens
IMAGE_TOKENS = CELLS_HW[0] * CELLS_HW[1]
IGNORED = -100


@dataclass(frozen=True)
class Conversation:
    """What follows a picture: ids, and how many of them, at the start, are the prompt, which is not learnt.

    alone: it does not follow the picture, only shares its row.
    """

    ids: tuple[int, ...]
    prompt_length: int
    alone: bool = False


def patches_of(pixels_NHWC: NDArray[np.uint8], device: str = "cpu") -> Tensor:
    """(N, patches, channels) as the image processor makes them, neighbours that are merged next to each other."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD))
    pixels = torch.from_numpy(np.ascontiguousarray(pixels_NHWC)).to(device)
    images = (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std
    count, (high, wide) = len(images), CELLS_HW
    cells = images.view(count, 3, high, MERGE, PATCH_PX, wide, MERGE, PATCH_PX).permute(0, 2, 5, 3, 6, 1, 4, 7)
    twice = cells.unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)  # a still image is two equal frames
    return twice.reshape(count, GRID_HW[0] * GRID_HW[1], -1)


def image_tokens(visual: Any, patches_NPC: Tensor) -> Tensor:
    """(N, image tokens, width): what the stock tower gives when all of its blocks attend to the whole picture."""
    count, patches, _ = patches_NPC.shape
    hidden = visual.patch_embed(patches_NPC.flatten(0, 1)).view(count, patches, -1)
    places_P2 = get_vision_position_ids(torch.tensor([[1, *GRID_HW]]), MERGE).to(hidden.device)
    cos, sin = visual.rotary_pos_emb(hidden[0].float(), places_P2)
    for block in visual.blocks:
        hidden = hidden + _attend(block.attn, block.norm1(hidden), cos, sin)
        hidden = hidden + block.mlp(block.norm2(hidden))
    return visual.merger(hidden.flatten(0, 1)).view(count, IMAGE_TOKENS, -1).float()


def _attend(attention: Any, hidden_NPC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    count, patches, _ = hidden_NPC.shape
    queries, keys, values = attention.qkv(hidden_NPC).view(count, patches, 3, attention.num_heads, -1).unbind(2)
    queries, keys = apply_rotary_pos_emb_vision(queries, keys, cos, sin)
    queries, keys, values = (part.transpose(1, 2).float() for part in (queries, keys, values))
    with torch.autocast(hidden_NPC.device.type, enabled=False):
        mixed = functional.scaled_dot_product_attention(queries, keys, values, scale=attention.scaling)
    return attention.proj(mixed.transpose(1, 2).reshape(count, patches, -1))


@dataclass(frozen=True)
class SharedRows:
    """Conversations about N pictures in one row each, after the tokens that begin every row.

    ids, labels: (N, L). positions: (3, N, L). may_attend: (N, 1, L, L).
    """

    ids: Tensor
    labels: Tensor
    positions: Tensor
    may_attend: Tensor


def shared_rows(
    head: Sequence[int], conversations: Sequence[Sequence[Conversation]], pad_id: int, device: str = "cpu"
) -> SharedRows:
    """Rows of the head, which holds the picture's tokens, and conversations that see themselves and, unless they are
    alone, the head; on a device, where the mask is made, the largest of it all.
    """
    head_positions = _head_positions(tuple(head))
    after = int(head_positions.max()) + 1
    longest = len(head) + max(sum(len(item.ids) for item in row) for row in conversations)
    ids = torch.full((len(conversations), longest), pad_id)
    labels = torch.full_like(ids, IGNORED)
    places = torch.zeros_like(ids)
    owner = torch.full_like(ids, -1)  # conversation of each token; 0: the head
    sees_head = torch.ones_like(ids, dtype=torch.bool)
    for row, items in enumerate(conversations):
        ids[row, : len(head)] = torch.tensor(head)
        owner[row, : len(head)] = 0
        start = len(head)
        for number, item in enumerate(items, start=1):
            end = start + len(item.ids)
            ids[row, start:end] = torch.tensor(item.ids)
            labels[row, start + item.prompt_length : end] = ids[row, start + item.prompt_length : end]
            first = 0 if item.alone else after
            places[row, start:end] = torch.arange(first, first + len(item.ids))
            sees_head[row, start:end] = not item.alone
            owner[row, start:end] = number
            start = end
    positions = places.expand(3, -1, -1).clone()
    positions[:, :, : len(head)] = head_positions[:, None]
    ids, labels, positions, owner, sees_head = (each.to(device) for each in (ids, labels, positions, owner, sees_head))
    same = (owner[:, None] == owner[:, :, None]) | ((owner[:, None] == 0) & sees_head[:, :, None])
    may_attend = same & torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    return SharedRows(ids, labels, positions, may_attend[:, None])


@lru_cache(maxsize=4)
def _head_positions(head: tuple[int, ...]) -> Tensor:
    """(3, head) places in time, height and width as `get_rope_index` numbers them: text, picture, one text token."""
    before = len(head) - IMAGE_TOKENS - 1
    rows, columns = torch.meshgrid(torch.arange(CELLS_HW[0]), torch.arange(CELLS_HW[1]), indexing="ij")
    picture = torch.stack([torch.zeros(IMAGE_TOKENS, dtype=torch.long), rows.flatten(), columns.flatten()]) + before
    text = torch.arange(before).expand(3, -1)
    return torch.cat([text, picture, torch.full((3, 1), before + max(CELLS_HW))], dim=1)


def alone_loss(model: Any, conversations: Sequence[Conversation], pad_id: int, device: str = "cpu") -> Tensor:
    """Mean cross-entropy of what is learnt in conversations without a picture, a row each."""
    longest = max(len(item.ids) for item in conversations)
    ids = torch.full((len(conversations), longest), pad_id)
    labels = torch.full_like(ids, IGNORED)
    for row, item in enumerate(conversations):
        ids[row, : len(item.ids)] = torch.tensor(item.ids)
        labels[row, item.prompt_length : len(item.ids)] = ids[row, item.prompt_length : len(item.ids)]
    ids, labels = ids.to(device), labels.to(device)
    hidden = model.model.language_model(
        inputs_embeds=model.get_input_embeddings()(ids),
        position_ids=torch.arange(longest, device=device).expand(3, len(ids), longest),
        use_cache=False,
    ).last_hidden_state
    targets = labels[:, 1:]
    learnt = targets != IGNORED
    return functional.cross_entropy(model.lm_head(hidden[:, :-1][learnt]).float(), targets[learnt])


def text_loss(model: Any, tokens_NTC: Tensor, rows: SharedRows) -> Tensor:
    """Mean cross-entropy of what is learnt in the rows, given the image tokens of their pictures."""
    embeddings = model.get_input_embeddings()(rows.ids)
    is_image = (rows.ids == model.config.image_token_id)[..., None].expand_as(embeddings)
    embeddings = embeddings.masked_scatter(is_image, tokens_NTC.to(embeddings.dtype))
    hidden = model.model.language_model(
        inputs_embeds=embeddings, attention_mask=rows.may_attend, position_ids=rows.positions, use_cache=False
    ).last_hidden_state
    targets = rows.labels[:, 1:]
    learnt = targets != IGNORED
    return functional.cross_entropy(model.lm_head(hidden[:, :-1][learnt]).float(), targets[learnt])
