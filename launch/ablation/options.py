"""The options of a sweep over the rows of the tables."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from ablation.environment import available_cores
from ablation.plan import Place
from ablation.study import OWN_MODELS, ROOT, Row, Rows, Study, StudyError, read_rows, read_study

MINI = "mini"
STUDIES = ROOT / "configs" / "ablation"
DESCRIPTION = """Rows of Tables 3 and 4 for some seeds, each a chain of commands that goes on where it stopped; what
rows share (data, the SFT of a seed) is made once. A finished row is kept in results/STUDY/ROW-SEED.json and counts as
done on any machine, as long as the commands and configs that it comes from are the same. At the end: a page per table.
"""


def parser() -> argparse.ArgumentParser:
    """The parser of `launch/ablate.py --table`."""
    made = argparse.ArgumentParser(
        usage="python launch/ablate.py --table 3|4|both [options]", description=DESCRIPTION, allow_abbrev=False
    )
    add = made.add_argument
    add("--table", choices=("3", "4", "both"), required=True, help="whose rows; required")
    add(
        "--model", help=f"{MINI} (default), or a hub id or checkpoint folder, which take configs/ablation/surds_3b.yaml"
    )
    add("--study", type=Path, help="a study file of your own (default: by --model); --model replaces its model")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="seeds of every row (default: 0 1 2)")
    add("--rows", nargs="+", metavar="ROW", help="only these rows (default: all of the table)")
    add("--out", type=Path, help="folder of the sweep (default: runs/ablation/STUDY)")
    add("--results", type=Path, help="folder of the finished rows (default: results/STUDY)")
    add("--parallel", type=int, metavar="N", help="units at a time (default: 1 with a GPU, else one for each core)")
    add("--shorten", type=int, default=1, metavar="N",
        help="a trial of the whole: steps and questions divided by N; apart from the real results")  # fmt: skip
    add("--overwrite", action="store_true", help="make anew what was made by other commands or configs than now")
    add("--machine", choices=("local", "slurm"), default="local",
        help="slurm: write a batch script per unit and submit.sh, and say how to submit (default: local)")  # fmt: skip
    add("--submit", action="store_true", help="with --machine slurm: submit them")
    add("--dry-run", action="store_true", help="print the commands and stop")
    return made


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; exits with 2 on bad ones."""
    made = parser()
    options = made.parse_args(arguments)
    for name in ("parallel", "shorten"):
        value = getattr(options, name)
        if value is not None and value < 1:
            made.error(f"--{name} must be at least 1, got {value}")
    if options.submit and options.machine != "slurm":
        made.error("--submit goes with --machine slurm")
    options.seeds = list(dict.fromkeys(options.seeds))
    return options


def study_of(options: argparse.Namespace) -> Study:
    """The study that is asked for. Raises StudyError."""
    model = options.model
    if model is not None and model not in OWN_MODELS and Path(model).is_dir():
        model = from_root(Path(model))
    if options.study is not None:
        return read_study(options.study, model)
    file = STUDIES / ("mini.yaml" if model in (None, MINI) else "surds_3b.yaml")
    return read_study(file, model)


def rows_of(options: argparse.Namespace) -> tuple[Rows, list[Row], tuple[str, ...]]:
    """All rows, those that are asked for, and the tables. Raises StudyError for a row that no such table shows."""
    rows = read_rows()
    tables = tuple(rows.tables) if options.table == "both" else (options.table,)
    shown = rows.of_tables(tables)
    if not options.rows:
        return rows, shown, tables
    if unknown := [name for name in options.rows if name not in {row.name for row in shown}]:
        raise StudyError(f"--rows {unknown[0]}: no such row; there are {', '.join(row.name for row in shown)}")
    return rows, [row for row in shown if row.name in options.rows], tables


def place_of(options: argparse.Namespace, study: Study) -> Place:
    """Where the sweep works. A shortened one keeps its results in its own run folder, never with the real ones."""
    name = study.name if options.shorten == 1 else f"{study.name}-short{options.shorten}"
    run = from_root(options.out) if options.out else f"runs/ablation/{name}"
    own = f"results/{name}" if options.shorten == 1 else f"{run}/results"
    results = from_root(options.results) if options.results else own
    real = ROOT / "results" / study.name
    if options.shorten > 1 and (ROOT / results).resolve() == real:
        raise StudyError(f"--shorten is a trial; its results do not go to {results}")
    return Place(run, results, str(available_cores()))


def from_root(path: Path) -> str:
    """A path as seen from the checkout, where the commands run; absolute when it lies outside."""
    whole = path.resolve()
    return str(whole.relative_to(ROOT)) if whole.is_relative_to(ROOT) else str(whole)


def parallel_of(options: argparse.Namespace) -> int:
    """Units at a time."""
    if options.parallel:
        return int(options.parallel)
    return 1 if shutil.which("nvidia-smi") else available_cores()
