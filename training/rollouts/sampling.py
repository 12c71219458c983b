"""The part of the GRPO trainer that samples completions: each distinct prompt is prefilled once, no image tokens."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import DistributedType, is_peft_model
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from training import cpu_attention
from training.going_on import go_on
from training.prefill import Prefixes, begin_behind, can_share, generate_shared
from training.rollouts.drawing import drawn_at_random, draws_plainly
from training.update import prefix_attention

IMAGE_TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
# vLLM clips a bias to this; the probability is then e^-100 of what it was.
NEVER = -100.0
# Settings of `generate` that expand the rows or choose the cache by themselves, with the values that leave them off.
_UNSHARED = {
    "cache_implementation": (None,), "use_cache": (None, True), "num_beams": (None, 1),
    "num_return_sequences": (None, 1), "guidance_scale": (None, 1), "prompt_lookup_num_tokens": (None,),
}  # fmt: skip


class SharedPrefill:
    """Mix-in for TRL's GRPOTrainer.

    shared_prefill: off, generation by transformers is TRL's own, as it always is with vLLM.
    """

    def __init__(self: Any, *args: Any, shared_prefill: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = self.use_vllm or self.use_transformers_continuous_batching
        reason = "" if own else why_not_shared(self._generating_model(), self)
        self.shared_prefill = shared_prefill and not own and not reason
        if shared_prefill and reason and self.accelerator.is_main_process:
            print(f"every completion prefills its own prompt: {reason}", file=sys.stderr)
        self._image_tokens = image_tokens(self._generating_model().config)
        self._suppress_image_tokens()

    def _generating_model(self: Any) -> Any:
        """The model whose `generate` runs in the end: under an adapter, the base."""
        model = self.accelerator.unwrap_model(self.model)
        return model.get_base_model() if is_peft_model(model) else model

    def _suppress_image_tokens(self: Any) -> None:
        """Add the image tokens to what is never sampled; the user's own settings stay."""
        if self.use_vllm:
            told = self.vllm_generation.generation_kwargs
            bias = {**dict.fromkeys(sorted(self._image_tokens), NEVER), **(told.get("logit_bias") or {})}
            self.vllm_generation.generation_kwargs = {**told, "logit_bias": bias}
        else:
            suppressed = sorted(self._image_tokens.union(self.generation_config.suppress_tokens or ()))
            self.generation_config.suppress_tokens = suppressed
            self.generation_kwargs = {**self.generation_kwargs, "suppress_tokens": suppressed}

    def _generate_single_turn(self: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """(completion ids, log-probs or None), lists with one list per prompt, as TRL's, without image tokens."""
        if self.shared_prefill:
            # Where weights are split over processes, all must run their layers equally often.
            split = self.accelerator.distributed_type in (DistributedType.DEEPSPEED, DistributedType.FSDP)
            with sharing_generate(self._generating_model(), in_step=split):
                ids, logps = super()._generate_single_turn(prompt_ids, *args, **kwargs)  # type: ignore[misc]
        else:
            ids, logps = super()._generate_single_turn(prompt_ids, *args, **kwargs)  # type: ignore[misc]
        kept, kept_logps = strip_tokens(ids, logps, self._image_tokens, self._tokenizer.eos_token_id)
        self._log_metric("completions/image_tokens", count_tokens(ids, self._image_tokens))
        return kept, kept_logps


def why_not_shared(model: Any, trainer: Any) -> str:
    """Why generation cannot share prefills; empty when it can."""
    if not can_share(model):
        return f"{model.config.model_type} numbers image tokens in a way that is not known here"
    if trainer.tools:
        return "tools change prompts between turns"
    told = trainer.generation_kwargs
    odd = [f"{name}: {told[name]}" for name, off in _UNSHARED.items() if told.get(name) not in off]
    return f"not possible with {', '.join(odd)}" if odd else ""


@contextmanager
def sharing_generate(model: Any, in_step: bool = False) -> Iterator[None]:
    """For the length of the context, `model.generate` prefills equal prompts once.

    in_step: with other processes, as transformers' own loop keeps them.
    """

    def generate(
        input_ids: Tensor,
        attention_mask: Tensor,
        generation_config: Any,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        mm_token_type_ids: Tensor | None = None,
        **settings: Any,
    ) -> Tensor:
        prompts = Prefixes(input_ids, attention_mask, pixel_values, image_grid_thw)
        pad_id = generation_config.pad_token_id
        if not in_step and _attends_on_cpu(model) and draws_plainly(generation_config):
            begun = begin_behind(model, prompts)
            choose = drawn_at_random(generation_config, len(input_ids))
            ends = torch.tensor(generation_config.eos_token_id).view(-1).tolist()
            new = go_on(model, begun, choose, ends, generation_config.max_new_tokens)
            return torch.cat([input_ids, _padded_right(new, pad_id)], dim=1)
        return generate_shared(model, prompts, pad_id, generation_config=generation_config, **settings)

    model.generate = generate
    try:
        yield
    finally:
        del model.generate


def _attends_on_cpu(model: Any) -> bool:
    """Whether the text part of a model knows attention behind shared prompts."""
    ours = cpu_attention.NAME, prefix_attention.NAME
    return model.device.type == "cpu" and model.config.get_text_config()._attn_implementation in ours


def _padded_right(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)


def image_tokens(config: Any) -> frozenset[int]:
    """The ids that stand for images and videos, and that mark where these begin and end."""
    ids = (getattr(config, name, None) for name in IMAGE_TOKENS)
    return frozenset(token for token in ids if token is not None)


def count_tokens(ids: Sequence[Sequence[int]], tokens: Collection[int]) -> int:
    """How many of some tokens are in the completions."""
    return sum(token in tokens for row in ids for token in row)


def strip_tokens(
    ids: Sequence[list[int]], logps: Sequence[list[Any]] | None, tokens: Collection[int], end_id: int
) -> tuple[list[list[int]], list[list[Any]] | None]:
    """Completions without some tokens, and the log-probs of the rest.

    An image token among them has no image features, and the forward pass would fail. A completion of nothing else
    becomes one end token with an unknown log-prob (None, which TRL leaves out of its corrections).
    """
    kept = [[place for place, token in enumerate(row) if token not in tokens] for row in ids]
    new_ids = [[row[place] for place in places] or [end_id] for row, places in zip(ids, kept, strict=True)]
    if logps is None:
        return new_ids, None
    return new_ids, [[row[place] for place in places] or [None] for row, places in zip(logps, kept, strict=True)]
