"""Frozen parts of the vision tower, and what a frozen tower makes of an image, kept for the next time it is shown.

`vision` is the tower without its last part: patch embedding and blocks. `projector` is that last part, which brings
patches into the space of the language model (`visual.merger` in Qwen2.5-VL).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.vision_utils import get_vision_window_index

from training.bounded_cache import BoundedCache
from training.prefill import can_share

# Features and, to know the image again, its pixels: 33 MB at 1316x728 in single precision.
KEPT_BYTES = 2**30
_PROJECTORS = ("merger", "deepstack_merger_list")
_SAMPLES = 64


def freeze(model: Any, parts: Collection[str]) -> None:
    """Take the gradients from parts of the vision tower.

    Raises ValueError when the model has none where it is looked for, at `model.visual`.
    """
    visual = getattr(model.model, "visual", None)
    if visual is None:
        raise ValueError(f"--freeze knows vision towers named `visual`; {model.config.model_type} has none")
    for name, parameter in visual.named_parameters():
        part = "projector" if name.startswith(_PROJECTORS) else "vision"
        parameter.requires_grad_(part not in parts)


def excluded_modules(parts: Collection[str]) -> str | None:
    """A regular expression of the modules that get no adapter because they are frozen; None when nothing is."""
    if not parts:
        return None
    projector = f"({'|'.join(_PROJECTORS)})"
    if "projector" in parts:
        return r"(.*\.)?visual\..*" if "vision" in parts else rf"(.*\.)?visual\.{projector}.*"
    return rf"(.*\.)?visual\.(?!{projector}).*"


def keep_features(model: Any, parts: Collection[str]) -> None:
    """From now on the tower encodes an image once, if its blocks are frozen.

    Not for weights that are sharded over processes: there all have to make the same forward passes. Not for families
    whose towers are not known here.
    """
    sharded = is_deepspeed_zero3_enabled() or os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("true", "1")
    if "vision" in parts and can_share(model) and not sharded:
        visual = model.model.visual
        visual.forward = KeptFeatures(visual, tuple(parts))


def kept_features(model: Any) -> KeptFeatures | None:
    """What keeps the features of a model, if something does."""
    forward = getattr(getattr(model.model, "visual", None), "forward", None)
    return forward if isinstance(forward, KeptFeatures) else None


@dataclass
class _Kept:
    """An image, (patches, channels), and its features, (patches or tokens, width), once it has been encoded."""

    pixels: Tensor
    features: Tensor | None = None

    @property
    def size_bytes(self) -> int:
        """Memory of both."""
        return self.pixels.nbytes + (self.features.nbytes if self.features is not None else 0)


class KeptFeatures:
    """The forward pass of a frozen Qwen2.5-VL tower that encodes an image only when it has not got its features.

    parts: what is frozen. With the projector, its output is kept. Without, that of the blocks, on which the projector
    runs anew, with gradients.
    An image is known again by all its pixels; the type of the weights and mixed precision must be the same too.
    """

    def __init__(self, visual: Any, parts: tuple[str, ...]) -> None:
        self.visual, self.parts, self.whole = visual, parts, "projector" in parts
        self.encoded = 0  # images that the tower ran on
        self._stock = type(visual).forward
        self._kept: BoundedCache[_Kept] = BoundedCache(KEPT_BYTES)

    def __call__(self, hidden_states: Tensor, grid_thw: Tensor, **settings: Any) -> BaseModelOutputWithPooling:
        """As the stock method's. hidden_states: pixels, (patches of all images, channels). grid_thw: (images, 3)."""
        pixels = hidden_states.split(grid_thw.prod(-1).tolist())
        keys = [self._key(image, grid) for image, grid in zip(pixels, grid_thw.tolist(), strict=True)]
        images = self._look_up(pixels, keys)
        first = {id(image): index for index, image in reversed(list(enumerate(images))) if image.features is None}
        if fresh := sorted(first.values()):
            self._encode([images[index] for index in fresh], grid_thw[fresh], settings)
            for index in fresh:
                self._kept.put(keys[index], images[index], images[index].size_bytes)
        features = torch.cat([image.features for image in images if image.features is not None])
        return BaseModelOutputWithPooling(pooler_output=features if self.whole else self.visual.merger(features))

    def _key(self, pixels: Tensor, grid: Sequence[int]) -> Hashable:
        """What must be the same besides all pixels, and some of these, by which an image is looked for."""
        flat, kind = pixels.flatten(), pixels.device.type
        some = flat[:: max(1, len(flat) // _SAMPLES)].tolist()
        return (*grid, *some), self.visual.dtype, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

    def _look_up(self, pixels: Sequence[Tensor], keys: Sequence[Hashable]) -> list[_Kept]:
        """For each image what is kept of it, or a new entry without features; one entry for images that are equal."""
        known: dict[Hashable, list[_Kept]] = {}
        found = []
        for image, key in zip(pixels, keys, strict=True):
            if key not in known:
                old = self._kept.get(key)
                known[key] = [old] if old else []
            entry = next((entry for entry in known[key] if torch.equal(entry.pixels, image)), None)
            if entry is None:
                known[key].append(entry := _Kept(image))
            found.append(entry)
        return found

    @torch.inference_mode(False)  # what is kept in an evaluation is used in training too
    @torch.no_grad()
    def _encode(self, images: Sequence[_Kept], grid_thw: Tensor, settings: dict[str, Any]) -> None:
        """Run the tower on some images, and give each its pixels and features in memory of its own."""
        output = self._stock(self.visual, torch.cat([image.pixels for image in images]), grid_thw=grid_thw, **settings)
        cell, patches = self.visual.spatial_merge_unit, grid_thw.prod(-1).tolist()
        if self.whole:
            features = output.pooler_output.split([count // cell for count in patches])
        else:
            features = self._reading_order(output.last_hidden_state, grid_thw).split(patches)
        for image, of_image in zip(images, features, strict=True):
            image.pixels, image.features = image.pixels.clone(), of_image.clone()
        self.encoded += len(images)

    def _reading_order(self, hidden: Tensor, grid_thw: Tensor) -> Tensor:
        """The output of the blocks, (patches, width), which comes window by window, in the order of the tokens."""
        visual = self.visual
        order, _ = get_vision_window_index(grid_thw, visual.spatial_merge_size, visual.window_size, visual.patch_size)
        cells = hidden.view(len(order), visual.spatial_merge_unit, -1)
        return cells[torch.argsort(order).to(hidden.device)].flatten(0, 1)
