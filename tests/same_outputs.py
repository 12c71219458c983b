"""Are the outputs of two evaluations equal? Part of launch/test_vllm.sh.

python tests/same_outputs.py RUN RUN
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def outputs(run: Path) -> dict[str, str]:
    """The output of every question of an evaluation."""
    rows = map(json.loads, (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines())
    return {row["id"]: row["output"] for row in rows}


def main() -> None:
    """Print how many are equal; AssertionError when one is not, or when all are the same words."""
    one, two = (outputs(Path(word)) for word in sys.argv[1:])
    assert one.keys() == two.keys()
    equal, distinct = sum(one[name] == two[name] for name in one), len(set(one.values()))
    assert equal == len(one) and distinct > 1, f"{equal} of {len(one)} outputs equal, {distinct} of them distinct"
    print(f"ok: {equal} of {len(one)} greedy outputs equal, {distinct} of them distinct")


if __name__ == "__main__":
    main()
