"""Scoring and reporting 9,250 stored answers, against evalscope's run of the same benchmark with its mock model.

python tests/benchmarks/eval_scoring.py --evalscope-python ENVIRONMENT/bin/python

evalscope needs an environment of its own: python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install evalscope==1.14.1.
Its mock model answers at once, with made-up answers of 600 characters, from metadata with 925 units a task; timed is
its `run_task`: questions, answers, grading, report. Ours scores the answers that it stored: questions, answers, both
gradings, intervals, floors, report. Both run in turn, imports not counted; the scores must be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL = "python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install evalscope==1.14.1"
UNITS = 925
ROUNDS = 2
PUBLIC_NAMES = {"pixel": "xy2d"}

# Runs in evalscope's environment: folder of the data, folder to write to; prints the seconds.
EVALSCOPE_RUN = """
import random, sys, time
from evalscope import TaskConfig, run_task
from evalscope.api.model import ModelOutput
from evalscope.models.mockllm import MockLLM

rng = random.Random(0)
answers = ["North", "Southeast", "West", "Yes", "No", "The white car", "The red car", "Almost the same", "[800, 450]"]
think = "The car stands to the left of the lane and is partly hidden by another. " * 8

def made_up(*_, **__):
    text = f"<think>{think}</think><answer>{rng.choice(answers)}</answer>"
    return ModelOutput.from_content(model="mock", content=text)

MockLLM.generate = made_up
config = TaskConfig(model="mock", eval_type="mock_llm", datasets=["surds"],
                    dataset_args={"surds": {"local_path": sys.argv[1]}}, work_dir=sys.argv[2], no_timestamp=True)
wall, cpu = time.perf_counter(), time.process_time()
run_task(config)
print("SECONDS", time.perf_counter() - wall, time.process_time() - cpu)
"""


@dataclass(frozen=True)
class Seconds:
    """Wall-clock and processor time."""

    wall: float
    cpu: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalscope-python", default=sys.executable, help="an interpreter that can import evalscope")
    told = scoring_ratio(parser.parse_args(argv).evalscope_python)
    print(told)
    return 0


def scoring_ratio(evalscope_python: str = sys.executable) -> str:
    """Both times and their ratio as a line; without evalscope our time alone, and how to get the other."""
    if subprocess.run([evalscope_python, "-c", "import evalscope.run"], capture_output=True).returncode:
        return f"scoring: {evalscope_python} cannot import evalscope, which needs an environment of its own: {INSTALL}"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        data = build(work)
        theirs, ours = [], []
        for turn in range(ROUNDS):
            stored = work / f"evalscope{turn}"
            theirs.append(run_evalscope(evalscope_python, work / "public", stored))
            ours.append(time_ours(stored, data, work / f"run{turn}"))
            check_equal(stored, work / f"run{turn}")
    wall = min(item.wall for item in theirs) / min(item.wall for item in ours)
    cpu = min(item.cpu for item in theirs) / min(item.cpu for item in ours)
    return (
        f"scoring and reporting {10 * UNITS} stored answers: evalscope {best(theirs)}, ours {best(ours)}; "
        f"x{wall:.1f} of wall-clock time, x{cpu:.1f} of processor time"
    )


def build(work: Path) -> Path:
    """Metadata of images with one and with two objects by turns, and its official questions; returns their folder."""
    from data_gen.build_surds import main as build_surds
    from data_gen.records import write_rows

    rng = random.Random(0)
    write_rows(work / "public" / "validation" / "metadata.jsonl", (metadata_row(i, rng) for i in range(2 * UNITS)))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        build_surds(["--from-metadata", str(work / "public" / "validation"), "--depth-ranges", "official",
                     "--out", str(work / "data")])  # fmt: skip
    return work / "data"


def metadata_row(index: int, rng: random.Random) -> dict[str, Any]:
    """An image of made-up objects, as the public metadata has it."""
    items = [metadata_object(colour, rng) for colour in ("white", "red")[: 1 + index % 2]]
    return {"file_name": f"{index}.webp"} | {name: [item[name] for item in items] for name in items[0]}


def metadata_object(colour: str, rng: random.Random) -> dict[str, Any]:
    """A car somewhere in front of the camera."""
    x1, y1, width, height = rng.randrange(1300), rng.randrange(300, 600), rng.randrange(60, 300), rng.randrange(60, 300)
    depth_m = rng.uniform(4, 50)
    return {
        "descs": f"{colour} car",
        "bboxes2D": [x1, y1, x1 + width, y1 + height],
        "xy2Ds": [x1 + width // 2, y1 + height // 2],
        "xyz3Ds": [rng.uniform(-8, 8), 1.0, depth_m],
        "depths": depth_m,
        "distances": depth_m + rng.uniform(0, 2),
        "yaw_descs": rng.choice(["North", "Northeast", "East", "Southeast", "South", "Southwest", "West", "Northwest"]),
    }


def run_evalscope(python: str, public: Path, out: Path) -> Seconds:
    """The time of a run with the mock model."""
    done = subprocess.run(
        [python, "-c", EVALSCOPE_RUN, str(public), str(out)], capture_output=True, text=True, timeout=300
    )
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("SECONDS")]
    if not found:
        raise RuntimeError(f"evalscope failed:\n{done.stderr[-2000:]}")
    return Seconds(*map(float, found[0]))


def time_ours(stored: Path, data: Path, out: Path) -> Seconds:
    """The time of our evaluation of stored outputs."""
    import eval.report
    import eval.text_table  # noqa: F401
    from eval.surds import main as evaluate

    wall, cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = evaluate(["--replay", str(stored), "--data", str(data), "--scoring", "official", "--out", str(out)])
    if code:
        raise RuntimeError(f"the evaluation failed: exit code {code}")
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def check_equal(stored: Path, run: Path) -> None:
    """Raise RuntimeError where evalscope's report and our summary give a task another score."""
    report = json.loads((stored / "reports" / "mock" / "surds.json").read_text())
    theirs = {
        subset["name"]: subset["score"]
        for metric in report["metrics"]
        for category in metric["categories"]
        for subset in category["subsets"]
    }
    tasks = json.loads((run / "summary.json").read_text())["tasks"]
    ours = {PUBLIC_NAMES.get(task, task): figures["score"] for task, figures in tasks.items()}
    apart = {name: (value, theirs[name]) for name, value in ours.items() if abs(value - theirs[name]) > 1e-4}
    if apart:
        raise RuntimeError(f"other scores than evalscope's: {apart}")


def best(times: Sequence[Seconds]) -> str:
    """The best of some times in words."""
    return f"{min(item.wall for item in times):.2f} s ({min(item.cpu for item in times):.2f} s processor)"


if __name__ == "__main__":
    sys.exit(main())
