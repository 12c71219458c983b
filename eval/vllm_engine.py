"""The engine `vllm`: vLLM in this process with its prefix cache, greedy or sampled; questions come image by image."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.command_line import UsageError
from eval.decoding import draw_seed
from eval.engines import Reply, Request, by_image, open_shown
from eval.hf_engine import chat_text
from rewards.boxes import CoordinateFrame, Size

if TYPE_CHECKING:
    from PIL.Image import Image

# Requests handed over at a time: enough to keep a GPU busy; their images are in memory, their replies written together.
CHUNK = 256
INSTALL = 'pip install -e ".[vllm]"'


@dataclass(frozen=True)
class VllmEngine:
    """vLLM with the chat texts and the resized pixels of the engine `hf`.

    frame: its pixel budget is that of the checkpoint's processor, or a smaller one. temperature: 0 is greedy. seed: of
    the draws.
    """

    llm: Any
    processor: Any
    frame: CoordinateFrame
    max_new_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """Replies chunk by chunk. Raises RecordError for an image that cannot be read or has another size."""
        left = [request for request in by_image(requests) if request.id not in done]
        for start in range(0, len(left), CHUNK):
            chunk = left[start : start + CHUNK]
            asked = {path: size for request in chunk for path, size in zip(request.images, request.sizes, strict=True)}
            images = {path: self._open(path, size) for path, size in asked.items()}
            prompts = [
                {
                    "prompt": chat_text(self.processor, request),
                    "multi_modal_data": {"image": [images[path] for path in request.images]},
                }
                for request in chunk
            ]
            outputs = self.llm.generate(prompts, list(map(self._sampling, chunk)), use_tqdm=False)
            yield from map(self._reply, chunk, outputs)

    def _sampling(self, request: Request) -> Any:
        """How one request is decoded; nothing of the checkpoint's own sampling settings is left."""
        from vllm import SamplingParams

        if not self.temperature:
            return SamplingParams(temperature=0, max_tokens=self.max_new_tokens)
        return SamplingParams(
            temperature=self.temperature,
            top_p=1.0,
            top_k=-1,
            seed=draw_seed(self.seed, request.id),
            max_tokens=self.max_new_tokens,
        )

    def _open(self, path: Path, size: Size) -> Image:
        """An image in the size that the processor would give it: Pillow's pixels, as in training, not torchvision's."""
        from PIL.Image import Resampling

        return open_shown(path, size).resize(replace(self.frame, kind="resized").size(size), Resampling.BICUBIC)

    def _reply(self, request: Request, output: Any) -> Reply:
        """The first choice with special tokens kept, for the parser to judge; its end token is none of the text."""
        choice, tokenizer = output.outputs[0], self.processor.tokenizer
        ids = list(choice.token_ids)
        if choice.finish_reason == "stop":
            ids = ids[:-1]
        return Reply(request.id, tokenizer.decode(ids, skip_special_tokens=False), len(ids))


def require_vllm() -> None:
    """Raise UsageError when vLLM is not installed."""
    if find_spec("vllm") is None:
        raise UsageError(f"the engine vllm needs vLLM, in an environment of its own: {INSTALL}; or serve the model and "
                         "give --endpoint")  # fmt: skip


def load_vllm(path: str, tensor_parallel: int) -> Any:
    """vLLM's engine with the weights of a folder or hub id."""
    from vllm import LLM

    return LLM(model=path, tensor_parallel_size=tensor_parallel, enable_prefix_caching=True, seed=0)


def read_checkpoint(path: str, frame_kind: str | None, max_pixels: int | None) -> tuple[Any, CoordinateFrame, bool]:
    """The processor of a folder or hub id, the frame its model writes in, and whether it is a tiny one.

    Raises UsageError for a LoRA adapter, for a folder without a processor, and for a pixel budget above the
    processor's own, to which vLLM would shrink images again.
    """
    from transformers import AutoConfig, AutoProcessor

    from training.model import FRAME_FILE, FRAME_OF_FAMILY

    if (Path(path) / "adapter_config.json").exists():
        raise UsageError(f"{path} is a LoRA adapter; merge it first: python training/merge.py --model {path} --out DIR")
    try:
        processor = AutoProcessor.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"the processor of {path} cannot be loaded: {error}") from error
    image, stored = processor.image_processor, Path(path) / FRAME_FILE
    saved = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    kind = (
        frame_kind or saved.get("kind") or FRAME_OF_FAMILY.get(AutoConfig.from_pretrained(path).model_type, "original")
    )
    least, most = image.size["shortest_edge"], image.size["longest_edge"]
    if max_pixels and max_pixels > most:
        raise UsageError(
            f"--max-pixels: the processor of {path} allows {most}; raise it in its preprocessor_config.json"
        )
    budget = {"min_pixels": min(least, max_pixels or least), "max_pixels": max_pixels or most}
    frame = CoordinateFrame(kind, **budget, factor=image.patch_size * image.merge_size)
    return processor, frame, bool(saved.get("tiny"))
