"""In which order the rows of the dataset are trained on: stage by stage, from easy to hard, mirrored pairs together."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import fmean
from typing import Any

from torch.utils.data import Sampler
from trl.trainer.utils import RepeatSampler

from training.schedule.stage_file import Stage

Unit = tuple[int, ...]  # places of rows that stay together
PassRates = Mapping[str, float]  # question id -> share of right completions


@dataclass(frozen=True)
class Asked:
    """What the order needs to know of a row of the dataset; `stage` counts from 0."""

    question_id: str
    pair_id: str | None
    variant: int
    stage: int = 0


@dataclass(frozen=True)
class Schedule:
    """How the rows are put into order.

    in_twos: every place 2i and 2i + 1 holds both questions of a pair, or two unpaired ones. easy_first: by pass rate.
    rows_per_stage: how many prompts each stage trains on; without stages every row comes once. source: their file.
    """

    seed: int
    in_twos: bool = False
    easy_first: bool = False
    stages: tuple[Stage, ...] = ()
    rows_per_stage: tuple[int, ...] = ()
    source: str = ""

    def label(self, number: int) -> str:
        """A stage, from 0, as messages name it."""
        return f"--stages {self.source}, stage {number + 1} ({self.stages[number].name})"

    @property
    def needs_pass_rates(self) -> bool:
        """Whether the model's pass rates must be measured first."""
        return self.easy_first or any(stage.difficulty for stage in self.stages)


def units_of(places: Sequence[int], asked: Sequence[Asked]) -> list[Unit]:
    """Both questions of a pair, variant 0 first, as one unit; every other row as a unit of its own."""
    of_name: dict[str, list[int]] = {}
    for place in places:
        of_name.setdefault(asked[place].pair_id or asked[place].question_id, []).append(place)
    return [tuple(sorted(unit, key=lambda place: asked[place].variant)) for unit in of_name.values()]


def in_twos(units: Sequence[Unit], asked: Sequence[Asked]) -> list[Unit]:
    """Units of exactly two rows: pairs as they are, unpaired rows joined with the next unpaired one.

    An odd one is left out, and so is a question whose partner is missing.
    """
    twos: list[Unit] = []
    waiting: Unit = ()
    for unit in units:
        if len(unit) == 2:
            twos.append(unit)
        elif asked[unit[0]].pair_id is None:
            waiting += unit
            if len(waiting) == 2:
                twos.append(waiting)
                waiting = ()
    return twos


def unit_rate(unit: Unit, asked: Sequence[Asked], rates: PassRates) -> float:
    """Mean pass rate of the questions of a unit."""
    return fmean(rates[asked[place].question_id] for place in unit)


def one_pass(
    units: Sequence[Unit],
    asked: Sequence[Asked],
    schedule: Schedule,
    rates: PassRates | None,
    rng: random.Random,
    rows: int,
) -> list[int]:
    """Places of a seeded choice of the units, of `rows` rows or of all, shuffled, or from easy to hard with ties so."""
    shuffled = list(units)
    rng.shuffle(shuffled)
    ends = accumulate(map(len, shuffled))
    taken = [unit for unit, end in zip(shuffled, ends, strict=True) if end - len(unit) < rows]
    if schedule.easy_first and rates is not None:
        taken.sort(key=lambda unit: unit_rate(unit, asked, rates), reverse=True)
    if schedule.in_twos:
        taken = in_twos(taken, asked)
    return [place for unit in taken for place in unit]


def training_order(asked: Sequence[Asked], schedule: Schedule, rates: PassRates | None = None) -> list[int]:
    """Places of the rows in training order; a stage with fewer questions than rows goes through them again.

    Before the pass rates are known, the order has its length but neither difficulty nor curriculum.
    Raises ValueError for a stage whose difficulty leaves nothing.
    """
    if not schedule.stages:
        units = units_of(range(len(asked)), asked)
        return one_pass(units, asked, schedule, rates, random.Random(schedule.seed), len(asked))
    order: list[int] = []
    for number, rows in enumerate(schedule.rows_per_stage):
        units = stage_units(number, asked, schedule, rates)
        rng = random.Random(f"{schedule.seed} stage {number}")
        of_stage: list[int] = []
        while len(of_stage) < rows:
            of_stage += one_pass(units, asked, schedule, rates, rng, rows - len(of_stage))
        order += of_stage[:rows]
    return order


