"""How fast evaluation is, as ratios of one run.

python tests/benchmarks/eval_speed.py [PYTHON_WITH_EVALSCOPE]
"""

from __future__ import annotations

import sys

from eval_hf import hf_ratio
from eval_scoring import scoring_ratio


def main() -> None:
    """Print what was measured, the ratios last."""
    print(scoring_ratio(*sys.argv[1:2]))
    hf = hf_ratio()
    print(f"hf with shared images, questions per second over one generate call per question: x{hf:.1f}")


if __name__ == "__main__":
    main()
