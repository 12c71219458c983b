"""How fast evaluation is, as ratios of one run.

python tests/benchmarks/eval_speed.py
"""

from __future__ import annotations

from eval_hf import hf_ratio


def main() -> None:
    """Print what was measured, the ratios last."""
    hf = hf_ratio()
    print(f"hf with shared images, questions per second over one generate call per question: x{hf:.1f}")


if __name__ == "__main__":
    main()
