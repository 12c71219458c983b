"""A sweep from its options to its end: plan, what is done, dry run or work, tables."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ablation.commands import executable, fill
from ablation.dry_run import dry_run
from ablation.environment import environment
from ablation.options import parallel_of, parse, place_of, rows_of, study_of
from ablation.overview import Screen, failure, overview
from ablation.plan import Place, Planner, Unit, needed, plan
from ablation.progress import longest_first
from ablation.slurm import write_jobs
from ablation.state import DONE, Marks, forget_results, refuse_others, state_of
from ablation.study import ROOT, Row, Rows, Study, StudyError
from ablation.work import Work, lock

POLL_S = 0.3
STOPPED = 130


def main(arguments: Sequence[str]) -> int:
    """Do what the options ask for; the exit status: 2 for what cannot be asked, 1 when a unit failed."""
    options = parse(arguments)
    try:
        return sweep(options)
    except StudyError as error:
        print(f"launch/ablate.py: {error}", file=sys.stderr)
        return 2


def sweep(options: argparse.Namespace) -> int:
    """Plan, then print, write or run. Raises StudyError."""
    study = study_of(options)
    all_rows, rows, tables = rows_of(options)
    place = place_of(options, study)
    if options.shorten > 1:
        study = trial(study, options.shorten)

    def planned() -> list[Unit]:
        return plan(Planner(study, all_rows, place, options.shorten), rows, options.seeds)

    units = planned()
    marks = Marks(place.run)
    states = {unit.name: state_of(unit, marks) for unit in units}
    left = needed(units, {name for name, state in states.items() if state == DONE})
    pages = table_commands(study, place, whole_tables(tables, all_rows, rows), options.seeds)
    if options.dry_run:
        print(dry_run(units, pages, states, left, study), end="")
        return 0
    if not options.overwrite:
        refuse_others(left, states, marks)
    for unit in left:
        for command in unit.commands:
            executable(command.words)  # refuses what is not set before the first begins
    if options.machine == "slurm":
        forget_results(left)
        return write_jobs(left, pages, place, study, marks, options)
    print(f"{len(left)} of {len(units)} units are left to do; their output goes to {place.run}/logs", flush=True)
    parallel = parallel_of(options)
    work = Work(
        left, place, parallel, marks, environment(study, parallel), _order(left, study),
        plan_anew=lambda: {unit.name: unit.digest for unit in planned()}, overwrite=options.overwrite,
    )  # fmt: skip
    status = work_through(work, study) if left else 0
    if status == STOPPED:
        return status
    made = make_tables(pages, environment(study, 1))  # where a unit failed, of the rows that are done
    return status or made


def trial(study: Study, factor: int) -> Study:
    """The study under another name, what is done for rows thought to take less by the factor."""
    less = {stage: replace(told, steps=told.steps / factor) for stage, told in study.estimates.items()}
    of_data = {stage: told for stage, told in study.estimates.items() if stage in study.data}
    return replace(study, name=f"{study.name}-short{factor}", estimates=less | of_data)


def work_through(work: Work, study: Study) -> int:
    """Do the units, showing how they stand; 0 when all are done, 1 when one failed, STOPPED when stopped."""
    work.locks = (lock(ROOT / work.place.run),)
    forget_results(work.units)
    stopped: list[int] = []
    before = {n: signal.signal(n, lambda got, frame: stopped.append(got)) for n in (signal.SIGINT, signal.SIGTERM)}
    screen = Screen()
    try:
        while not work.over and not stopped:
            events = work.advance()
            screen.show(events, overview(work, study))
            time.sleep(POLL_S)
    finally:
        work.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    for name in work.failed:
        print("\n".join(failure(work, name)), flush=True)
    if stopped:
        print("stopped; the same line goes on from here", flush=True)
        return STOPPED
    return 1 if work.failed else 0


def _order(units: Sequence[Unit], study: Study) -> list[str]:
    seconds = {unit.name: sum(_estimated(study, command.stage) for command in unit.commands) for unit in units}
    return longest_first(seconds, {unit.name: unit.needs for unit in units})


def _estimated(study: Study, stage: str) -> float:
    return study.estimates[stage].seconds if stage in study.estimates else 0.0


def table_commands(study: Study, place: Place, tables: Sequence[str], seeds: Sequence[int]) -> dict[str, list[str]]:
    """Table -> the command that makes it; {seeds} are several words."""
    template = study.table.replace("{seeds}", " ".join(map(str, seeds)))
    values = {"study": study.name, "model": study.model, **vars(place)}
    return {table: fill(template, values | {"table": table}) for table in tables}


def whole_tables(tables: Sequence[str], rows: Rows, asked: Sequence[Row]) -> list[str]:
    """The tables all of whose rows are asked for; says what another one lacks."""
    whole = []
    for table in tables:
        lacking = [name for name in rows.tables[table] if name not in {row.name for row in asked}]
        if lacking:
            print(f"table {table} is not made: --rows leaves out {', '.join(lacking)}", flush=True)
        else:
            whole.append(table)
    return whole


def make_tables(commands: Mapping[str, Sequence[str]], own: Mapping[str, str]) -> int:
    """Make the tables in this environment; the first status that is not 0."""
    for words in commands.values():
        if status := subprocess.run(executable(words), cwd=ROOT, env=own).returncode:
            return status
    return 0
