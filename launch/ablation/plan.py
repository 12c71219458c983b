"""The rows of a study for some seeds as units of work: which commands, and what must be done before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ablation.commands import Command, digest, fill, output_of, shortened
from ablation.study import Row, Rows, Study

DATA = "data"


@dataclass(frozen=True)
class Place:
    """Where a sweep works, on this machine. run: its folder; results: that of the finished rows; cores: of the CPU."""

    run: str
    results: str
    cores: str


PORTABLE = Place("{run}", "{results}", "{cores}")


@dataclass(frozen=True)
class Unit:
    """Commands that run one after the other.

    row, seed: what it is for, None for the data. needs: names of the units before it. result: file of the finished
    row, None for data and for a training that rows start from.
    """

    name: str
    row: str | None
    seed: int | None
    commands: tuple[Command, ...]
    needs: tuple[str, ...] = ()
    result: str | None = None

    @property
    def digest(self) -> str:
        """Of the last command, and so of all that it comes from."""
        return self.commands[-1].digest


@dataclass
class Planner:
    """Makes the commands of a study. made: portable name of an output -> digest of what is there."""

    study: Study
    rows: Rows
    place: Place
    shorten: int = 1
    made: dict[str, str] = field(default_factory=dict)

    def data(self) -> Unit:
        """What all rows share."""
        return Unit(DATA, None, None, tuple(self._command(name, text) for name, text in self.study.data.items()))

    def training(self, row: Row, seed: int) -> Command:
        """The command that trains a row."""
        name = self.study.training_of(row)
        return self._command(name, self.study.training[name], row, seed)

    def scoring(self, row: Row, seed: int) -> list[Command]:
        """The commands that evaluate a row and keep what came of it."""
        commands = [self._command(name, text, row, seed) for name, text in self.study.evaluation.items()]
        return [*commands, self._command("summary", self.study.summary, row, seed, resumable=False)]

    def _command(
        self, stage: str, template: str, row: Row | None = None, seed: int | None = None, resumable: bool = True
    ) -> Command:
        portable = shortened(fill(template, self._values(PORTABLE, row, seed, "{commands}")), self.shorten)
        makes = digest(portable, self.made)
        self.made[output_of(portable)] = makes
        words = shortened(fill(template, self._values(self.place, row, seed, makes)), self.shorten)
        return Command(stage, tuple(words), output_of(words), makes, resumable)

    def _values(self, place: Place, row: Row | None, seed: int | None, commands: str) -> dict[str, str]:
        """The placeholders of a command; those of a row only for a row's."""
        values = {"study": self.study.name, "model": self.study.model, **vars(place)}
        if row is None:
            return values
        return values | {
            "row": row.name,
            "title": row.title,
            "seed": str(seed),
            "out": f"{place.run}/{row.name}-{seed}",
            "start": self._checkpoint(place, row.start, seed) if row.start else "none",
            "checkpoint": self._checkpoint(place, row.name, seed),
            "train": self._checkpoint(place, row.name, seed) if row.trained else "none",
            "rewards": row.rewards or "none",
            "reward_values": row.reward_values,
            "commands": commands,
        }

    def _checkpoint(self, place: Place, row: str, seed: int | None) -> str:
        return f"{place.run}/{row}-{seed}/train" if self.rows.rows[row].trained else self.study.model


def training_unit(row: str, seed: int) -> str:
    """Name of the unit that trains a row which others start from."""
    return f"{row}-{seed}-training"


def plan(planner: Planner, rows: Sequence[Row], seeds: Iterable[int]) -> list[Unit]:
    """The units of these rows for these seeds, each after those that it needs; what they start from is among them."""
    units = [planner.data()]
    starts = planner.rows.starts()
    for seed in seeds:
        for row in with_starts(planner.rows, rows):
            shared = row.name in starts
            trained = [planner.training(row, seed)] if row.trained else []
            needs = (DATA, training_unit(row.start, seed)) if row.start in starts else (DATA,)
            if shared:
                units.append(Unit(training_unit(row.name, seed), row.name, seed, tuple(trained), needs))
                trained, needs = [], (DATA, training_unit(row.name, seed))
            if row in rows:
                commands = (*trained, *planner.scoring(row, seed))
                units.append(Unit(f"{row.name}-{seed}", row.name, seed, commands, needs, commands[-1].out))
    return units


def with_starts(all_rows: Rows, rows: Iterable[Row]) -> list[Row]:
    """The rows and those that they start from, directly or not, each once and before what it serves."""
    wanted: set[str | None] = set()
    for row in rows:
        name: str | None = row.name
        while name is not None:
            wanted.add(name)
            name = all_rows.rows[name].start
    return [row for name, row in all_rows.rows.items() if name in wanted]


def needed(units: Sequence[Unit], done: Collection[str]) -> list[Unit]:
    """The units that are left: rows that are not done, and what these need of what is not done."""
    wanted = {unit.name for unit in units if unit.result is not None and unit.name not in done}
    for unit in reversed(units):  # a unit stands after those that it needs
        if unit.name in wanted:
            wanted.update(name for name in unit.needs if name not in done)
    return [unit for unit in units if unit.name in wanted]
