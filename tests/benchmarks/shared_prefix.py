"""What an update of GRPO costs when image and prompt are encoded once per group, as ratios of one run.

python tests/benchmarks/shared_prefix.py [--rounds 7] [--groups 2 4 8 16]

The real trainer on the tiny model, prompts of 1,200 tokens of which 1,008 are image, completions of 200. One group per
micro-batch in both ways; timed is the trainer's own `training_step` on a buffered batch (loss forward and backward) in
CPU seconds of one thread, by turns; then whole steps, generation and rewards too, each way with its own generation.
Peak memory is that of a process of its own per way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from prefix_processes import make_trainer
from sharp_model import write_noise
from small_questions import make_questions

from data_gen.records import question_to_row, write_rows

SIZE = (1176, 672)  # 42 x 24 cells of the model's grid
IMAGE_TOKENS, PROMPT_TOKENS, COMPLETION_TOKENS = 1008, 1200, 200
WAYS = {"TRL's own path": "false", "shared prefix": "true"}
MEMORY_GROUP = 4
ASIDE = "Look closely at every car in the picture before you answer. "


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one update, a median per way, and the median and range of their ratio within a round.

    stock_step_s, shared_step_s: medians of whole steps.
    """

    group: int
    stock_s: float
    shared_s: float
    ratio: float
    least: float
    most: float
    stock_step_s: float
    shared_step_s: float


def write_questions(folder: Path) -> Path:
    """Questions about large pictures, with a long text; the path of their file."""
    paths = write_noise(folder, [SIZE] * 4)
    asked = [item for item in make_questions(12) if item.task == "depth"]
    rows = [
        replace(item, image=paths[index % 4].name, width=SIZE[0], height=SIZE[1], question=ASIDE * 3 + item.question)
        for index, item in enumerate(asked)
    ]
    (folder / "manifest.json").write_text(json.dumps({"image_root": ".", "source": "synthetic"}))
    write_rows(folder / "questions.jsonl", map(question_to_row, rows))
    return folder / "questions.jsonl"


def filled_trainer(questions: Path, way: str, group: int) -> tuple[Any, Any]:
    """The trainer with its buffer filled, and the batch that it was filled from; the first step is not timed."""
    size = str(group)
    trainer = make_trainer(
        questions, "tiny", questions.parent / "out",
        "--shared_prefix", WAYS[way], "--shared_prefill", WAYS[way], "--max_pixels", str(SIZE[0] * SIZE[1]),
        "--per_device_train_batch_size", size, "--num_generations", size, "--gradient_accumulation_steps", "1",
        "--num_iterations", "100000", "--max_completion_length", str(COMPLETION_TOKENS),
        "--generation_kwargs", json.dumps({"min_new_tokens": COMPLETION_TOKENS}),
    )  # fmt: skip
    trainer.reward_funcs[0] = lambda completions, **_: [float(index) for index, _ in enumerate(completions)]
    loader = trainer.get_train_dataloader()
    # As `train` leaves them when it begins.
    trainer.callback_handler.train_dataloader, trainer.current_gradient_accumulation_steps = loader, 1
    batch = next(iter(loader))
    update(trainer, batch)
    return trainer, batch


def update(trainer: Any, batch: Any) -> float:
    """CPU seconds of one loss, forward and backward."""
    trainer.model.zero_grad()
    start = time.process_time()
    trainer.training_step(trainer.model, batch, num_items_in_batch=None)
    return time.process_time() - start


def whole_step(trainer: Any, batch: Any) -> float:
    """CPU seconds of a step that samples and scores its completions first."""
    trainer._buffered_inputs = None
    iterations, trainer.num_iterations = trainer.num_iterations, 1
    seconds = update(trainer, batch)
    trainer.num_iterations = iterations
    return seconds


def check_shapes(trainer: Any) -> None:
    """Stop when prompts and completions are not as long as said."""
    held = trainer._buffered_inputs[0]
    prompt = held["prompt_mask"].sum(1).min().item()
    image = (held["prompt_ids"][0] == trainer.model.config.image_token_id).sum().item()
    completion = held["completion_mask"].sum(1)
    if prompt < PROMPT_TOKENS or image != IMAGE_TOKENS or (completion != COMPLETION_TOKENS).any():
        raise RuntimeError(f"prompt of {prompt} tokens, {image} of them image, completions of {completion.tolist()}")
    print(f"prompt {prompt} tokens, {image} of them image, completions {COMPLETION_TOKENS}", flush=True)


