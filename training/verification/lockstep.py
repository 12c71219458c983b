"""The same number of batches in every process, however many jobs each has: sharded weights (ZeRO-3) ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from accelerate import Accelerator

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_lockstep(
    run: Callable[[list[list[Job]]], Iterable[Sequence[Result]]],
    jobs: Sequence[Job | None],
    dummy: Job,
    length: Callable[[Job], int],
    batch_size: int | None,
    accelerator: Accelerator,
) -> list[Result | None]:
    """The result of each job, None where there is none.

    Every process must call it. `run` gets batches of distinct jobs sorted by length, as many as the process with most
    jobs has (the others' are filled with dummies), and gives one result per job; where no process has a job it is not
    called. batch_size None: one batch.
    """
    distinct = list(dict.fromkeys(job for job in jobs if job is not None))
    count = torch.tensor([len(distinct)], device=accelerator.device)
    most = int(accelerator.gather(count).max())
    if not most:
        return [None] * len(jobs)
    filled = sorted([*distinct, *[dummy] * (most - len(distinct))], key=length)
    size = batch_size or most
    batches = [filled[start : start + size] for start in range(0, most, size)]
    results: dict[Any, Result] = {}
    for batch, found in zip(batches, run(batches), strict=True):
        results.update(zip(batch, found, strict=True))
    return [None if job is None else results[job] for job in jobs]
