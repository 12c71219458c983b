"""Kept results -> the figures of a table: means over seeds, their intervals, and paired differences between rows.

A row's value in a column is the mean over its seeds of the mean over units; the score is the mean of the main part's
six tasks. Intervals are 95 % bootstrap intervals over images: every draw takes the same images in both rows and in all
seeds, and averages over seeds. They tell how much the choice of images matters; how much the seed matters is told by
the seeds themselves, which stand beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from eval.ablation.records import MODES, ModeScores, RowResult, TestQuestions
from eval.ablation.rows import Rows, RowSpec
from eval.intervals import bootstrap_intervals
from eval.metrics import Difference

Column = tuple[str, str]
# The column of the overall score; those of tasks are (part, task).
SCORE: Column = ("", "score")
BOOTSTRAP_SEED = 0
# Kept floors are rounded to four decimals, so that a score on its floor may seem a little below it.
FLOOR_SLACK = 1e-4
NO_GAP = 1e-9


@dataclass(frozen=True)
class ModeFigures:
    """A row under one way of decoding. values: SCORE and every column -> mean over seeds with its interval.

    seed_scores: seed -> overall score. well_formed, valid, loc: means over tasks and seeds; loc None where no boxes
    are asked for.
    """

    temperature: float
    samples: int
    values: dict[Column, Difference]
    seed_scores: dict[int, float]
    well_formed: float
    valid: float
    loc: float | None
    mean_tokens: float


@dataclass(frozen=True)
class RowFigures:
    """A row of a table. modes: `greedy` and `sampled`; empty when no seed of it is finished."""

    name: str
    spec: RowSpec
    modes: dict[str, ModeFigures]
    steps: float | None
    seconds: float | None
    machines: tuple[str, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The finished seeds."""
        return tuple(self.modes[MODES[0]].seed_scores) if self.modes else ()


@dataclass(frozen=True)
class RowDifference:
    """A row minus another under one way of decoding. values: as of ModeFigures. seed_gaps: seed -> overall gap."""

    row: str
    against: str
    mode: str
    values: dict[Column, Difference]
    seed_gaps: dict[int, float]

    @property
    def agreement(self) -> str:
        """Whether the seeds agree in the sign of the overall difference."""
        gaps = self.seed_gaps.values()
        up, down = sum(gap > NO_GAP for gap in gaps), sum(gap < -NO_GAP for gap in gaps)
        if len(gaps) < 2:
            return "one seed"
        if max(up, down) == len(gaps):
            return f"all {len(gaps)} {'up' if up else 'down'}"
        still = len(gaps) - up - down
        return (
            "none differs"
            if still == len(gaps)
            else f"DISAGREE: {up} up, {down} down" + f", {still} same" * (still > 0)
        )


@dataclass(frozen=True)
class Table:
    """Everything that a table tells. columns: (part, task), those of the main part first. seeds: those due.

    other_titles: of the rows that are compared with and not in the table.
    """

    number: int
    title: str
    study: str
    source: str
    columns: tuple[Column, ...]
    main_part: str
    seeds: tuple[int, ...]
    rows: tuple[RowFigures, ...]
    differences: tuple[RowDifference, ...]
    floors: dict[str, dict[str, dict[str, float]]]
    units: dict[Column, int]
    other_titles: dict[str, str]

    def floor(self, column: Column, name: str) -> float | None:
        """A floor of a column or of the SCORE; None where there is no such floor."""
        if column == SCORE:
            found = [self.floor(item, name) for item in self.columns if item[0] == self.main_part]
            known = [value for value in found if value is not None]
            return fmean(known) if len(known) == len(found) else None
        return self.floors[column[0]][column[1]].get(name)

    def below(self, column: Column, value: float) -> bool:
        """Whether a value lies below the honest floor of a task's column."""
        floor = self.floor(column, "honest")
        return column != SCORE and floor is not None and value < floor - FLOOR_SLACK


def make_table(
    number: int, specs: Rows, questions: TestQuestions, results: Mapping[str, Mapping[int, RowResult]],
    seeds: Sequence[int],
) -> Table:  # fmt: skip
    """The figures of a table of `specs`. results: row -> seed -> result, of these seeds. seeds: those that are due."""
    spec = specs.tables[number]
    shown = [name for name in spec.rows if name in results]
    pairs = [(name, other) for name in shown for other in compared_with(name, specs, spec.rows) if other in results]
    return Table(
        number=number,
        title=spec.title,
        study=questions.study,
        source=questions.source,
        columns=tuple((group.part, group.task) for group in questions.units),
        main_part=questions.parts[0],
        seeds=tuple(sorted(seeds)),
        rows=tuple(row_figures(name, specs.rows[name], questions, results.get(name, {})) for name in spec.rows),
        differences=tuple(
            found
            for name, other in pairs
            for mode in MODES
            if (found := row_difference((name, other), mode, questions, results, specs))
        ),
        floors=questions.floors,
        units={(group.part, group.task): len(group.names) for group in questions.units},
        other_titles={other: specs.rows[other].title for _, other in pairs if other not in spec.rows},
    )


