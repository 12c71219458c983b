"""Qwen2.5-VL's processor without its video half, which needs torchvision; images go through the PIL back-end.

One back-end for training and evaluation: PIL and torchvision resize pixels slightly differently.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoProcessor, AutoTokenizer, Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.processing_utils import ProcessorMixin

IMAGE_ONLY_FAMILIES = ("qwen2_5_vl", "qwen2_vl")
_STOCK_NAMES = {"ImageOnlyProcessor": "Qwen2_5_VLProcessor", "Qwen2VLImageProcessorPil": "Qwen2VLImageProcessor"}


class ImageOnlyProcessor(Qwen2_5_VLProcessor):
    """The stock processor for texts and images; saves itself under the stock names, so that any program loads it."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None, **_: Any) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)

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
        image_processor = Qwen2VLImageProcessorPil.from_pretrained(name)
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
