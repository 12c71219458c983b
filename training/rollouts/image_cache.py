"""The part of the GRPO trainer that has each distinct image of a generation batch decoded and processed once.

A frozen tower encodes it once (`training.frozen`): for the reference model too, if there is one.
"""

from __future__ import annotations

from typing import Any

from accelerate.utils import is_peft_model

from training.frozen import keep_features, kept_features
from training.processor import CachedImageProcessor, shown_images


class DecodeOnce:
    """Mix-in for TRL's GRPOTrainer, whose rows hold paths.

    The processor of `training.processor` reads paths, and caches. vLLM cannot: it is handed the same images, opened,
    in the size of the model's own grid, which its own processor then leaves as they are.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        model = self.accelerator.unwrap_model(self.model)
        kept = kept_features(model.get_base_model() if is_peft_model(model) else model)
        if kept is not None and self.ref_model is not None:
            keep_features(self.accelerator.unwrap_model(self.ref_model), kept.parts)

    def _generate_and_score_completions(self: Any, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """The scored batch, as TRL's. Raises RecordError for an image that is not of the size its row says."""
        processor = self.processing_class.image_processor
        if isinstance(processor, CachedImageProcessor):
            for row in inputs:
                for path in row["images"]:
                    processor.shown(path, size_px=(row["width"], row["height"]))
        scored: dict[str, Any] = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return scored

    def _generate_single_turn(self: Any, prompt_ids: Any, images: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """(completion ids, log-probs or None), as TRL's."""
        if self.use_vllm and images is not None:
            images = [row and shown_images(self.processing_class, row) for row in images]
        turn: tuple[Any, Any] = super()._generate_single_turn(prompt_ids, images, *args, **kwargs)  # type: ignore[misc]
        return turn
