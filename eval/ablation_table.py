r"""The table of an ablation from the small files that its finished rows left: on the terminal, as files and as a page.

    python eval/ablation_table.py --table 4 --results results/mini --rows configs/ablation/rows.yaml \
        --out runs/ablate/table-4.html --images data/mini/world

Beside the page: .md and .csv with the same name, and a PNG of every chart. The same results always give the same .md.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from data_gen.command_line import UsageError
from data_gen.files import write_whole
from data_gen.records import RecordError
from eval.ablation.drawing import to_png
from eval.ablation.figures import Table, make_table
from eval.ablation.page import charts_of, render
from eval.ablation.records import RowResult, TestQuestions
from eval.ablation.rows import read_row_specs, table_of
from eval.ablation.store import read_questions_of, read_rows
from eval.ablation.table_files import comma_separated, markdown
from eval.ablation.text import terminal

ROWS_FILE = Path(__file__).resolve().parents[1] / "configs/ablation/rows.yaml"
SEEDS = (0, 1, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and write its files; 0, or 2 with the remedy when results are missing or do not fit."""
    options = _parser().parse_args(argv)
    try:
        if options.out.suffix.lower() != ".html":
            raise UsageError(f"--out names the page, a file that ends in .html, got {options.out}")
        table, questions, results = read_table(options.table, options.results, options.rows, options.seeds)
        written = write_files(table, questions, results, options.out, options.images)
    except (UsageError, RecordError) as error:
        print(f"eval/ablation_table.py: {error}", file=sys.stderr)
        return 2
    print(terminal(table, shutil.get_terminal_size((200, 24)).columns))
    print(f"\n{options.out}  (also {', '.join(path.name for path in written[1:])})")
    return 0


def read_table(
    number: int, results: Path, rows: Path = ROWS_FILE, seeds: Sequence[int] = SEEDS
) -> tuple[Table, TestQuestions, dict[str, dict[int, RowResult]]]:
    """The figures of a table, and the results they are from, of these seeds only. Raises UsageError."""
    specs = read_row_specs(rows)
    table_of(specs, number)
    questions = read_questions_of(results)
    kept = read_rows(results, questions)
    unknown = sorted(kept.keys() - specs.rows.keys())
    if unknown:
        raise UsageError(f"{results} holds results of rows that {rows} does not have: {', '.join(unknown)}")
    kept = {row: {seed: result for seed, result in found.items() if seed in seeds} for row, found in kept.items()}
    kept = {row: found for row, found in kept.items() if found}
    return make_table(number, specs, questions, kept, seeds), questions, kept


def write_files(
    table: Table, questions: TestQuestions, results: dict[str, dict[int, RowResult]], out: Path, images: Path | None
) -> list[Path]:
    """Write the page and everything beside it; the files written, the page first."""
    charts = charts_of(table, results)
    contents: dict[Path, str | bytes] = {
        out: render(table, charts, questions, results, images),
        out.with_suffix(".md"): markdown(table),
        out.with_suffix(".csv"): comma_separated(table),
        **{out.with_name(f"{out.stem}-{chart.name}.png"): to_png(chart.drawing) for chart in charts},
    }
    for path, content in contents.items():
        write_whole(path, content)
    return list(contents)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True, type=int, help="Number of the table, 3 or 4.")
    parser.add_argument("--results", required=True, type=Path, help="Folder of the results, results/STUDY.")
    parser.add_argument("--rows", type=Path, default=ROWS_FILE, help="By default configs/ablation/rows.yaml.")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="Of these seeds (default: 0 1 2).")
    parser.add_argument("--images", type=Path, help="Folder of the test images; where none is, no pictures.")
    parser.add_argument("--out", required=True, type=Path, help="The page, a file that ends in .html.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
