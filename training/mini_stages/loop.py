"""One stage of training: a fixed number of steps, each of which depends on seed and number alone, with checkpoints."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from data_gen.in_order import map_in_forks

WARM_UP_STEPS = 60
LEAST_SHARE = 0.03  # of the learning rate, at the end
SAVE_EVERY_S = 60.0
TELL_EVERY = 100


@dataclass(frozen=True)
class Stage:
    """How a stage trains. number: a seed of its own, for what it draws; another number gives other data."""

    name: str
    number: int
    steps: int
    examples_per_step: int
    learning_rate: float


Draw = Callable[[np.random.Generator], Any]
StepLosses = Callable[[Any], dict[str, Tensor]]


def train(
    stage: Stage,
    modules: Sequence[nn.Module],
    losses_of: StepLosses,
    checkpoint: Path,
    seed: int,
    draw: Draw = lambda rng: rng,
    workers: int = 1,
) -> None:
    """Train modules on the sum of the losses of what is drawn for a step; goes on from the checkpoint, if any.

    The checkpoint then holds the trained modules; it is written every minute. workers: processes that draw ahead, forks
    of this one, so that `draw` must not touch a GPU and torch must have one thread; with one, this process draws.
    """
    together = nn.ModuleList(modules)
    optimizer = torch.optim.AdamW(
        together.parameters(), lr=stage.learning_rate, betas=(0.9, 0.98), weight_decay=0.05, fused=True
    )
    first = _load(checkpoint, together, optimizer)
    told: dict[str, list[float]] = defaultdict(list)
    begun, saved = time.process_time(), time.monotonic()
    together.train()
    for step, drawn in enumerate(_drawn(stage, seed, draw, first, workers), start=first):
        for group in optimizer.param_groups:
            group["lr"] = stage.learning_rate * share_of_rate(step, stage.steps)
        losses = losses_of(drawn)
        torch.stack(list(losses.values())).sum().backward()
        nn.utils.clip_grad_norm_(together.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        for name, loss in losses.items():
            told[name].append(loss.item())
        if (step + 1) % TELL_EVERY == 0 or step + 1 == stage.steps:
            said = " ".join(f"{name} {fmean(values):.3f}" for name, values in told.items())
            print(f"{stage.name} {step + 1}/{stage.steps} {time.process_time() - begun:.0f} cpu-s {said}", flush=True)
            told.clear()
        if time.monotonic() - saved > SAVE_EVERY_S:
            _save(checkpoint, together, optimizer, step + 1)
            saved = time.monotonic()
    _save(checkpoint, together, optimizer, stage.steps)
    together.eval()


def _drawn(stage: Stage, seed: int, draw: Draw, first: int, workers: int) -> Iterator[Any]:
    """What is drawn for every step from the first on, in order."""

    def of_step(draw: Draw, step: int) -> Any:
        return draw(np.random.default_rng([seed, stage.number, step]))

    return map_in_forks(of_step, draw, range(first, stage.steps), workers)


def share_of_rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine."""
    falling = 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / WARM_UP_STEPS) * max(LEAST_SHARE, falling)


def _save(path: Path, modules: nn.Module, optimizer: torch.optim.Optimizer, steps_done: int) -> None:
    part = path.with_suffix(".part")
    torch.save({"modules": modules.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps_done}, part)
    part.rename(path)


def _load(path: Path, modules: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take up a checkpoint and give its number of steps; 0 when there is none."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    modules.load_state_dict(state["modules"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["steps"])
