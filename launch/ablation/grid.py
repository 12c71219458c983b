r"""A sweep over sets of rewards: one GRPO run and one evaluation for each, one after the other, then one report.

    python launch/ablate.py --rewards-grid format,acc format,loc,acc,logic \
        --model runs/sft --data train/questions.jsonl --eval-data val/questions.jsonl

Options it does not know go to training/grpo.py, for example `--config configs/grpo/tiny.yaml --max_steps 20`. Each row
is first called with --check, so that a reward that does not exist ends the sweep before its first row. An interrupted
sweep goes on where it stopped: every command is called with --resume and keeps what it had finished with the same
options; a finished row with other options is refused, unless --overwrite does all rows anew.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
COMMANDS_FILE = "commands.txt"


def script(name: str) -> str:
    """A script of the checkout, relative to where the sweep is started from."""
    return os.path.relpath(ROOT / name)


def plan(options: argparse.Namespace, grpo_options: Sequence[str]) -> list[list[str]]:
    """The command lines of the sweep in order: train and evaluate each row, then the table."""
    commands = []
    evaluations = []
    for rewards in options.rewards_grid:
        row = options.out / rewards.replace(",", "+")
        commands += [_training(options, rewards, row, grpo_options), _evaluation(options, rewards, row)]
        evaluations.append(str(row / "eval"))
    table = [sys.executable, script("eval/report.py"), *evaluations, "--out", str(options.out / "report.html")]
    return [*commands, table]


def _training(options: argparse.Namespace, rewards: str, row: Path, grpo_options: Sequence[str]) -> list[str]:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--quiet"]
    if options.accelerate_config:
        launch += ["--config_file", str(options.accelerate_config)]
    return [
        *launch, script("training/grpo.py"), *grpo_options, "--rewards", rewards, "--model", options.model,
        "--data", str(options.data), "--out", str(row / "grpo"), "--seed", str(options.seed), _how(options),
    ]  # fmt: skip


def _evaluation(options: argparse.Namespace, rewards: str, row: Path) -> list[str]:
    words = [
        sys.executable, script("eval/surds.py"), "--ckpt", str(row / "grpo"), "--data", str(options.eval_data),
        "--label", rewards, "--out", str(row / "eval"), "--max-new-tokens", str(options.max_new_tokens), _how(options),
    ]  # fmt: skip
    return [*words, "--limit", str(options.eval_limit)] if options.eval_limit else words


def checks(commands: Sequence[Sequence[str]]) -> list[list[str]]:
    """The training commands of a sweep as checks of their options and data, which train nothing."""
    return [[*words, "--check"] for words in commands if script("training/grpo.py") in words]


def _how(options: argparse.Namespace) -> str:
    return "--overwrite" if options.overwrite else "--resume"


def run(commands: Sequence[Sequence[str]]) -> None:
    """Run the commands one after the other; stop at the first that fails, with its exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    for number, words in enumerate(commands, 1):
        print(f"[{number}/{len(commands)}] {shlex.join(words)}", flush=True)
        # In a session of its own, so that a stopped sweep takes all processes of its command with it.
        process = subprocess.Popen(words, start_new_session=True)
        try:
            status = process.wait()
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise SystemExit(130) from None
        if status:
            raise SystemExit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def parse(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """The runner's options, and the words it passes on to training/grpo.py."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    grid = ["format,acc", "format,loc,acc,logic"]
    add(
        "--rewards-grid",
        nargs="+",
        metavar="SET",
        default=grid,
        help=f"sets of rewards, a word each (default: {' '.join(grid)})",
    )
    add("--model", default="runs/sft", help="checkpoint that every row starts from (default: %(default)s)")
    add("--data", type=Path, help="questions to train on; required")
    add("--eval-data", type=Path, help="questions to score on; required")
    add("--eval-limit", type=int, help="score only so many units of every task (a mirrored pair is one)")
    add("--max-new-tokens", type=int, default=512, help="longest answer in evaluation (default: %(default)s)")
    add("--out", type=Path, default=Path("runs/rewards-grid"), help="folder of the sweep (default: %(default)s)")
    add("--seed", type=int, default=42, help="seed of every row (default: %(default)s)")
    add(
        "--accelerate-config",
        type=Path,
        default=None if shutil.which("nvidia-smi") else Path(script("launch/accelerate/cpu.yaml")),
        help="accelerate's file, such as launch/accelerate/zero2_8gpu.yaml (default here: %(default)s)",
    )
    add("--overwrite", action="store_true", help="do all rows anew")
    add("--dry-run", action="store_true", help="print the commands and stop")
    options, grpo_options = parser.parse_known_args(arguments)
    tables = "for the paper's tables: python launch/ablate.py --table 3|4|both"
    for name in ("data", "eval_data"):
        path, option = getattr(options, name), f"--{name.replace('_', '-')}"
        if path is None or not (path.is_file() or options.dry_run):
            problem = "is missing" if path is None else f"names no file: {path}"
            builder = "python data_gen/build_surds.py --nuscenes DIR"
            parser.error(f"{option} {problem}; it takes a question file; build one with: {builder}; {tables}")
    if options.eval_limit is not None and options.eval_limit < 1:
        parser.error(f"--eval-limit must be at least 1, got {options.eval_limit}")
    filled = options.out.is_dir() and any(options.out.iterdir())
    if filled and not options.dry_run and not (options.out / COMMANDS_FILE).exists():
        parser.error(f"{options.out} holds something else than a sweep (no {COMMANDS_FILE}); choose another --out")
    return options, grpo_options


def main(arguments: Sequence[str] | None = None) -> None:
    """Print or run the sweep."""
    options, grpo_options = parse(arguments)
    commands = plan(options, grpo_options)
    text = "".join(f"{shlex.join(words)}\n" for words in commands)
    if options.dry_run:
        print(text, end="")
        return
    run(checks(commands))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / COMMANDS_FILE).write_text(text, encoding="utf-8")
    run(commands)
