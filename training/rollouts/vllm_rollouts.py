"""The part of the GRPO trainer that hands prompts to vLLM as vLLM reads them, and keeps its caches true."""

from __future__ import annotations

from typing import Any

from accelerate.utils import broadcast_object_list
from trl.data_utils import prepare_multimodal_messages

from training.processor import shown_images
from training.rollouts.vllm_check import ImageTokens, check_image_tokens, one_pad_per_image, rows_to_check


class VllmRollouts:
    """Mix-in for TRL's GRPOTrainer; without `use_vllm` it does nothing.

    Before the first completion the image tokens of both sides are counted; UsageError is raised where they differ.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[misc]
        self._vllm_counted = False

    def _generate_single_turn(self: Any, prompt_ids: Any, images: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """(completion ids, log-probs under which vLLM sampled them or None), as TRL's. images: opened."""
        if self.use_vllm:
            if not self._vllm_counted:
                self._count_image_tokens()
                self._vllm_counted = True
            if self.state.global_step != self._last_loaded_step:
                self._forget_images()
            prompt_ids = self._prompts_for_vllm(prompt_ids)
        turn: tuple[Any, Any] = super()._generate_single_turn(prompt_ids, images, *args, **kwargs)  # type: ignore[misc]
        return turn

    def _prompts_for_vllm(self: Any, prompt_ids: list[list[int]]) -> list[list[int]]:
        """TRL's client puts images into whole runs of image tokens; an engine in this process makes the runs itself."""
        if self.vllm_mode == "server":
            return prompt_ids
        return [one_pad_per_image(ids, self.model.config.image_token_id) for ids in prompt_ids]

    def _forget_images(self: Any) -> None:
        """Have images encoded anew: the weights change, and vLLM keeps what the old vision tower made of them."""
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
        shown = [shown_images(self.processing_class, row) for row in images]
        told = [self._tokens_in_vllm(prompt_ids, shown)]
        if self.vllm_mode == "server":
            broadcast_object_list(told)
        pad = self.model.config.image_token_id
        counts = [
            ImageTokens(sizes[at], list(ids).count(pad), there)
            for at, ids, there in zip(places, prompt_ids, told[0], strict=True)
        ]
        check_image_tokens(counts, self.model.name_or_path, self.settings.frame.max_pixels)

    def _tokens_in_vllm(self: Any, prompt_ids: list[list[int]], images: list[list[Any]]) -> list[int]:
        """The number of image tokens of every prompt in vLLM; by a server, on the main process only."""
        engine = self.vllm_generation
        if self.vllm_mode == "server":
            return server_image_tokens(engine.vllm_client, images) if self.accelerator.is_main_process else []
        length, engine.max_completion_length = engine.max_completion_length, 1
        try:
            seen, *_ = engine.generate(self._prompts_for_vllm(prompt_ids), images, 1)
        finally:
            engine.max_completion_length = length
        return [list(ids).count(self.model.config.image_token_id) for ids in seen]


def server_image_tokens(client: Any, images: list[list[Any]]) -> list[int]:
    """The number of image tokens of every prompt by a vLLM server.

    client: TRL's VLLMClient. images: of every prompt, as Pillow images.
    """
    features = client.image_features(images)
    return [sum(place["length"] for place in row["mm_placeholders"]["image"]) for row in features]
