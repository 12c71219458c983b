r"""Ablations: the rows of the paper's Tables 3 and 4, or a grid of rewards of your own.

    python launch/ablate.py --table 3|4|both [--model mini|HUB_ID] [--seeds 0 1 2] [--machine local|slurm]
    python launch/ablate.py --rewards-grid format,acc format,loc,acc,logic --model CKPT --data FILE --eval-data FILE

A runner of the commands a person would type; it imports nothing of the other packages. An interrupted sweep goes on
where it stopped when the same line is given again. `--table 4 --dry-run` prints every command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sweep that the words ask for; `--help` alone tells of both."""
    from ablation import grid, options, sweep

    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--help"], ["-h"]):
        print(f"{__doc__}\n{options.parser().format_help()}\n{'-' * 80}\n")
    if any(word.partition("=")[0] == "--table" for word in words):
        raise SystemExit(sweep.main(words))
    grid.main(words)


if __name__ == "__main__":
    main()
