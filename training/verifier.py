"""The self-verifier: does the policy, shown only a reasoning text, answer what it had answered?

Greedy decoding after a prefix yields an answer exactly when, at each of the answer's positions, the arg-max given the
prefix and the answer so far is the answer's token. So one text-only forward pass over prefix and answer decides,
without generating.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from trl.trainer.utils import pad

from data_gen.prompts import verifier_text

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedTokenizerBase

OPEN, CLOSE = "<answer>", "</answer>"


@dataclass(frozen=True)
class VerifierJob:
    """Token ids of the prompt up to the answer, and of the answer with its closing tag."""

    prefix_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


def verifier_job(tokenizer: PreTrainedTokenizerBase, think: str, answer: str) -> VerifierJob:
    """The job for one trace: chat prompt and `<answer>` as prefix, the answer and `</answer>` as what must follow."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": verifier_text(think)}], add_generation_prompt=True, tokenize=False
    )
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    # Opening tag and answer are tokenised together, as the policy writes them; a token may span the border.
    reply = tokenizer(f"{OPEN}{answer}{CLOSE}", add_special_tokens=False, return_offsets_mapping=True)
    cut = next(place for place, (_, end) in enumerate(reply["offset_mapping"]) if end > len(OPEN))
    return VerifierJob((*prompt_ids, *reply["input_ids"][:cut]), tuple(reply["input_ids"][cut:]))


def greedy_agreement(
    model: Any, jobs: Sequence[VerifierJob | None], pad_id: int, batch_size: int, accelerator: Accelerator
) -> list[bool]:
    """For each job whether greedy decoding after its prefix gives its answer; False where there is no job.

    Every process must call it. Repeated jobs run once; all processes make the same number of forward passes (a
    requirement of ZeRO-3), the ones with fewer jobs on dummies.
    """
    unique = list(dict.fromkeys(job for job in jobs if job is not None))
    count = torch.tensor([len(unique)], device=accelerator.device)
    most = int(accelerator.gather(count).max())
    filled = unique + [VerifierJob((pad_id,), (pad_id,))] * (most - len(unique))
    filled.sort(key=lambda job: len(job.prefix_ids) + len(job.answer_ids))
    agreed: dict[VerifierJob, bool] = {}
    for start in range(0, most, batch_size):
        batch = filled[start : start + batch_size]
        agreed.update(zip(batch, _agree(model, batch, pad_id, accelerator), strict=True))
    return [job is not None and agreed[job] for job in jobs]


@torch.no_grad()
def _agree(model: Any, jobs: Sequence[VerifierJob], pad_id: int, accelerator: Accelerator) -> list[bool]:
    """One padded forward pass; per job whether the arg-max at every answer position is the answer's token."""
    rows = [torch.tensor(job.prefix_ids + job.answer_ids) for job in jobs]
    input_ids = pad(rows, padding_value=pad_id, padding_side="left").to(accelerator.device)
    mask = pad([torch.ones_like(row) for row in rows], padding_value=0, padding_side="left").to(accelerator.device)
    longest = max(len(job.answer_ids) for job in jobs)
    with accelerator.autocast():
        logits = model(input_ids=input_ids, attention_mask=mask, logits_to_keep=longest + 1, use_cache=False).logits
    hit = logits[:, :-1].argmax(-1) == input_ids[:, -longest:]
    return [bool(row[longest - len(job.answer_ids) :].all()) for row, job in zip(hit, jobs, strict=True)]
