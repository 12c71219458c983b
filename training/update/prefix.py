"""The part of the GRPO trainer that encodes image and prompt once per group in the update.

TRL encodes both once per completion. Here the completions of one prompt that share a micro-batch are packed into one
row (`training/update/packing.py`): same log-probabilities, entropies and gradients, up to rounding.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from trl.trainer import grpo_trainer

from training.cpu_attention import NAME as CPU_ATTENTION
from training.prefill import FAMILIES
from training.update.packing import Completions, Pictures, pack, shuffle_blocks, unpack
from training.update.prefix_attention import share_prefix


class SharedPrefix:
    """Mix-in for TRL's GRPOTrainer.

    shared_prefix: off, everything is TRL's own; so it is, with one message, under settings that `why_not` names.

    Where a micro-batch holds no whole group, it holds blocks of one: `block` rows, the greatest common divisor of
    micro-batch and group. Blocks stay together from generation to update, each with one copy of its pictures.
    """

    def __init__(self: Any, *args: Any, shared_prefix: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[misc]
        reason = why_not(self) if shared_prefix else None
        if reason and self.accelerator.is_main_process:
            print(f"every completion encodes its own prompt in the update: {reason}", file=sys.stderr)
        self.shared_prefix = shared_prefix and reason is None
        if self.shared_prefix:
            for model in filter(None, (self.model, self.ref_model)):
                share_prefix(_base(self.accelerator.unwrap_model(model)))

    @property
    def block(self: Any) -> int:
        """Consecutive rows that are surely completions of one prompt, in training or in evaluation."""
        return train_block(self) if self.model.training else eval_block(self)

    def _prepare_inputs(self: Any, generation_batch: Any) -> Any:
        if not self.shared_prefix:
            return super()._prepare_inputs(generation_batch)  # type: ignore[misc]
        with blocks_kept_together(self.block):
            return super()._prepare_inputs(generation_batch)  # type: ignore[misc]

    def _generate_and_score_completions(self: Any, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if self.shared_prefix and (pictures := _pictures(batch)) is not None:
            once = pictures.once_per(self.block)
            batch |= {"pixel_values": once.pixel_values, "image_grid_thw": once.grid_thw}
            batch["num_images"] = list(once.per_row)
        return batch

    def _get_per_token_logps_and_entropies(
        self: Any,
        model: nn.Module,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **inputs: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(B, C) log-probabilities and, if wanted, entropies of the completions; zero where they are masked."""
        if not self.shared_prefix:
            return super()._get_per_token_logps_and_entropies(  # type: ignore[misc, no-any-return]
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, **inputs
            )
        pictures, types, scores = _pictures(inputs), inputs.get("mm_token_type_ids"), []
        size = batch_size or len(input_ids)
        for start in range(0, len(input_ids), size):
            stop = min(start + size, len(input_ids))
            rows = Completions(input_ids[start:stop], attention_mask[start:stop], logits_to_keep, self.block)
            shown = pictures.of_rows(start, stop).once_per(self.block) if pictures else None
            scores.append(self._score(model, rows, shown, None if types is None else types[start:stop]))
        log_probs, entropies = (torch.cat(parts) for parts in zip(*scores, strict=True))
        return log_probs, entropies if compute_entropy else None, None

    def _score(
        self: Any, model: nn.Module, rows: Completions, pictures: Pictures | None, types: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of some rows in one forward pass, (rows, C) each."""
        ids, mask = rows.heads
        shown = {} if pictures is None else {"image_grid_thw": pictures.grid_thw}
        # Positions are counted without parameters, so that the unwrapped model may be asked under ZeRO-3 too.
        positions, _ = _base(self.accelerator.unwrap_model(model)).model.get_rope_index(
            ids,
            mm_token_type_ids=torch.zeros_like(ids) if types is None else types[:: rows.block, : ids.shape[1]],
            attention_mask=mask,
            **shown,
        )
        row = pack(rows, positions)
        if pictures is not None:
            shown["pixel_values"] = pictures.pixel_values
        with self.accelerator.autocast():
            out = model(
                input_ids=row.input_ids,
                position_ids=row.position_ids,
                packed=row,
                shift_labels=row.labels,
                fused_lm_head=True,
                **shown,
            )
        # The reference model's head leaves entropies out.
        entropy = torch.zeros_like(out.log_probs) if out.entropy is None else out.entropy
        return unpack(row, out.log_probs), unpack(row, entropy)


def train_block(trainer: Any) -> int:
    """Rows of one prompt that share a micro-batch in training."""
    return math.gcd(trainer.args.per_device_train_batch_size, trainer.num_generations)


def eval_block(trainer: Any) -> int:
    """Rows of one prompt that share a batch in evaluation."""
    return math.gcd(trainer.args.per_device_eval_batch_size, trainer.num_generations_eval)


def why_not(trainer: Any) -> str | None:
    """Why this trainer cannot share prefixes, or None.

    Left out is what changes the forward pass (other families and kernels), what changes prompts or completions while
    they are generated (tools, environments), and what would not give TRL's results (dropout is drawn once for a shared
    prompt) or was not seen to (FSDP, Liger, compilation). Context and sequence parallelism TRL refuses itself.
    """
    args, model = trainer.args, _base(trainer.accelerator.unwrap_model(trainer.model))
    if (family := model.config.model_type) not in FAMILIES:
        return f"it is made for {', '.join(FAMILIES)}, the model is a {family}"
    text = model.config.get_text_config()
    peft_configs = getattr(trainer.model, "peft_config", {}).values()
    reasons = {
        f"--per_device_train_batch_size {args.per_device_train_batch_size} and --num_generations "
        f"{trainer.num_generations} have no common divisor, so that no two completions of a prompt stay together": (
            train_block(trainer) == 1
        ),
        f"it replaces sdpa attention, the model has {text._attn_implementation}": (
            text._attn_implementation not in ("sdpa", CPU_ATTENTION)
        ),
        "sliding-window attention": "sliding_attention" in text.layer_types,
        "attention dropout, drawn once for a shared prompt": text.attention_dropout > 0,
        "LoRA dropout, drawn once for a shared prompt": any(_dropout(config) > 0 for config in peft_configs),
        "prompt-learning adapters": any(config.is_prompt_learning for config in peft_configs),
        "tools": bool(trainer.tools),
        "environments": trainer.environment_factories is not None,
        "a rollout function": trainer.rollout_func is not None,
        "the Liger kernel": args.use_liger_kernel,
        "torch.compile": args.torch_compile,
        "FSDP": trainer.is_fsdp_enabled,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _dropout(peft_config: Any) -> float:
    return float(getattr(peft_config, "lora_dropout", 0.0))


@contextmanager
def blocks_kept_together(block: int) -> Iterator[None]:
    """While it lasts, TRL's trainer shuffles blocks of `block` rows instead of single rows."""
    stock = grpo_trainer.shuffle_sequence_dict
    grpo_trainer.shuffle_sequence_dict = functools.partial(shuffle_blocks, block=block)
    try:
        yield
    finally:
        grpo_trainer.shuffle_sequence_dict = stock


def _base(model: Any) -> Any:
    """The transformers model inside an adapter."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _pictures(batch: dict[str, Any]) -> Pictures | None:
    """The pictures of a batch of TRL's, or None when it has none."""
    if batch.get("pixel_values") is None:
        return None
    return Pictures(batch["pixel_values"], batch["image_grid_thw"], tuple(batch["num_images"]))
