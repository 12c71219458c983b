"""The loop of `generate` with the unfinished rows only; transformers' own computes all rows until the last one ends.

The same tokens under the same seed: random numbers are drawn for all rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Rows are taken out when so large a share of those computed is finished: taking them out copies the cache of the rest.
WORTHWHILE = 1 / 8


def generate_live_rows(
    model: Any,
    input_ids: Tensor,
    *,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    synced_gpus: bool = False,
    **state: Any,
) -> Tensor:
    """For `custom_generate` of `model.generate` after a prefill: ids and new tokens (B, longest), padded on the right.

    state: what `generate` hands from step to step (cache, mask, positions). Processes that generate in step with each
    other (synced_gpus) take transformers' own loop.
    """
    parts = {"logits_processor": logits_processor, "stopping_criteria": stopping_criteria}
    if synced_gpus:
        return model._sample(input_ids, **parts, generation_config=generation_config, synced_gpus=True, **state)
    whole, pad_id = input_ids, generation_config._pad_token_tensor
    rows = torch.arange(len(input_ids), device=input_ids.device)  # those computed
    live = torch.ones_like(rows, dtype=torch.bool)  # of these
    columns: list[Tensor] = []
    outputs = model._prefill(input_ids, generation_config, state)
    while True:
        state = model._update_model_kwargs_for_generation(outputs, state)
        scores = logits_processor(input_ids, outputs.logits[:, -1].to(copy=True, dtype=torch.float32))
        tokens = torch.where(live, _chosen(scores, rows, len(whole), generation_config.do_sample), pad_id)
        columns.append(whole.new_full((len(whole),), pad_id.item()).index_copy(0, rows, tokens))
        input_ids = torch.cat([input_ids, tokens[:, None]], dim=1)
        live = live & ~stopping_criteria(input_ids, None).bool()
        if not live.any():
            return torch.cat([whole, torch.stack(columns, dim=1)], dim=1)
        if live.sum() <= (1 - WORTHWHILE) * len(rows):
            keep = live.nonzero()[:, 0]
            rows, input_ids, live = rows[keep], input_ids[keep], live[keep]
            _keep_rows(model, state, keep)
        outputs = model(**model.prepare_inputs_for_generation(input_ids, next_sequence_length=1, **state))


def _chosen(scores: Tensor, rows: Tensor, count: int, do_sample: bool) -> Tensor:
    """The next token of the computed rows; as many random numbers are drawn as all `count` rows would take."""
    if not do_sample:
        return scores.argmax(-1)
    probabilities = scores.new_ones(count, scores.shape[1]).index_copy(0, rows, scores.softmax(-1))
    return torch.multinomial(probabilities, num_samples=1)[rows, 0]


def _keep_rows(model: Any, state: dict[str, Any], keep: Tensor) -> None:
    """Leave only some rows in the cache, in the mask and in the positions."""
    state["past_key_values"].batch_select_indices(keep)
    state["attention_mask"] = state["attention_mask"][keep]
    state["position_ids"] = state["position_ids"][..., keep, :]
    model.model.rope_deltas = model.model.rope_deltas[keep]
