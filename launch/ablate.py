"""Reward ablation: one GRPO run and one evaluation per set of rewards, then one table.

    python launch/ablate.py --rewards-grid format,acc format,loc,acc,logic \
        --model runs/sft --data train/questions.jsonl --eval-data val/questions.jsonl

A runner of the commands a person would type; it imports nothing of the project. Finished runs are kept, so that an
interrupted sweep goes on where it stopped. Options it does not know go to training/grpo.py, for example
`--config configs/grpo/tiny.yaml --max_steps 20`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> str:
    """A script of the checkout, relative to where the sweep is started from."""
    return os.path.relpath(ROOT / name)


@dataclass(frozen=True)
class Command:
    """One command line, and the file that keeps it once it has run to its end (None: it always runs)."""

    words: tuple[str, ...]
    mark: Path | None = None

    def __str__(self) -> str:
        return shlex.join(self.words)

    @property
    def is_finished(self) -> bool:
        """Whether the very same command ran to its end before."""
        return self.mark is not None and self.mark.exists() and self.mark.read_text(encoding="utf-8") == str(self)


def plan(options: argparse.Namespace, grpo_options: Sequence[str]) -> list[Command]:
    """The commands of the sweep in order: train and evaluate each row, then the table."""
    commands = []
    evaluations = []
    for rewards in options.rewards_grid:
        row = options.out / rewards.replace(",", "+")
        commands += [_training(options, rewards, row, grpo_options), _evaluation(options, rewards, row)]
        evaluations.append(str(row / "eval"))
    table = (sys.executable, script("eval/report.py"), *evaluations, "--out", str(options.out / "report.html"))
    return [*commands, Command(table)]


def _training(options: argparse.Namespace, rewards: str, row: Path, grpo_options: Sequence[str]) -> Command:
    launch = [sys.executable, "-m", "accelerate.commands.launch"]
    if options.accelerate_config:
        launch += ["--config_file", str(options.accelerate_config)]
    words = [
        *launch, script("training/grpo.py"), *grpo_options, "--rewards", rewards, "--model", options.model,
        "--data", str(options.data), "--out", str(row), "--seed", str(options.seed), "--resume",
    ]  # fmt: skip
    return Command(tuple(words), row / ".trained")


def _evaluation(options: argparse.Namespace, rewards: str, row: Path) -> Command:
    words = [
        sys.executable, script("eval/surds.py"), "--ckpt", str(row), "--data", str(options.eval_data),
        "--label", rewards, "--out", str(row / "eval"), "--max-new-tokens", str(options.max_new_tokens), "--resume",
    ]  # fmt: skip
    if options.eval_limit:
        words += ["--limit", str(options.eval_limit)]
    return Command(tuple(words), row / ".evaluated")


def run(commands: Sequence[Command]) -> None:
    """Run the commands that are not finished yet; stop at the first that fails, with its exit status."""
    for number, command in enumerate(commands, 1):
        state = "done before" if command.is_finished else "runs"
        print(f"[{number}/{len(commands)}] {state}: {command}", flush=True)
        if not command.is_finished:
            status = subprocess.run(command.words).returncode
            if status:
                raise SystemExit(status)
            if command.mark:
                command.mark.write_text(str(command), encoding="utf-8")


def parse(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """The runner's options, and the words it passes on to training/grpo.py."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--rewards-grid", nargs="+", metavar="SET", default=["format,acc", "format,loc,acc,logic"],
        help="one set of rewards per word (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--model", default="runs/sft", help="checkpoint that every row starts from")
    parser.add_argument("--data", type=Path, help="questions to train on; required")
    parser.add_argument("--eval-data", type=Path, help="questions to score on; required")
    parser.add_argument(
        "--eval-limit", type=int, help="score only so many units of every task (a mirrored pair is one)"
    )
    parser.add_argument("--max-new-tokens", type=int, default=512, help="longest answer in evaluation")
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"), help="folder of the sweep")
    parser.add_argument("--seed", type=int, default=42, help="seed of every row")
    parser.add_argument("--accelerate-config", type=Path, help="accelerate's file, e.g. launch/accelerate/cpu.yaml")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    options, grpo_options = parser.parse_known_args(arguments)
    for name in ("data", "eval_data"):
        if getattr(options, name) is None:
            parser.error(
                f"--{name.replace('_', '-')} is missing: a question file; build one with "
                "python data_gen/build_surds.py --nuscenes DIR"
            )
    return options, grpo_options


def main() -> None:
    """Print or run the sweep."""
    options, grpo_options = parse()
    commands = plan(options, grpo_options)
    if options.dry_run:
        print("\n".join(map(str, commands)))
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "commands.txt").write_text("\n".join(map(str, commands)) + "\n", encoding="utf-8")
        run(commands)


if __name__ == "__main__":
    main()