def stage_units(number: int, asked: Sequence[Asked], schedule: Schedule, rates: PassRates | None) -> list[Unit]:
    """The units of a stage within its difficulty. Raises ValueError when there are none, or none that can be paired."""
    stage = schedule.stages[number]
    units = units_of([place for place, row in enumerate(asked) if row.stage == number], asked)
    if stage.difficulty and rates is not None:
        low, high = stage.difficulty
        units = [unit for unit in units if low <= unit_rate(unit, asked, rates) <= high]
    if not (in_twos(units, asked) if schedule.in_twos else units):
        tasks = f" of {', '.join(stage.tasks)}" if stage.tasks else ""
        bounds = f" with a pass rate in {list(stage.difficulty)}" if stage.difficulty else ""
        pairs = ", or none that the pair reward can use" if schedule.in_twos else ""
        raise ValueError(f"{schedule.label(number)}: there are no questions{tasks}{bounds}{pairs}")
    return units


class ScheduledSampler(Sampler[int]):
    """TRL's repetition of prompts over an order of rows that is read when an epoch begins."""

    def __init__(self, trainer: Any, repeated: RepeatSampler) -> None:
        self.trainer, self.repeated = trainer, repeated

    def __iter__(self) -> Iterator[int]:
        order = self.trainer.order
        for place in self.repeated:
            yield order[place]

    def __len__(self) -> int:
        return len(self.repeated)


class OwnOrder:
    """Mix-in for TRL's GRPOTrainer: trains on the rows in the order of a schedule.

    schedule: None leaves the order to TRL. What it says about pass rates holds from `order_by` on.
    """

    def __init__(self, *args: Any, schedule: Schedule | None = None, **kwargs: Any) -> None:
        self.schedule = schedule
        super().__init__(*args, **kwargs)
        self.pass_rates: PassRates | None = None
        self.order: list[int] | None = training_order(self.asked, schedule) if schedule else None

    @cached_property
    def asked(self: Any) -> list[Asked]:
        """What the order needs of every row."""
        rows = self.train_dataset
        stages = rows["stage"] if "stage" in rows.column_names else [0] * len(rows)
        columns = (rows["question_id"], rows["pair_id"], rows["variant"], stages)
        return [Asked(*row) for row in zip(*columns, strict=True)]

    def order_by(self: Any, rates: PassRates) -> None:
        """Put the rows into order by the pass rates, which change what is trained on but not how much.

        Raises ValueError for a stage whose difficulty leaves nothing.
        """
        self.order = training_order(self.asked, self.schedule, rates)
        self.pass_rates = rates

    def units_of_stage(self: Any, stage: int) -> list[Unit]:
        """All units that may be trained on in a stage, from 0, whether or not its steps get to them."""
        if self.schedule and self.schedule.stages:
            return stage_units(stage, self.asked, self.schedule, self.pass_rates)
        return units_of(range(len(self.asked)), self.asked)

    def _get_train_sampler(self: Any, dataset: Any = None) -> Any:
        if self.order is None:
            return super()._get_train_sampler(dataset)  # type: ignore[misc]
        prompts = self.args.generation_batch_size // self.num_generations
        times = self.num_iterations * self.args.steps_per_generation
        repeated = RepeatSampler(range(len(self.order)), self.num_generations, prompts, times, shuffle=False)
        return ScheduledSampler(self, repeated)

    def _prepare_inputs(self: Any, generation_batch: Any) -> Any:
        if self._buffered_inputs is None and self.model.training:
            # TRL counts from 0 after a resume, and would take the middle of a generation batch for its beginning.
            accumulation = self.args.gradient_accumulation_steps
            steps_per_epoch = math.ceil(len(self.callback_handler.train_dataloader) / accumulation)
            self._step = self.state.global_step % steps_per_epoch * accumulation
        return super()._prepare_inputs(generation_batch)  # type: ignore[misc]
