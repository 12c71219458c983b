"""Qwen2.5-VL's processor without its video half, which needs torchvision; images go through the PIL back-end.

One back-end for training and evaluation: PIL and torchvision resize pixels slightly differently. Images may be given as
paths; these are read as evaluation reads them, and what was read is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL.Image import Image
from transformers import AutoProcessor, AutoTokenizer, BatchFeature, Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.processing_utils import ProcessorMixin

from data_gen.images import open_rgb
from rewards.boxes import Size, smart_resize
from training.bounded_cache import BoundedCache

IMAGE_ONLY_FAMILIES = ("qwen2_5_vl", "qwen2_vl")
_STOCK_NAMES = {
    "ImageOnlyProcessor": "Qwen2_5_VLProcessor",
    "CachedImageProcessor": "Qwen2VLImageProcessor",
    "Qwen2VLImageProcessorPil": "Qwen2VLImageProcessor",
}
_GIB = 2**30
# At 1316x728 pixels: 370 images of 2.9 MB, and the patches (23 MB in single precision) of 93.
RESIZED_BYTES, PATCHES_BYTES = _GIB, 2 * _GIB
_REMOTE = ("http://", "https://", "data:")


class CachedImageProcessor(Qwen2VLImageProcessorPil):
    """The stock processor, for paths too: a file is decoded and resized once, and its patches are made once.

    Two bounded caches: resized images, which last for many batches, and patches, which are eight times as large.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._resized: BoundedCache[Image] = BoundedCache(RESIZED_BYTES)
        self._patches: BoundedCache[dict[str, np.ndarray]] = BoundedCache(PATCHES_BYTES)

    def to_dict(self) -> dict[str, Any]:
        """The settings, without what was read."""
        return {name: value for name, value in super().to_dict().items() if name not in ("_resized", "_patches")}

    def fetch_images(self, image_url_or_urls: Any) -> Any:
        """Images, URLs and nested lists of both as the stock method does; paths stay paths."""
        if isinstance(image_url_or_urls, list | tuple):
            return [self.fetch_images(item) for item in image_url_or_urls]
        return image_url_or_urls if _is_path(image_url_or_urls) else super().fetch_images(image_url_or_urls)

    def shown(self, path: str, budget_px: tuple[int, int] | None = None, size_px: Size | None = None) -> Image:
        """The image of a file in the size of the model's own grid.

        budget_px: least and largest area, if not the processor's. size_px: what its record says about the file.
        Raises RecordError when it cannot be read or has another size.
        """
        budget = budget_px or (self.size["shortest_edge"], self.size["longest_edge"])
        image = self._resized.get((path, budget))
        if image is None:
            whole = open_rgb(Path(path), size_px)
            grid = smart_resize(whole.size, self.patch_size * self.merge_size, *budget)
            image = whole.resize(grid, self.resample)
            self._resized.put((path, budget), image, 3 * grid[0] * grid[1])
        return image

    def _preprocess_image_like_inputs(self, images: Any, *args: Any, **kwargs: Any) -> BatchFeature:
        """Patches of all images in order, and their grids, image by image as the stock method makes them."""
        kind, settings = kwargs.get("return_tensors"), {**kwargs, "return_tensors": None}
        of_image = [self._features(image, settings) for image in _flat(images)]
        data = {name: np.concatenate([features[name] for features in of_image]) for name in of_image[0]}
        return BatchFeature(data=data, tensor_type=kind)

    def _features(self, image: Any, settings: dict[str, Any]) -> dict[str, np.ndarray]:
        """What one image becomes; that of a path is kept, under all settings of the call."""
        if not _is_path(image):
            return dict(super()._preprocess_image_like_inputs([image], **settings))
        key = image, repr(sorted(settings.items()))
        features = self._patches.get(key)
        if features is None:
            size = settings["size"]
            shown = self.shown(image, (size["shortest_edge"], size["longest_edge"]))
            features = dict(super()._preprocess_image_like_inputs([shown], **settings))
            self._patches.put(key, features, sum(value.nbytes for value in features.values()))
        return features


def _is_path(image: Any) -> bool:
    return isinstance(image, str) and not image.startswith(_REMOTE)


def _flat(images: Any) -> Iterator[Any]:
    """The images of lists within lists, in order."""
    if isinstance(images, list | tuple):
        for item in images:
            yield from _flat(item)
    else:
        yield images


def shown_images(processor: ProcessorMixin, images: Sequence[Any]) -> list[Any]:
    """Images for another program: paths are opened, and resized where the processor is one of ours."""
    cached = isinstance(processor.image_processor, CachedImageProcessor)
    shown = processor.image_processor.shown if cached else lambda path: open_rgb(Path(path))
    return [shown(image) if _is_path(image) else image for image in images]


class ImageOnlyProcessor(Qwen2_5_VLProcessor):
    """The stock processor for texts and images; saves itself under the stock names, so that any program loads it."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None, **_: Any) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)

    def _process_images(self, images: Any, **kwargs: Any) -> tuple[Any, list[str]]:
        """Model inputs of all images, and the image tokens of each; the stock method takes no paths."""
        processed = self.image_processor(images, **kwargs)
        count = len(processed["image_grid_thw"])
        return processed, [self.replace_image_token(processed, image_idx=index, **kwargs) for index in range(count)]

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False, **kwargs: Any) -> list[str]:
        """Save, then write into the configs what others need: the stock class names, and a video half."""
        saved = super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)
        for path in Path(save_directory).glob("*_config.json"):
            text = path.read_text(encoding="utf-8")
            stock = text
            for own, name in _STOCK_NAMES.items():
                stock = stock.replace(f'"{own}"', f'"{name}"')
            if stock != text:
                path.write_text(stock, encoding="utf-8")
        _add_video_half(Path(save_directory) / "processor_config.json")
        return saved


def _add_video_half(path: Path) -> None:
    """The stock processor is not built without settings for videos: those for images, as in the stock checkpoints."""
    config = json.loads(path.read_text(encoding="utf-8"))
    images = {name: value for name, value in config["image_processor"].items() if name != "image_processor_type"}
    config["video_processor"] = {**images, "video_processor_type": "Qwen2VLVideoProcessor"}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_processor(name: str, model_type: str, max_pixels: int | None = None) -> ProcessorMixin:
    """The processor of a folder or hub id, its pixel budget set to `max_pixels` when given.

    Raises OSError when the folder holds none.
    """
    if model_type not in IMAGE_ONLY_FAMILIES:
        processor = AutoProcessor.from_pretrained(name, padding_side="left")
    else:
        tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
        image_processor = CachedImageProcessor.from_pretrained(name)
        processor = ImageOnlyProcessor(image_processor, tokenizer, _chat_template(name, tokenizer))
    if max_pixels is not None:
        set_pixel_budget(processor, max_pixels)
    return processor


def set_pixel_budget(processor: ProcessorMixin, max_pixels: int) -> None:
    """Bound the pixels of a resized image; saved with the processor."""
    size = dict(processor.image_processor.size)
    processor.image_processor.size = {
        "shortest_edge": min(size["shortest_edge"], max_pixels),
        "longest_edge": max_pixels,
    }


def _chat_template(name: str, tokenizer: Any) -> str | None:
    """The chat template of the folder: the tokenizer's own, or the processor's `chat_template.json`."""
    if tokenizer.chat_template:
        return tokenizer.chat_template
    from transformers.utils import cached_file

    path = cached_file(name, "chat_template.json", _raise_exceptions_for_missing_entries=False)
    return json.loads(Path(path).read_text(encoding="utf-8"))["chat_template"] if path else None