def cost(questions: Path, group: int, rounds: int) -> Cost:
    """Both ways by turns."""
    trainers = [filled_trainer(questions, way, group) for way in WAYS]
    check_shapes(trainers[0][0])
    stock, shared = by_turns(trainers, rounds, update)
    steps = by_turns(trainers, rounds, whole_step)
    ratios = [one / other for one, other in zip(stock, shared, strict=True)]
    medians = (statistics.median(stock), statistics.median(shared), statistics.median(ratios))
    return Cost(group, *medians, min(ratios), max(ratios), *map(statistics.median, steps))


def by_turns(
    trainers: list[tuple[Any, Any]], rounds: int, work: Callable[[Any, Any], float]
) -> tuple[list[float], list[float]]:
    """Seconds of some work by each of two trainers, by turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for (trainer, batch), own in zip(trainers, seconds, strict=True):
            own.append(work(trainer, batch))
    return seconds


def resident_mb(peak: bool = False) -> float:
    """Memory of this process now, or the most since it began or was told to forget."""
    field = "VmHWM" if peak else "VmRSS"
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def memory(questions: Path, way: str) -> None:
    """Print the peak over the loaded model in MB: of the whole process, and of two updates alone."""
    make_trainer(questions, "tiny", questions.parent / "out")
    loaded = resident_mb()
    trainer, batch = filled_trainer(questions, way, MEMORY_GROUP)
    whole = resident_mb(peak=True) - loaded
    Path("/proc/self/clear_refs").write_text("5")  # begins a new peak
    for _ in range(2):
        update(trainer, batch)
    print(json.dumps([whole, resident_mb(peak=True) - loaded]))


def memory_of(questions: Path, way: str) -> tuple[float, float]:
    """`memory` in a process of its own."""
    command = [sys.executable, __file__, "--memory", way, "--questions", str(questions)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    whole, updates = json.loads(done.stdout.splitlines()[-1])
    return whole, updates


def report(costs: list[Cost], peaks: dict[str, tuple[float, float]]) -> None:
    """Everything, the ratios last."""
    print(f"{'G':>3} {'stock s':>9} {'shared s':>9} {'ratio':>6} (range)   shared, times its G = {costs[0].group}")
    for one in costs:
        grown = one.shared_s / costs[0].shared_s
        spread = f"({one.least:.2f} to {one.most:.2f})"
        print(f"{one.group:>3} {one.stock_s:>9.3f} {one.shared_s:>9.3f} {one.ratio:>6.2f} {spread} {grown:>6.2f}")
    for one in costs:
        grown = " and ".join(
            f"x{own / first:.2f}"
            for own, first in ((one.stock_step_s, costs[0].stock_step_s), (one.shared_step_s, costs[0].shared_step_s))
        )
        seconds = f"{one.stock_step_s:.3f} and {one.shared_step_s:.3f} s"
        print(f"whole step, G = {one.group}: {seconds}; {grown} of the first")
    if len(costs) > 1:
        groups = [one.group for one in costs]
        for way, seconds in zip(WAYS, ([one.stock_s for one in costs], [one.shared_s for one in costs]), strict=True):
            each, once = statistics.linear_regression(groups, seconds)
            print(f"{way}: {once:.3f} s + {each:.3f} s per completion, the straight line through these")
    for way, (whole, updates) in peaks.items():
        print(f"{way}: peak over the loaded model {whole:.0f} MB with generation, {updates:.0f} MB in updates")
    stock, shared = (peaks[way] for way in WAYS)
    print(
        f"peak memory over the loaded model, G = {MEMORY_GROUP}: {shared[1] / stock[1]:.0%} of TRL's in updates, ",
        end="",
    )
    print(f"{shared[0] / stock[0]:.0%} with generation")
    for one in costs:
        whole = one.stock_step_s / one.shared_step_s
        print(f"group of {one.group}: update x{one.ratio:.2f}, whole step x{whole:.2f}")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="updates per way and group size (default: %(default)s)")
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 4, 8, 16], help="group sizes")
    parser.add_argument("--memory", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--questions", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    if options.memory:
        memory(options.questions, options.memory)
        return
    with tempfile.TemporaryDirectory() as folder:
        questions = write_questions(Path(folder))
        costs = [cost(questions, group, options.rounds) for group in options.groups]
        report(costs, {way: memory_of(questions, way) for way in WAYS})


if __name__ == "__main__":
    main()
