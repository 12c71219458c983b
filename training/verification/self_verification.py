"""The part of the GRPO trainer that asks the policy what its own reasoning leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import gather_object, is_peft_model
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer.utils import use_adapter

from data_gen.prompts import verifier_text
from rewards.settings import RewardSettings, completion_text
from training.verification.claims import Claim, Figure, claim_figures, claim_of, disagreements
from training.verification.verifier import JobWriter, VerifierJob, answer_scores, greedy_agreement
from training.verification.verifier_generate import ByTransformers, ByVLLM, generated_answers
from training.verification.verifier_options import VerifierOptions
from training.verification.verifier_server import served_answers

ASK_ITSELF = VerifierOptions()
# Rows of the verifier hold no image and are several times shorter than those of the update.
ROWS_PER_COMPLETION = 4


class SelfVerification:
    """Mix-in for TRL's GRPOTrainer: the verdicts of the self-verifier reach the rewards as a column.

    settings: the frame and variants of the rewards. verifier: who is asked, and how.
    """

    def __init__(
        self: Any, *args: Any, settings: RewardSettings, verifier: VerifierOptions = ASK_ITSELF, **kwargs: Any
    ) -> None:
        self.settings, self.verifier = settings, verifier
        super().__init__(*args, **kwargs)
        self._verifier_client = verifier.client()
        self._compared_batch: int | None = None
        if "logic" in self.reward_func_names:
            verifier.check_reference(self.ref_model is not None or is_peft_model(self.model))

    def _calculate_rewards(
        self: Any, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> torch.Tensor:
        """Rewards of all processes, shape (completions of all processes, reward functions)."""
        if "logic" in self.reward_func_names:
            verdicts = self._verified(inputs, completions)
            inputs = [{**row, "verdicts": verdict} for row, verdict in zip(inputs, verdicts, strict=True)]
        rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)  # type: ignore[misc]
        return rewards

    def _verified(self: Any, inputs: Sequence[dict[str, Any]], completions: Sequence[Any]) -> list[str | None]:
        """The answer reached from each completion's trace alone, or None where there is none. Logs all figures.

        Only well-formed completions are asked about, of rows to which `logic` applies. All processes must call this.
        """
        applies = [self.applies("logic", row) for row in inputs]
        claims = [
            claim_of(row, completion_text(item), self.settings) if asked else None
            for row, item, asked in zip(inputs, completions, applies, strict=True)
        ]
        verdicts, meters = self._verdicts(claims)
        shares = [
            ("logic/verified", float(claim is not None)) for claim, asked in zip(claims, applies, strict=True) if asked
        ]
        self._log_figures([*shares, *claim_figures(claims, verdicts), *meters])
        return verdicts

    def _log_figures(self: Any, figures: Sequence[Figure]) -> None:
        """Append the figures of all processes one by one: each counts the same, whichever batch it was in."""
        mode = "train" if self.model.training else "eval"
        for name, value in gather_object(list(figures)):
            self._metrics[mode][name].append(value)

    def _verdicts(self: Any, claims: Sequence[Claim | None]) -> tuple[list[str | None], list[Figure]]:
        """The answer reached from each claim's trace, and the meters that are due."""
        if self._verifier_client:
            return served_answers(self._verifier_client, [claim.think if claim else None for claim in claims]), []
        writer = JobWriter(self._tokenizer)
        jobs = [writer.job(verifier_text(claim.think), claim.written) if claim else None for claim in claims]
        compares = self._compares()
        with self._asking():
            verdicts = self._ask(self.verifier.mode, claims, jobs)
            if not compares:
                return verdicts, []
            others = self._ask(self.verifier.other_mode, claims, jobs)
            return verdicts, [*disagreements(claims, verdicts, others), *self._masked(claims, writer)]

    def _compares(self: Any) -> bool:
        """Whether this generation batch is one of those with the meters that cost extra passes."""
        every = self.verifier.compare_steps
        if not (every and self.model.training):
            return False
        number = self._step // (self.args.steps_per_generation * self.num_iterations)
        due = number % every == 0 and number != self._compared_batch  # groups that are drawn again count once
        self._compared_batch = number if due else self._compared_batch
        return due

    def _ask(
        self: Any, mode: str, claims: Sequence[Claim | None], jobs: Sequence[VerifierJob | None]
    ) -> list[str | None]:
        """Verdicts by one mode. By `forward` the verdict is the target where greedy decoding would have written it."""
        pad_id, rows = self._tokenizer.pad_token_id, self._verifier_rows
        if mode == "forward":
            agreed = greedy_agreement(self._verifier_model, jobs, pad_id, rows, self.accelerator)
            return [claim.target if claim and yes else None for claim, yes in zip(claims, agreed, strict=True)]
        if self.use_vllm and self.verifier.model == "self":
            sampler: Any = ByVLLM(self.vllm_generation, self._tokenizer)
            return generated_answers(sampler, jobs, pad_id, None, self.accelerator)
        sampler = ByTransformers(self._opened_verifier, self._tokenizer, self.eos_token_ids, self.accelerator)
        return generated_answers(sampler, jobs, pad_id, rows, self.accelerator)

    @property
    def _verifier_rows(self: Any) -> int:
        rows: int = ROWS_PER_COMPLETION * self.args.per_device_train_batch_size
        return rows

    @property
    def _asks_reference_model(self: Any) -> bool:
        return self.verifier.model == "reference" and self.ref_model is not None

    @property
    def _verifier_model(self: Any) -> Any:
        return self.ref_model if self._asks_reference_model else self.model

    @contextmanager
    def _asking(self: Any) -> Iterator[None]:
        """The verifier's model as the policy samples: evaluation mode, no checkpointing; the reference's adapter."""
        model = self._verifier_model
        training = model.training
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs), self._adapter():
            model.eval()
            try:
                yield
            finally:
                model.train(training)

    def _adapter(self: Any) -> Any:
        """The adapter that belongs to the verifier: as TRL's reference has it, the first one's copy or none."""
        if self.verifier.model == "self" or self._asks_reference_model:
            return nullcontext()
        model = self.accelerator.unwrap_model(self.model)
        return use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None)

    @contextmanager
    def _opened_verifier(self: Any) -> Iterator[Any]:
        """The verifier's model with whole weights, where they are sharded."""
        wrapped = self.ref_model if self._asks_reference_model else self.model_wrapped
        gather = self.args.ds3_gather_for_generation
        with (
            unwrap_model_for_generation(wrapped, self.accelerator, gather_deepspeed3_params=gather) as model,
            self._dist.summon_full_params(wrapped, recurse=False),
        ):
            yield model

    def _masked(self: Any, claims: Sequence[Claim | None], writer: JobWriter) -> list[Figure]:
        """Whether the own answer still comes first among the options without it in the trace."""
        ranked = [claim for claim in claims if claim and claim.own_place is not None]
        jobs = [writer.job(claim.masked_request, option) for claim in ranked for option in claim.options]
        pad_id = self._tokenizer.pad_token_id
        scores: list[float] = answer_scores(self._verifier_model, jobs, pad_id, self._verifier_rows, self.accelerator)
        left = iter(scores)
        return [("logic/masked", claim.own_comes_first([next(left) for _ in claim.options])) for claim in ranked]
