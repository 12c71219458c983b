"""How near the chat client comes to the ceiling of a server with 64 slots, and what it costs in CPU and memory.

python tests/benchmarks/cot_client.py [--requests 2560] [--repeats 2] [--queued 20000]

The server waits a second and answers; server and client are processes of their own. Every question has one image of
1600x900 pixels and about 250 kB, read from disk. The ceiling is what the server could do without a pause: its slots
over its mean latency. Of the stage `write` of data_gen/build_cot.py it is the whole command, with what it reads and
writes; its share is the time that the server needs, over the time that the stage takes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from data_gen.build_cot import main as build_cot
from data_gen.chat import ChatClient, user_message
from data_gen.in_order import map_as_completed, map_in_order
from data_gen.questions import own_units, questions_of
from data_gen.records import question_to_row, write_rows
from data_gen.scene_records import SceneImage, SceneObject

SLOTS = 64
IMAGES = 32
SERVER = Path(__file__).with_name("slow_chat_server.py")
MAPS = {"as completed": map_as_completed, "in order": map_in_order}


@dataclass(frozen=True)
class Figures:
    """What one run took. requests_per_s: up to where the server had no more work for all its slots."""

    requests_per_s: float
    cpu_ms_per_request: float
    peak_mb: float


def write_images(folder: Path) -> None:
    """Noisy pictures whose JPEG files are as large as a camera's."""
    for number in range(IMAGES):
        rng = np.random.default_rng(number)
        coarse = Image.fromarray(rng.integers(0, 255, (113, 200, 3), dtype=np.uint8)).resize((1600, 900))
        pixels = np.asarray(coarse).astype(int) + rng.integers(-3, 4, (900, 1600, 1))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:02}.jpg", quality=75)


def ours(url: str) -> Callable[[int, Path], str]:
    """Ask through data_gen/chat.py."""
    client = ChatClient((url,), "m")
    return lambda number, path: client.ask(str(number), [user_message(f"question {number}", [path])]).text


def openai_package(url: str) -> Callable[[int, Path], str]:
    """Ask through the openai package, its own retries on."""
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key="none")

    def ask(number: int, path: Path) -> str:
        uri = f"data:image/jpeg;base64,{b64encode(path.read_bytes()).decode()}"
        parts = [{"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": f"question {number}"}]
        asked = [{"role": "user", "content": parts}]
        return client.chat.completions.create(model="m", messages=asked).choices[0].message.content or ""

    return ask


CLIENTS = {"ours": ours, "openai package": openai_package}
STAGE = "stage write"


def measure(client: str, kind: str, url: str, folder: Path, requests: int, ahead: int) -> Figures:
    """One run in this process; the first request, which opens what has to be opened, is not counted."""
    ask = CLIENTS[client](url)
    paths = sorted(folder.glob("*.jpg"))
    ask(0, paths[0])
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    threads = ThreadPoolExecutor(SLOTS)
    replies = MAPS[kind](threads, lambda number: ask(number, paths[number % IMAGES]), range(requests), ahead)
    busy = requests - 2 * SLOTS
    whole = sum(len(text) == 1000 for text in islice(replies, busy))
    wall_s = time.monotonic() - started_s
    if whole + sum(len(text) == 1000 for text in replies) != requests:
        raise RuntimeError("replies are missing or cut")
    cpu_s = time.process_time() - started_cpu_s
    return Figures(busy / wall_s, 1000 * cpu_s / requests, peak_mb())