def compared_with(name: str, specs: Rows, rows: Sequence[str]) -> tuple[str, ...]:
    """The rows that a row of a table is compared with: those that it names, else the one above it."""
    above = rows[: rows.index(name)][-1:]
    return specs.rows[name].against or tuple(above)


def row_figures(name: str, spec: RowSpec, questions: TestQuestions, results: Mapping[int, RowResult]) -> RowFigures:
    """The figures of one row over its seeds."""
    if not results:
        return RowFigures(name, spec, {}, None, None)
    costs = [result.cost for result in results.values()]
    modes = {
        mode: mode_figures(questions, {seed: item.scores[mode] for seed, item in results.items()}) for mode in MODES
    }
    machines = tuple(sorted({cost.machine for cost in costs}))
    return RowFigures(name, spec, modes, fmean(c.steps for c in costs), fmean(c.seconds for c in costs), machines)


def mode_figures(questions: TestQuestions, scores: Mapping[int, ModeScores]) -> ModeFigures:
    """The figures of a row under one way of decoding; scores: seed -> what came of it."""
    values_SU = np.array([item.unit_scores for item in scores.values()])
    first = next(iter(scores.values()))
    located = [value for item in scores.values() for value in item.loc.values()]
    return ModeFigures(
        temperature=first.temperature,
        samples=first.samples,
        values=means(questions, values_SU.mean(axis=0), lowest=0.0),
        seed_scores={seed: overall(questions, np.array(item.unit_scores)) for seed, item in scores.items()},
        well_formed=fmean(value for item in scores.values() for value in item.well_formed.values()),
        valid=fmean(value for item in scores.values() for value in item.valid.values()),
        loc=fmean(located) if located else None,
        mean_tokens=fmean(item.mean_tokens for item in scores.values()),
    )


def row_difference(
    names: tuple[str, str], mode: str, questions: TestQuestions, results: Mapping[str, Mapping[int, RowResult]],
    specs: Rows,
) -> RowDifference | None:  # fmt: skip
    """The first row minus the second on the seeds that both have; None when they share none."""
    one, two = names
    pairs = paired_seeds(results[one], results[two], untrained=specs.rows[two].start is None)
    if not pairs:
        return None
    gaps = {
        seed: np.array(first.scores[mode].unit_scores) - np.array(second.scores[mode].unit_scores)
        for seed, (first, second) in pairs.items()
    }
    values = means(questions, np.mean(list(gaps.values()), axis=0), lowest=-1.0)
    return RowDifference(one, two, mode, values, {seed: overall(questions, gap_U) for seed, gap_U in gaps.items()})


def paired_seeds(
    one: Mapping[int, RowResult], two: Mapping[int, RowResult], untrained: bool
) -> dict[int, tuple[RowResult, RowResult]]:
    """Seed -> the results of both rows. The single result of an untrained second row stands for all seeds."""
    if untrained and len(two) == 1:
        (only,) = two.values()
        return {seed: (result, only) for seed, result in one.items()}
    return {seed: (result, two[seed]) for seed, result in one.items() if seed in two}


def overall(questions: TestQuestions, values_U: np.ndarray) -> float:
    """The mean of the main part's tasks of the means over units."""
    found = [values.mean() for group, values in _grouped(questions, values_U) if group == questions.parts[0]]
    return float(np.mean(found))


def means(questions: TestQuestions, values_U: np.ndarray, lowest: float) -> dict[Column, Difference]:
    """SCORE and every column -> mean over units, its interval and how many units.

    values_U: one value a unit, from `lowest` (-1 for differences) to 1.
    """
    found: dict[Column, Difference] = {}
    for part in questions.parts:
        tasks = [group.task for group in questions.units if group.part == part]
        sums_NT, counts_NT = image_sums(questions, values_U, part)
        per_task, whole = bootstrap_intervals(sums_NT, counts_NT, BOOTSTRAP_SEED, lowest)
        counts_T = counts_NT.sum(axis=0)
        means_T = (sums_NT.sum(axis=0) / counts_T).tolist()
        for task, mean, interval, count in zip(tasks, means_T, per_task, counts_T, strict=True):
            found[part, task] = Difference(mean, interval, int(count))
        if part == questions.parts[0]:
            found[SCORE] = Difference(overall(questions, values_U), whole, int(counts_T.sum()))
    return found


def image_sums(questions: TestQuestions, values_U: np.ndarray, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of a part's units added up, and units counted, both (images, tasks)."""
    groups = [group for group in questions.units if group.part == part]
    numbers = {
        image: place for place, image in enumerate(sorted({image for group in groups for image in group.images}))
    }
    sums_NT, counts_NT = np.zeros((len(numbers), len(groups))), np.zeros((len(numbers), len(groups)))
    own = [values for name, values in _grouped(questions, values_U) if name == part]
    for column, (group, values) in enumerate(zip(groups, own, strict=True)):
        places = [numbers[image] for image in group.images]
        np.add.at(sums_NT, (places, column), values)
        np.add.at(counts_NT, (places, column), 1)
    return sums_NT, counts_NT


def _grouped(questions: TestQuestions, values_U: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """(part, values of its units) of every group of units."""
    ends = np.cumsum([len(group.names) for group in questions.units])
    return [(group.part, values) for group, values in zip(questions.units, np.split(values_U, ends[:-1]), strict=True)]
