"""What a sweep would do, as text: every command of every unit, and GPU hours."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ablation.plan import DATA, Unit
from ablation.state import DONE
from ablation.study import Study


def dry_run(
    units: Sequence[Unit], tables: Mapping[str, Sequence[str]], states: Mapping[str, str], left: Sequence[Unit],
    study: Study,
) -> str:  # fmt: skip
    """The commands of the units in order, a comment above each unit, then those of the tables.

    left: the units that would be worked on. tables: table -> its command.
    """
    wanted = {unit.name for unit in left}
    blocks = []
    for unit in units:
        lines = [f"# {_title(unit, units)}{_state(states[unit.name], unit.name in wanted)}{_hours(unit, study)}"]
        blocks.append("\n".join([*lines, *(command.line() for command in unit.commands)]))
    if tables:
        blocks.append("\n".join(["# tables, of the rows that are done", *map(shlex.join, tables.values())]))
    total = sum(gpu_hours(unit, study) for unit in left)
    rows = sum(unit.result is not None for unit in units)
    told = f"# {rows} rows of one seed, {sum(unit.result is not None for unit in left)} of them left to do"
    if study.gpus:
        told += (
            f"; {total:,.0f} GPU hours ({study.gpus} GPUs held while a unit runs). These are estimates, reckoned from "
            "the figures in the study file; no GPU has confirmed them"
        )
    else:
        told += f"; about {sum(hours(unit, study) for unit in left):.1f} hours of one core, by the study's estimates"
    return "\n\n".join([*blocks, told]) + "\n"


def gpu_hours(unit: Unit, study: Study) -> float:
    """GPUs held times hours; the data is made without any."""
    if unit.name == DATA:
        return 0.0
    return study.gpus * hours(unit, study)


def hours(unit: Unit, study: Study) -> float:
    """What a unit takes by the estimates of the study; commands without one count as nothing."""
    return sum(study.estimates[c.stage].seconds for c in unit.commands if c.stage in study.estimates) / 3600


def _title(unit: Unit, units: Sequence[Unit]) -> str:
    if unit.row is None:
        return "data, made once"
    if unit.result is None:
        served = [other.row for other in units if unit.name in other.needs and other.row != unit.row]
        start = f", also the start of {', '.join(map(str, served))}" if served else ""
        return f"{unit.row}, seed {unit.seed}: training, made once{start}"
    return f"{unit.row}, seed {unit.seed}"


def _state(state: str, wanted: bool) -> str:
    if state == DONE:
        return " [done]"
    return f" [{state}]" if state != "open" else "" if wanted else " [not needed]"


def _hours(unit: Unit, study: Study) -> str:
    return f" ({gpu_hours(unit, study):,.0f} GPU hours)" if study.gpus and unit.name != DATA else ""
