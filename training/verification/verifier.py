"""The self-verifier: does the policy, shown only a reasoning text, answer what it had answered?

Greedy decoding after a prefix yields an answer exactly when, at each of the answer's positions, the arg-max given the
prefix and the answer so far is the answer's token. So one text-only forward pass over prefix and answer decides,
without generating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from trl.trainer.utils import pad

from data_gen.prompts import verifier_text
from training.verification.lockstep import in_lockstep

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedTokenizerBase

OPEN, CLOSE = "<answer>", "</answer>"
_PLACE = "{request}"


@dataclass(frozen=True)
class VerifierJob:
    """Token ids of the prompt up to the answer, and of the answer with its closing tag.

    unopened: the end of `<answer>` where the answer's first token holds it, as in `>[`; else empty.
    """

    prefix_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    unopened: str = ""

    @property
    def length(self) -> int:
        """Tokens in all."""
        return len(self.prefix_ids) + len(self.answer_ids)


@dataclass(frozen=True)
class JobWriter:
    """Writes jobs for one tokenizer. Model text stays text: a `<|im_end|>` in a trace ends no turn."""

    tokenizer: PreTrainedTokenizerBase
    _head_ids: tuple[int, ...] = field(init=False)
    _tail_ids: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        around = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": _PLACE}], add_generation_prompt=True, tokenize=False
        )
        head, found, tail = around.partition(_PLACE)
        if not found:
            raise ValueError(f"the chat template does not show a message as it is written: {around!r}")
        for name, text in (("_head_ids", head), ("_tail_ids", tail)):
            object.__setattr__(self, name, tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"]))

    def job(self, request: str, answer: str) -> VerifierJob:
        """Chat prompt of a request and `<answer>` as prefix, the answer and `</answer>` as what must follow."""
        asked = self._as_text(request)["input_ids"]
        # Opening tag and answer are tokenised together, as the policy writes them; a token may span the border.
        reply = self._as_text(f"{OPEN}{answer}{CLOSE}", return_offsets_mapping=True)
        ids, offsets = reply["input_ids"], reply["offset_mapping"]
        cut = next(place for place, (_, end) in enumerate(offsets) if end > len(OPEN))
        unopened = OPEN[min(offsets[cut][0], len(OPEN)) :]
        return VerifierJob((*self._head_ids, *asked, *self._tail_ids, *ids[:cut]), tuple(ids[cut:]), unopened)

    def _as_text(self, text: str, **options: Any) -> Any:
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True, **options)


def verifier_job(tokenizer: PreTrainedTokenizerBase, think: str, answer: str) -> VerifierJob:
    """The job of asking which answer a trace reaches. For many, use one JobWriter."""
    return JobWriter(tokenizer).job(verifier_text(think), answer)


def greedy_agreement(
    model: Any, jobs: Sequence[VerifierJob | None], pad_id: int, batch_size: int, accelerator: Accelerator
) -> list[bool]:
    """For each job whether greedy decoding after its prefix gives its answer; False where there is no job.

    Every process must call it, see `in_lockstep`.
    """
    agreed = _judge(_agree, model, jobs, pad_id, batch_size, accelerator)
    return [bool(yes) for yes in agreed]


def answer_scores(
    model: Any, jobs: Sequence[VerifierJob], pad_id: int, batch_size: int, accelerator: Accelerator
) -> list[float]:
    """For each job the summed log-probability of its answer after its prefix, per token of the answer.

    Every process must call it, see `in_lockstep`.
    """
    return _judge(_score, model, jobs, pad_id, batch_size, accelerator)


def _judge(
    judge: Callable[[torch.Tensor, torch.Tensor], Any],
    model: Any,
    jobs: Sequence[VerifierJob | None],
    pad_id: int,
    batch_size: int,
    accelerator: Accelerator,
) -> list[Any]:
    """What `judge` says of each job from the logits of its answer, (tokens, vocabulary), and the answer's ids."""

    def run(batches: list[list[VerifierJob]]) -> Iterator[list[Any]]:
        for batch in batches:
            yield [judge(*row) for row in answer_logits(model, batch, pad_id, accelerator)]

    dummy = VerifierJob((pad_id,), (pad_id,))
    return in_lockstep(run, jobs, dummy, lambda job: job.length, batch_size, accelerator)


@torch.no_grad()
def answer_logits(
    model: Any, jobs: Sequence[VerifierJob], pad_id: int, accelerator: Accelerator
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One padded forward pass; per job the logits before each answer token, (tokens, vocabulary), and the ids."""
    input_ids, mask = padded([job.prefix_ids + job.answer_ids for job in jobs], pad_id, accelerator)
    longest = max(len(job.answer_ids) for job in jobs)
    with accelerator.autocast():
        logits = model(input_ids=input_ids, attention_mask=mask, logits_to_keep=longest + 1, use_cache=False).logits
    starts = [longest - len(job.answer_ids) for job in jobs]
    return [(logits[row, start:-1], input_ids[row, -longest:][start:]) for row, start in enumerate(starts)]


def padded(rows: Sequence[tuple[int, ...]], pad_id: int, accelerator: Accelerator) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids, padded on the left, and their mask, both (rows, longest)."""
    ids = [torch.tensor(row) for row in rows]
    pad_left = partial(pad, padding_side="left")
    device = accelerator.device
    return (
        pad_left(ids, padding_value=pad_id).to(device),
        pad_left([torch.ones_like(row) for row in ids], padding_value=0).to(device),
    )


def _agree(logits: torch.Tensor, answer_ids: torch.Tensor) -> bool:
    return bool((logits.argmax(-1) == answer_ids).all())


def _score(logits: torch.Tensor, answer_ids: torch.Tensor) -> float:
    chosen = logits.float().log_softmax(-1).gather(-1, answer_ids[:, None])
    return chosen.mean().item()
