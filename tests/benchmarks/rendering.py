"""How fast the synthetic world is written: images per CPU second, with lidar and tables, by image size.

python tests/benchmarks/rendering.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from data_gen.synthetic import WorldSpec, write_world

SIZES = {(224, 126): 12, (448, 252): 6, (1600, 900): 1}  # size -> scenes of 8 key frames
REPEATS = 3


def images_per_cpu_second(size: tuple[int, int], scenes: int) -> float:
    """The best of a few runs in this process."""
    spec = WorldSpec(scenes=scenes, frames_per_scene=8, width_px=size[0], height_px=size[1], seed=0)
    rates = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time()
            write_world(Path(folder) / "world", spec)
            rates.append(scenes * 8 * 6 / (time.process_time() - started))
    return max(rates)


def main() -> None:
    """Print one line per size, then the ratio of the smallest to the largest."""
    rates = {size: images_per_cpu_second(size, scenes) for size, scenes in SIZES.items()}
    for (width, height), rate in rates.items():
        print(f"{width}x{height}: {rate:.1f} images per CPU second")
    print(f"ratio: {rates[224, 126] / rates[1600, 900]:.1f} times as many at 224x126 as at 1600x900")


if __name__ == "__main__":
    main()
