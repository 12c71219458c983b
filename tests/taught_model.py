"""Teach a small model what to write after given prompts, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator

from training.verification.verifier import VerifierJob, padded


def teach(
    model: Any, jobs: Sequence[VerifierJob], steps: int, batch_size: int | None = None, learning_rate: float = 3e-3
) -> None:
    """Adam steps on the answers of the jobs, all of them in each step or seeded batches."""
    optimiser = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=learning_rate)
    order = torch.Generator().manual_seed(0)
    for _ in range(steps):
        chosen = torch.randperm(len(jobs), generator=order)[:batch_size].tolist()
        loss_of(model, [jobs[place] for place in chosen]).backward()
        optimiser.step()
        optimiser.zero_grad()


def loss_of(model: Any, jobs: Sequence[VerifierJob]) -> torch.Tensor:
    """Cross-entropy of the answers after their prefixes."""
    ids, mask = padded([job.prefix_ids + job.answer_ids for job in jobs], 0, Accelerator(cpu=True))
    labels = ids.clone()
    for row, job in enumerate(jobs):
        labels[row, : -len(job.answer_ids)] = -100
    loss: torch.Tensor = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    return loss
