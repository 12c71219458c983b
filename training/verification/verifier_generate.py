"""The self-verifier by generation: what the model really writes after `<answer>`, greedily, until `</answer>`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig

from training.verification.lockstep import in_lockstep
from training.verification.verifier import CLOSE, VerifierJob, padded

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedTokenizerBase

# The longest option has a dozen tokens; what has not closed by then is no answer.
NEW_TOKENS = 32
Generate = Callable[[list[list[VerifierJob]]], Iterable[list[str]]]


def generated_answers(
    generate: Generate,
    jobs: Sequence[VerifierJob | None],
    pad_id: int,
    batch_size: int | None,
    accelerator: Accelerator,
) -> list[str | None]:
    """The answer written after each job's prefix; None where there is no job, or no answer was written to its end.

    generate: batches of jobs -> the texts written after their prefixes. Jobs with the same prefix run once.
    Every process must call it, see `in_lockstep`.
    """
    asked = [job and replace(job, answer_ids=()) for job in jobs]
    texts = in_lockstep(generate, asked, VerifierJob((pad_id,), ()), lambda job: job.length, batch_size, accelerator)
    return [read_reply(job, text) if job and text is not None else None for job, text in zip(jobs, texts, strict=True)]


def read_reply(job: VerifierJob, text: str) -> str | None:
    """The answer in what was written after a job's prefix, or None when the tags around it are not whole."""
    if not text.startswith(job.unopened):
        return None
    answer, closed, _ = text.removeprefix(job.unopened).partition(CLOSE)
    return answer.strip() or None if closed else None


@dataclass(frozen=True)
class ByTransformers:
    """Generation by `model.generate`. opened: gives the model with whole weights while it generates."""

    opened: Callable[[], AbstractContextManager[Any]]
    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: Sequence[int]
    accelerator: Accelerator

    def __call__(self, batches: list[list[VerifierJob]]) -> Iterator[list[str]]:
        """The text written after each job's prefix."""
        pad_id = self.tokenizer.pad_token_id
        config = GenerationConfig(
            do_sample=False,
            repetition_penalty=1.0,
            max_new_tokens=NEW_TOKENS,
            eos_token_id=list(self.eos_token_ids),
            pad_token_id=pad_id,
            stop_strings=[CLOSE],
        )
        with self.opened() as model, torch.no_grad(), self.accelerator.autocast():
            for batch in batches:
                input_ids, mask = padded([job.prefix_ids for job in batch], pad_id, self.accelerator)
                out = model.generate(
                    input_ids=input_ids, attention_mask=mask, generation_config=config, tokenizer=self.tokenizer
                )
                yield self.tokenizer.batch_decode(out[:, input_ids.shape[1] :], skip_special_tokens=True)


@dataclass(frozen=True)
class ByVLLM:
    """Generation by the engine that samples the completions, with greedy settings meanwhile.

    vllm_generation: TRL's; it reads its settings anew at each call, and holds the policy's weights of this step.
    """

    vllm_generation: Any
    tokenizer: PreTrainedTokenizerBase

    def __call__(self, batches: list[list[VerifierJob]]) -> Iterator[list[str]]:
        """The text written after each job's prefix."""
        greedy = {
            "temperature": 0.0,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "max_completion_length": NEW_TOKENS,
            "structured_outputs_regex": None,
            "generation_kwargs": {"stop": [CLOSE], "include_stop_str_in_output": True},
        }
        before = {name: getattr(self.vllm_generation, name) for name in greedy}
        try:
            self._set(greedy)
            for batch in batches:
                prompts = [list(job.prefix_ids) for job in batch]
                _, ids, *_ = self.vllm_generation.generate(prompts=prompts, images=None, num_generations=1)
                yield self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        finally:
            self._set(before)

    def _set(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self.vllm_generation, name, value)
