"""The part of the GRPO trainer that hands prompts and images to vLLM and keeps its caches true."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list
from transformers.image_utils import load_image
from trl.data_utils import prepare_multimodal_messages

from training.vllm_check import ImageTokens, check_image_tokens, one_pad_per_image, rows_to_check

if TYPE_CHECKING:
    from PIL.Image import Image

    from rewards.boxes import CoordinateFrame


class VllmRollouts:
    """Mix-in for TRL's GRPOTrainer; without `use_vllm` it does nothing.

    Before the first completion the image tokens of both sides are counted, which raises UsageError where they differ.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[misc]
        self._vllm_counted = False

    def _generate_single_turn(
        self: Any,
        prompt_ids: list[list[int]],
        images: list[list[Any] | None] | None,
        multimodal_fields: dict[str, Any],
        num_generations: int,
        has_tool_images: bool = False,
    ) -> Any:
        """Completions and the log-probs under which vLLM sampled them, with the prompts as vLLM reads them."""
        if self.use_vllm:
            if not self._vllm_counted:
                self._count_image_tokens()
                self._vllm_counted = True
            if self.state.global_step != self._last_loaded_step:
                self._forget_images()
            prompt_ids, images = self._prompts_for_vllm(prompt_ids), on_grid(images, self.settings.frame)
        return super()._generate_single_turn(  # type: ignore[misc]
            prompt_ids, images, multimodal_fields, num_generations, has_tool_images
        )

    def _prompts_for_vllm(self: Any, prompt_ids: list[list[int]]) -> list[list[int]]:
        """TRL's client for a server places the images into whole runs of image tokens; the engine makes the runs."""
        if self.vllm_mode == "server":
            return prompt_ids
        return [one_pad_per_image(ids, self.model.config.image_token_id) for ids in prompt_ids]

    def _forget_images(self: Any) -> None:
        """Have images encoded anew: the weights change, and vLLM keeps the outputs of the old vision tower."""
        engine = self.vllm_generation
        if self.vllm_mode == "colocate":
            engine.llm.llm_engine.reset_encoder_cache()
        elif self.accelerator.is_main_process:
            client = engine.vllm_client
            client.session.post(f"{client.base_url}/reset_encoder_cache").raise_for_status()

    def _count_image_tokens(self: Any) -> None:
        """Compare the image tokens of both sides for a few sizes of the data. All processes must call this."""
        rows = self.train_dataset
        sizes = list(zip(rows["width"], rows["height"], strict=True))
        places = rows_to_check(sizes)
        asked = [prepare_multimodal_messages(rows[at]["prompt"], images=rows[at]["images"]) for at in places]
        prompt_ids, images, _ = self._tokenize_prompts(asked)
        told = [self._tokens_in_vllm(prompt_ids, on_grid(images, self.settings.frame))]
        if self.vllm_mode == "server":
            broadcast_object_list(told)
        pad = self.model.config.image_token_id
        counts = [
            ImageTokens(sizes[at], list(ids).count(pad), there)
            for at, ids, there in zip(places, prompt_ids, told[0], strict=True)
        ]
        check_image_tokens(counts, self.model.name_or_path, self.settings.frame.max_pixels)

    def _tokens_in_vllm(self: Any, prompt_ids: list[list[int]], images: Any) -> list[int]:
        """The number of image tokens of every prompt in vLLM; for a server, on the main process only."""
        engine = self.vllm_generation
        if self.vllm_mode == "server":
            return server_image_tokens(engine.vllm_client, images) if self.accelerator.is_main_process else []
        length, engine.max_completion_length = engine.max_completion_length, 1
        try:
            seen, *_ = engine.generate(self._prompts_for_vllm(prompt_ids), images, 1)
        finally:
            engine.max_completion_length = length
        return [list(ids).count(self.model.config.image_token_id) for ids in seen]


def server_image_tokens(client: Any, images: list[list[Image]]) -> list[int]:
    """The number of image tokens of every prompt by a vLLM server.

    client: TRL's VLLMClient.
    """
    features = client.image_features(images)
    return [sum(place["length"] for place in row["mm_placeholders"]["image"]) for row in features]


def on_grid(images: list[list[Any] | None] | None, frame: CoordinateFrame) -> list[list[Image] | None] | None:
    """Opened images in the size that the model sees them in, every distinct one made once.

    Pillow resizes as in the update, vLLM's torchvision slightly differently; on the model's grid it has nothing to do.
    images: per prompt, paths or Pillow images.
    """
    if images is None:
        return None
    distinct = {id(image) if not isinstance(image, str) else image: image for row in images for image in row or ()}
    made = {key: _resized(load_image(image), frame) for key, image in distinct.items()}
    return [row and [made[image if isinstance(image, str) else id(image)] for image in row] for row in images]


def _resized(image: Image, frame: CoordinateFrame) -> Image:
    from PIL.Image import Resampling

    size = replace(frame, kind="resized").size(image.size)
    return image if image.size == size else image.resize(size, Resampling.BICUBIC)
