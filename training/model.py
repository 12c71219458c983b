"""Load a checkpoint together with its processor and coordinate frame: tiny, mini, a folder, or a hub id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewards.boxes import CoordinateFrame

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.processing_utils import ProcessorMixin

FRAME_FILE = "frame.json"
MINI = Path(__file__).parent / "mini"
# What a family was trained to write, where a checkpoint does not say.
FRAME_OF_FAMILY = {"qwen2_5_vl": "resized", "qwen2_vl": "thousand", "qwen3_vl": "thousand"}


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode with the processor and the frame that belong to it."""

    model: PreTrainedModel
    processor: ProcessorMixin
    frame: CoordinateFrame
    name: str
    tiny: bool = False


def load_model(
    name: str,
    *,
    frame_kind: str | None = None,
    max_pixels: int | None = None,
    dtype: str = "auto",
    device: str | None = "auto",
) -> LoadedModel:
    """Load `tiny`, `mini`, a checkpoint folder (full weights or a LoRA adapter) or a hub id.

    frame_kind, max_pixels: override what the checkpoint says or its family is known for.
    dtype: a torch dtype by name; `auto` is the checkpoint's on a GPU and float32 on a CPU.
    device: `auto` is the GPU if there is one; None leaves the model where loading put it.
    Raises FileNotFoundError when a path is given that holds no checkpoint.
    """
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText
    from transformers.utils import logging as transformers_logging

    from training.cpu_attention import attend_on_cpu
    from training.linear_patches import embed_patches_linearly
    from training.processor import load_processor

    path = resolve_name(name)
    adapter = Path(path) / "adapter_config.json"
    base = json.loads(adapter.read_text())["base_model_name_or_path"] if adapter.exists() else path
    if dtype == "auto" and not torch.cuda.is_available():
        dtype = "float32"
    transformers_logging.disable_progress_bar()
    model = AutoModelForImageTextToText.from_pretrained(base, dtype=dtype)
    if adapter.exists():
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, path).merge_and_unload()
    if not torch.cuda.is_available():
        attend_on_cpu(model)
        embed_patches_linearly(model)
    model_type = AutoConfig.from_pretrained(base).model_type
    processor = load_processor(path, model_type, max_pixels)
    frame, tiny = _frame(path, model_type, processor, frame_kind)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.eval() if device is None else model.eval().to(device)
    return LoadedModel(model, processor, frame, name, tiny)


def resolve_name(name: str) -> str:
    """`mini` -> the folder of the mini model; `tiny` -> that of the cached tiny model, built on first use.

    Any other folder or hub id is returned as it is.

    Raises FileNotFoundError for something that looks like a path and is no checkpoint.
    """
    if name == "mini":
        return str(MINI)
    if name == "tiny":
        from training.tiny import cached_tiny

        return str(cached_tiny())
    path = Path(name)
    known_parent = path.parent != Path() and path.parent.is_dir()
    looks_like_path = path.exists() or known_parent or name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_path and not any((path / file).exists() for file in ("config.json", "adapter_config.json")):
        raise FileNotFoundError(
            f"no checkpoint (config.json) in {name}; give a trained folder, a hub id, or: tiny, mini"
        )
    return name


def save_frame(folder: Path, frame: CoordinateFrame, tiny: bool) -> None:
    """Write `frame.json` beside the weights, so that evaluation reads coordinates as training wrote them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FRAME_FILE).write_text(json.dumps({**frame.as_dict(), "tiny": tiny}) + "\n", encoding="utf-8")


def _frame(path: str, model_type: str, processor: Any, frame_kind: str | None) -> tuple[CoordinateFrame, bool]:
    """The frame (kind from option, checkpoint or family; budget from the processor), and whether the model is tiny."""
    stored = Path(path) / FRAME_FILE
    saved = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    kind = frame_kind or saved.get("kind") or FRAME_OF_FAMILY.get(model_type, "original")
    image = processor.image_processor
    budget = {"min_pixels": image.size["shortest_edge"], "max_pixels": image.size["longest_edge"]}
    return CoordinateFrame(kind, **budget, factor=image.patch_size * image.merge_size), saved.get("tiny", False)
