r"""Keep what the tables need of a finished row of one seed: a small file that is committed and counts as done.

    python eval/ablation_row.py --study mini --row sft-grpo --seed 0 --commands DIGEST --train runs/ablate/sft-grpo-0 \
        --part matched:runs/ablate/greedy:runs/ablate/sampled --part official:runs/ablate/greedy-official:... \
        --out results/mini/sft-grpo-0.json

Reads finished runs of eval/surds.py, greedy and sampled, on the same questions, and the training log. The first --part
is the main one, with all six tasks. Beside the file, questions.json is written once: what all rows are scored on.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import Any

from data_gen.command_line import UsageError, available_cores
from data_gen.files import read_json, write_whole
from data_gen.records import RecordError
from eval.ablation.curves import curves_of
from eval.ablation.records import MODES, Cost, RowResult
from eval.ablation.store import keep_questions, row_file, to_json
from eval.ablation.study import examples_of, mode_scores, questions_of_study, read_part

STATE_FILE = "trainer_state.json"
TIME_SPENT = "time_spent_s"  # training.time_spent; of the whole run, however often it was taken up again
UNTRAINED = "none"
CPU_FACTS = Path("/proc/cpuinfo")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file of the row; 0, or 2 with the remedy when runs are missing or do not belong together."""
    options = _parser().parse_args(argv)
    try:
        keep_row(options)
    except (UsageError, RecordError) as error:
        print(f"eval/ablation_row.py: {error}", file=sys.stderr)
        return 2
    print(f"{options.out}  ({options.out.stat().st_size / 1000:.0f} kB)")
    return 0


def keep_row(options: argparse.Namespace) -> RowResult:
    """Read the runs and the training log and write the result. Raises UsageError, RecordError."""
    if options.out != row_file(options.out.parent, options.row, options.seed):
        raise UsageError(f"--out must end in {options.row}-{options.seed}.json, after row and seed, got {options.out}")
    parts = [read_part(*part) for part in options.part]
    state = _state(options.train)
    cost = cost_of(state)
    questions = keep_questions(questions_of_study(options.study, parts), options.out.parent)
    result = RowResult(
        study=options.study,
        row=options.row,
        seed=options.seed,
        commands=options.commands,
        questions=questions.fingerprint,
        scores={mode: mode_scores(mode, parts) for mode in MODES},
        curves=curves_of(state["log_history"]),
        examples=examples_of(parts[0], [row["id"] for row in questions.shown]),
        cost=cost,
    )
    write_whole(options.out, to_json(result))
    return result


def cost_of(state: dict[str, Any]) -> Cost:
    """Steps and seconds of a training, and the machine that this runs on, today.

    The seconds are those that the last line of the training log tells. Raises UsageError when it tells none.
    """
    seconds = [line[TIME_SPENT] for line in state["log_history"] if TIME_SPENT in line]
    if state["global_step"] and not seconds:
        raise UsageError(f"the training log has no {TIME_SPENT}; train anew with --overwrite")
    return Cost(state["global_step"], max(seconds, default=0.0), machine(), datetime.now(UTC).date().isoformat())


def machine() -> str:
    """The GPU's name and how many there are, else the model of the processor and the cores that may be used."""
    if which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")
        if gpus := [name.strip() for name in names if name.strip()]:
            return f"{len(gpus)} x {gpus[0]}"
    lines = CPU_FACTS.read_text().splitlines() if CPU_FACTS.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {available_cores()} cores"


def part_words(text: str) -> tuple[str, Path, Path]:
    """`NAME:GREEDY_RUN:SAMPLED_RUN`, for the `type` of an option."""
    words = text.split(":")
    if len(words) != 3 or not all(words):
        raise argparse.ArgumentTypeError(f"NAME:GREEDY_RUN:SAMPLED_RUN is needed, got {text!r}")
    return words[0], Path(words[1]), Path(words[2])


def _state(train: str) -> dict[str, Any]:
    """What trainer_state.json of a training folder holds; nothing for a row without training."""
    if train == UNTRAINED:
        return {"global_step": 0, "log_history": []}
    path = Path(train) / STATE_FILE
    if not path.is_file():
        raise UsageError(f"--train {train} has no {STATE_FILE}: no finished training; go on with --resume")
    return read_json(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", required=True, help="Name of the study, such as mini.")
    parser.add_argument("--row", required=True, help="Name of the row in configs/ablation/rows.yaml.")
    parser.add_argument("--seed", required=True, type=int, help="Seed of the row.")
    parser.add_argument("--commands", required=True, help="Digest of the commands that the row is the result of.")
    parser.add_argument(
        "--train", required=True, metavar=f"DIR|{UNTRAINED}", help="Folder of the row's own training, or none."
    )
    parser.add_argument(
        "--part", required=True, action="append", type=part_words, metavar="NAME:GREEDY_RUN:SAMPLED_RUN",
        help="Evaluation runs on one question file; the first one is the main part.",
    )  # fmt: skip
    parser.add_argument("--out", required=True, type=Path, help="results/STUDY/ROW-SEED.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
