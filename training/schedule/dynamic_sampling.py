"""The part of the GRPO trainer that replaces groups in which all completions earn the same.

Such groups teach nothing: every advantage in them is 0. A generation batch is drawn, then up to N more, each whole and
in lockstep on all processes, of prompts that it has not seen; a process puts the groups with spread that it draws into
its own places without. What is logged of rewards, lengths and tasks is the first draw's alone, which no selection by
reward has touched and which compares with a run that replaces nothing; the number of tokens counts every draw.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object

from data_gen.command_line import UsageError
from training.schedule.batches import Batch, completion_tokens, merge_groups
from training.schedule.order import Unit, in_twos
from training.scoring.task_log import has_spread


def groups_with_spread(rewards: torch.Tensor, weights: torch.Tensor, group: int) -> torch.Tensor:
    """Whether the weighted sums of rewards differ within each group, shape (groups,).

    rewards: shape (completions, functions), NaN where a function does not apply; a completion to which none applies
    does not count.
    """
    totals = (rewards * weights.to(rewards.device)).nansum(dim=1)
    return has_spread(totals.masked_fill(rewards.isnan().all(dim=1), torch.nan).view(-1, group))


def other_prompts(units: Sequence[Unit], seen: set[int], seed: str) -> Iterator[int]:
    """Places of rows to draw, in a seeded order: those not seen first, the others after them, over and over."""
    rng = random.Random(seed)
    order = list(units)
    rng.shuffle(order)
    order.sort(key=lambda unit: any(place in seen for place in unit))
    while True:
        for unit in order:
            yield from unit


def fill_places(has_spread: Sequence[bool], drawn_with_spread: Sequence[bool]) -> list[tuple[int, int]]:
    """(place without spread, drawn group with spread) for as many as there are of both, in order."""
    open_places = [place for place, spread in enumerate(has_spread) if not spread]
    usable = [place for place, spread in enumerate(drawn_with_spread) if spread]
    return list(zip(open_places, usable, strict=False))


class DynamicSampling:
    """Mix-in for TRL's GRPOTrainer.

    dynamic_sampling: how often a generation batch may draw other prompts; 0: never. draws_in_twos: whether both
    questions of a pair are drawn together, for the pair reward; once scored, each group is kept or not on its own.
    """

    def __init__(self, *args: Any, dynamic_sampling: int = 0, draws_in_twos: bool = False, **kwargs: Any) -> None:
        self.dynamic_sampling, self.draws_in_twos = dynamic_sampling, draws_in_twos
        self._draws_of_step = (-1, 0)  # optimiser step, generation batches drawn for it
        super().__init__(*args, **kwargs)

    def _calculate_rewards(self: Any, *args: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(*args)  # type: ignore[misc]
        self._last_rewards = rewards
        return rewards

    def _generate_and_score_completions(self: Any, inputs: list[dict[str, Any]]) -> Batch:
        batch: Batch = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        if not self.dynamic_sampling or not self.model.training:
            return batch
        batch, spread, rounds, replaced = self._replaced(batch, inputs)
        metrics = self._metrics["train"]
        metrics["dynamic/rounds"].append(rounds)
        metrics["dynamic/replaced"].append(replaced)
        metrics["dynamic/left"].append(int((~spread).sum()))
        return batch

    def _replaced(self: Any, batch: Batch, inputs: list[dict[str, Any]]) -> tuple[Batch, torch.Tensor, int, int]:
        """The batch with groups without spread replaced, which groups have spread, rounds needed, groups replaced.

        Groups with spread: shape (processes, groups of each). Every process knows all rewards, so that all of them
        decide the same. Raises UsageError when no group of any process has spread in the end.
        """
        group, process = self.num_generations, self.accelerator.process_index
        all_rewards = [self._last_rewards]
        spread = self._spread(self._last_rewards)
        prompts = self._other_prompts(inputs) if not spread.all() else iter(())
        rounds = replaced = 0
        while rounds < self.dynamic_sampling and not spread.all():
            rounds += 1
            drawn = self._drawn([next(prompts) for _ in range(spread.numel())])
            all_rewards.append(self._last_rewards)
            usable = self._spread(self._last_rewards)
            exchanges = [fill_places(have, new) for have, new in zip(spread.tolist(), usable.tolist(), strict=True)]
            batch = merge_groups(batch, drawn, exchanges[process], group, self._tokenizer.pad_token_id)
            for of_process, exchanged in zip(spread, exchanges, strict=True):
                of_process[[place for place, _ in exchanged]] = True
            replaced += sum(map(len, exchanges))
        if not spread.any():
            raise UsageError(self._nothing_to_learn(torch.cat(all_rewards)))
        if rounds:
            batch["num_items_in_batch"] = self.accelerator.gather(completion_tokens(batch)).sum()
        return batch, spread, rounds, replaced

    def _spread(self: Any, rewards: torch.Tensor) -> torch.Tensor:
        spread = groups_with_spread(rewards, self.reward_weights, self.num_generations)
        return spread.view(self.accelerator.num_processes, -1).cpu()

    def _drawn(self: Any, places: list[int]) -> Batch:
        """A scored generation batch of this process's part of the rows at these places; nothing of it is logged."""
        own = len(places) // self.accelerator.num_processes
        first = self.accelerator.process_index * own
        rows = [self.train_dataset[place] for place in places[first : first + own]]
        with self._unlogged():
            batch: Batch = super()._generate_and_score_completions(  # type: ignore[misc]
                [row for row in rows for _ in range(self.num_generations)]
            )
        return batch

    @contextmanager
    def _unlogged(self: Any) -> Iterator[None]:
        """The trainer with logs that are thrown away; the number of tokens goes on."""
        metrics, logs = self._metrics["train"], self._logs
        self._metrics["train"] = defaultdict(list)
        thrown_away: dict[str, Any] = {name: deque() for name in logs}
        self._logs = thrown_away | {name: defaultdict(deque) for name in logs if isinstance(logs[name], dict)}
        yield
        self._metrics["train"], self._logs = metrics, logs
        metrics["num_tokens"] = [self.state.num_input_tokens_seen]

    def _other_prompts(self: Any, inputs: list[dict[str, Any]]) -> Iterator[int]:
        """Places of rows of the same stage, those in no process's batch first; the same for all processes.

        The order depends on the seed, the optimiser step and how many batches that step has drawn before, and so is
        the same after a resume.
        """
        step, before = self._draws_of_step
        before = before + 1 if step == self.state.global_step else 0
        self._draws_of_step = (self.state.global_step, before)
        units = self.units_of_stage(inputs[0].get("stage", 0))
        if self.draws_in_twos:
            units = in_twos(units, self.asked)
        seen_ids = set(gather_object([row["question_id"] for row in inputs]))
        seen = {place for unit in units for place in unit if self.asked[place].question_id in seen_ids}
        return other_prompts(units, seen, f"{self.args.seed} {self.state.global_step} {before}")

    def _nothing_to_learn(self: Any, rewards: torch.Tensor) -> str:
        """Why the run stops, and what to change. rewards: shape (completions, functions)."""
        ranges = [
            f"{name} {_range(column)} (weight {weight:g})"
            for name, column, weight in zip(
                self.reward_func_names, rewards.T, self.reward_weights.tolist(), strict=True
            )
        ]
        return (
            f"no group of {self.num_generations} completions has any spread in its reward, after "
            f"{self.dynamic_sampling} further draws: {len(rewards)} completions earned {', '.join(ranges)}; there is "
            "nothing to learn from. Start from a checkpoint that is right now and then (SFT), take easier questions, "
            "more --num_generations or a higher --temperature, or add a reward that grades in steps"
        )


def _range(rewards: torch.Tensor) -> str:
    known = rewards[~rewards.isnan()]
    if not len(known):
        return "nothing (does not apply)"
    low, high = known.min().item(), known.max().item()
    return f"always {low:g}" if low == high else f"{low:g} to {high:g}"
