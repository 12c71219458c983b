"""Compare finished runs of data_gen/build_cot.py: figures on the terminal, and one self-contained page with pictures.

    python data_gen/cot_report.py data/cot-oracle data/cot-seen data/cot-blind --out report.html

Every run is held against the first, on the questions that both were asked: a writer who sees the answers against a
blind one, a model against the geometry of the scenes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_gen.command_line import HelpFormatter, UsageError
from data_gen.records import RecordError
from data_gen.teaching.costs import add_price_options, prices_of
from data_gen.teaching.report import told, write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures and write the page; 0, or 2 with the remedy when a folder holds no finished run."""
    options = make_parser().parse_args(argv)
    try:
        runs = write_report(options.runs, options.out, prices_of(options), images=options.images, seed=options.seed)
    except (UsageError, RecordError, OSError) as error:
        print(f"data_gen/cot_report.py: error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*(told(run.label, run.summary) for run in runs), str(options.out)]))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders that data_gen/build_cot.py wrote")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="the page")
    parser.add_argument(
        "--images", type=Path, metavar="DIR", help="folder of the images (default: what a run's manifest.json says)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which traces are shown")
    add_price_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
