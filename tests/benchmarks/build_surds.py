"""How fast the geometry of the builder is, beside a plain loop over the devkit, and what loading full tables takes.

    python tests/benchmarks/build_surds.py
    python tests/benchmarks/build_surds.py --tables

The world is made up and written into a temporary folder: random boxes, six cameras, a 32-beam lidar with labels. Times
are CPU times of this process, taken in turns, the best of five. `--tables` adds the loading of tables of the size of
v1.0-trainval, which takes minutes and 3 GB of disk. The two ratios come last.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from devkit_loop import Seen, clipped_bounds, devkit_frame, hull_in_image, our_class_filtered_frame, our_frame
from speed_world import VERSION, write_speed_world
from trainval_tables import Size, write_tables

from data_gen.filters import Thresholds
from data_gen.scene_builder import judge_frame
from data_gen.world import World, load_world

REPEATS = 5
JUDGED_KEY_FRAMES = 4000
BOX_TOLERANCE_PX, TOLERANCE = 1e-6, 1e-9


def main() -> None:
    """Print one line per figure; exits with an error when ours and the devkit's results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-frames", type=int, default=100, help="of the made-up world (default: %(default)s)")
    parser.add_argument("--boxes", type=int, default=34, help="per key frame (default: %(default)s)")
    parser.add_argument("--tables", action="store_true", help="also load tables of the size of v1.0-trainval")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)  # in a process of its own, for its peak memory
    options = parser.parse_args()
    if options.load:
        print(json.dumps(load_figures(options.load)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.tables:
            print_loading(Path(folder) / "tables")
        root = Path(folder) / "world"
        write_speed_world(root, options.key_frames, options.boxes)
        compare(root)


def compare(root: Path) -> None:
    """Check that results are the same, then time the devkit's loop and ours."""
    try:
        from nuscenes.nuscenes import NuScenes
    except ImportError as error:
        raise SystemExit(f"the devkit is needed (pip install --no-deps nuscenes-devkit==1.2.0): {error}") from error
    nusc = NuScenes(VERSION, dataroot=str(root), verbose=False)
    world = load_world(root, VERSION)
    print(
        f"{len(world)} key frames of {len(world[0].cameras.channels)} cameras, {len(world[0].annotations.tokens)} boxes"
    )
    print_equality(nusc, world)
    print_workers(world)
    seconds = best_cpu_seconds(
        {
            "devkit": lambda: [devkit_frame(nusc, sample, clipped_bounds) for sample in nusc.sample],
            "same work": lambda: [our_frame(world, frame) for frame in world],
            "class-filtered": lambda: [our_class_filtered_frame(world, frame) for frame in world],
        }
    )
    for name, value in seconds.items():
        print(f"{name}: {1000 * value / len(world):.2f} CPU ms per key frame")
    print(
        f"same work (all points, all classes): {seconds['devkit'] / seconds['same work']:.1f} times the devkit's speed"
    )
    print(f"class-filtered work: {seconds['devkit'] / seconds['class-filtered']:.1f} times the devkit's speed")


def best_cpu_seconds(work: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The best CPU time of each, measured in turns."""
    seconds = dict.fromkeys(work, float("inf"))
    for _ in range(REPEATS):
        for name, run in work.items():
            started = time.process_time()
            run()
            seconds[name] = min(seconds[name], time.process_time() - started)
    return seconds


def print_equality(nusc: Any, world: World) -> None:
    """Compare visible sets, boxes (with `post_process_coords`), depths, distances, headings and points."""
    theirs: Seen = {}
    ours: Seen = {}
    for frame in world:
        data = nusc.get("sample", frame.sample_token)["data"]
        theirs |= devkit_frame(nusc, nusc.get("sample", frame.sample_token), hull_in_image)
        names, rows = our_frame(world, frame)
        cameras = [data[channel] for channel in frame.cameras.channels]
        ours |= {(cameras[camera], token): row for (camera, token), row in zip(names, rows.tolist(), strict=True)}
    if ours.keys() != theirs.keys():
        raise SystemExit(f"visible sets differ in {len(ours.keys() ^ theirs.keys())} boxes")
    difference = np.abs(np.array([ours[key] for key in theirs]) - np.array(list(theirs.values())))
    box_px, depth_m, distance_m = difference[:, :4].max(), difference[:, 4].max(), difference[:, 5].max()
    yaw_rad = np.minimum(difference[:, 6], 2 * np.pi - difference[:, 6]).max()
    points = difference[:, 7]
    print(
        f"{len(theirs)} visible boxes, the same sets; largest differences: box {box_px:.1e} px (convex hull cut at the "
        f"image), depth {depth_m:.1e} m, distance {distance_m:.1e} m, heading {yaw_rad:.1e} rad"
    )
    print(f"lidar points: {(points == 0).sum()} counts the same, largest difference {points.max():.0f}")
    if box_px > BOX_TOLERANCE_PX or max(depth_m, distance_m, yaw_rad) > TOLERANCE or points.max() > 1:
        raise SystemExit("ours and the devkit's results differ")


def print_workers(world: World) -> None:
    """Key frames per second through all geometric filters and the lidar count, in one and two forked processes."""
    for workers in (1, 2):
        before, started = child_cpu_seconds(), time.perf_counter()
        places = [place % len(world) for place in range(JUDGED_KEY_FRAMES)]
        with multiprocessing.get_context("fork").Pool(workers, _take_world, (world,)) as pool:
            pool.map(_judge, places, chunksize=64)
            pool.close()
            pool.join()
        cpu_s, wall_s = child_cpu_seconds() - before, time.perf_counter() - started
        print(
            f"all geometric filters, {workers} processes: {JUDGED_KEY_FRAMES / cpu_s:.0f} key frames per CPU second, "
            f"{JUDGED_KEY_FRAMES / wall_s:.0f} per second"
        )


_WORLD: list[World] = []  # of a worker process; handed over by the fork


def _take_world(world: World) -> None:
    _WORLD[:] = [world]


def _judge(place: int) -> int:
    return len(judge_frame(_WORLD[0], _WORLD[0][place], Thresholds()))


def child_cpu_seconds() -> float:
    """CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def print_loading(root: Path) -> None:
    """Write full-size tables, load them in a process of its own and print what that took."""
    size = Size()
    size_gb = write_tables(root, size) / 1e9
    command = [sys.executable, str(Path(__file__).resolve()), "--load", str(root)]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"{size.key_frames} key frames, {size.files} files, {size.boxes} boxes, {size_gb:.1f} GB of tables: "
        f"{figures['cpu_s']:.1f} CPU s, peak {figures['peak_gb']:.2f} GB, then {figures['resident_gb']:.2f} GB resident"
    )
    print(f"a forked process that went through all key frames has {figures['private_mb']:.0f} MB of its own")


def load_figures(root: Path) -> dict[str, float]:
    """CPU seconds and memory of loading a world, and of a forked process that looks at all of it."""
    started = time.process_time()
    world = load_world(root, VERSION)
    cpu_s = time.process_time() - started
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    with multiprocessing.get_context("fork").Pool(1, _take_world, (world,)) as pool:
        private_mb = pool.apply(_private_mb_after_all)
    return {"cpu_s": cpu_s, "peak_gb": peak_gb, "resident_gb": memory_kb("Rss") * 1024 / 1e9, "private_mb": private_mb}


def _private_mb_after_all() -> float:
    for frame in _WORLD[0]:
        assert frame.cameras.channels
    return (memory_kb("Private_Dirty") + memory_kb("Private_Clean")) * 1024 / 1e6


def memory_kb(name: str) -> int:
    """A line of this process's memory summary (Linux)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