def write_questions(folder: Path, count: int) -> None:
    """At least `count` questions about the images of a folder, and rules for them."""
    car = SceneObject("white car", (700, 400, 900, 560), (800, 480), (0.0, 1.0, 20.0), 20.0, 20.02, "North", 0.1)
    scenes = [SceneImage(f"{number % IMAGES:02}.jpg", (car,)) for number in range(-(-count // 4))]  # 4 questions each
    units = own_units(scenes, depth_ranges="fair")
    rows = (question_to_row(question) for unit in units for question in questions_of(unit, "train", "real", "fair"))
    write_rows(folder / "questions.jsonl", rows)
    for task in ("yaw", "pixel", "depth"):
        (folder / f"{task}.md").write_text("1. Look.\n2. Compare.\n")


def measure_stage(url: str, folder: Path, requests: int) -> Figures:
    """The stage `write` in this process, from the command line to its last draft."""
    write_questions(folder, requests)
    words = f"--data {folder}/questions.jsonl --images {folder} --out {folder}/cot --rules {folder} --overwrite"
    asked = f"--writer {url} --writer-model m --stages write --concurrency {SLOTS}"
    started_cpu_s = time.process_time()
    if build_cot([*words.split(), *asked.split()]):
        raise RuntimeError("the stage failed")
    cpu_s = time.process_time() - started_cpu_s
    wall_s = json.loads((folder / "cot" / "run.json").read_text())["stages"]["write"]["wall_s"]
    done = (folder / "cot" / "write.jsonl").read_bytes().count(b"\n")
    return Figures(done / wall_s, 1000 * cpu_s / done, peak_mb())


def peak_mb() -> float:
    """The most memory that this process has held; getrusage would count its parent's before the start."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


@contextmanager
def server(latency_s: float, slow_every: int = 0) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [sys.executable, SERVER, "--latency-s", str(latency_s), "--slow-every", str(slow_every)]
    process = subprocess.Popen([*command, "--slots", str(SLOTS)], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip() if process.stdout else ""
    finally:
        process.kill()
        process.wait()


def run(client: str, kind: str, url: str, folder: Path, requests: int, ahead: int = 2 * SLOTS) -> Figures:
    """One run in a process of its own; `ahead`: how many requests may wait for a thread or a reply."""
    command = [sys.executable, __file__, "--run", client, kind, url, str(folder), str(requests), str(ahead)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Figures(**json.loads(printed.splitlines()[-1]))


def tell(name: str, figures: Figures, ceiling_per_s: float) -> None:
    """One line of what was measured."""
    share = figures.requests_per_s / ceiling_per_s
    print(f"{name}: {figures.requests_per_s:.1f} requests per second, {share:.1%} of {ceiling_per_s:.1f}; "
          f"{figures.cpu_ms_per_request:.2f} CPU ms each; peak {figures.peak_mb:.0f} MB", flush=True)  # fmt: skip


def compare(folder: Path, requests: int, repeats: int, queued: int) -> None:
    """All runs, in turns."""
    clients = [name for name in CLIENTS if name == "ours" or find_spec("openai")]
    with server(1.0) as url:
        for _ in range(repeats):
            for client in clients:
                tell(f"{client}, 1 s", run(client, "as completed", url, folder, requests), SLOTS)
            tell("ours in order, 1 s", run("ours", "in order", url, folder, requests), SLOTS)
            needed_s = -(-requests // SLOTS) + 1  # the one request that asks whether the server is there comes first
            tell("stage write, 1 s", run(STAGE, "", url, folder, requests), requests / needed_s)
    for kind in MAPS:
        with server(1.0, slow_every=100) as url:
            mean_s = 0.99 * 1.0 + 0.01 * 10
            tell(f"ours {kind}, every 100th 10 s", run("ours", kind, url, folder, requests), SLOTS / mean_s)
    with server(0.2) as url:
        tell(f"ours, {queued} queued, 0.2 s", run("ours", "as completed", url, folder, queued, queued), SLOTS / 0.2)


def main() -> None:
    """Print one line per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2560)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--queued", type=int, default=20_000)
    parser.add_argument("--run", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        client, kind, url, folder, requests, ahead = options.run
        if client == STAGE:
            figures = measure_stage(url, Path(folder), int(requests))
        else:
            figures = measure(client, kind, url, Path(folder), int(requests), int(ahead))
        print(json.dumps(asdict(figures)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder))
        sizes = [path.stat().st_size for path in Path(folder).iterdir()]
        print(f"{IMAGES} images of {min(sizes) / 1000:.0f} to {max(sizes) / 1000:.0f} kB")
        compare(Path(folder), options.requests, options.repeats, options.queued)


if __name__ == "__main__":
    main()
