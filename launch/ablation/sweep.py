"""A sweep from its options to its end: plan, what is done, dry run or work, tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from ablation.dry_run import dry_run
from ablation.options import parse, place_of, rows_of, study_of
from ablation.plan import Planner, needed, plan
from ablation.state import DONE, Marks, state_of
from ablation.study import StudyError


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
    all_rows, rows, _tables = rows_of(options)
    place = place_of(options, study)
    if options.shorten > 1:
        study = replace(study, name=f"{study.name}-short{options.shorten}")
    units = plan(Planner(study, all_rows, place, options.shorten), rows, options.seeds)
    marks = Marks(place.run)
    states = {unit.name: state_of(unit, marks) for unit in units}
    left = needed(units, {name for name, state in states.items() if state == DONE})
    if options.dry_run:
        print(dry_run(units, states, left, study, options.shorten), end="")
        return 0
    raise StudyError("only --dry-run so far")
