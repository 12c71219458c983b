"""Questions per second of the engine `hf` with a shared image prefix, beside one plain `generate` call per question."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from sharp_model import questions_about, sharp_tiny, write_noise

from eval.engines import Request
from eval.hf_engine import HfEngine

SIZE = (1596, 896)  # 57 x 32 image tokens
SIDE_OF_TOKEN_PX = 28
IMAGES, QUESTIONS_PER_IMAGE, NEW_TOKENS, ROUNDS = 3, 5, 32, 3
BATCH_SIZE = 8  # the default


def hf_ratio() -> float:
    """Print seconds per question of three ways on the same model and questions; the ratio of first to last.

    Plain calls one by one, plain batches, batches with shared images: what the last gains over the first comes in part
    from batches (which on a CPU rather lose), in part from encoding an image once. Times are CPU times of one thread,
    taken in turns, the best of the rounds. Exits with an error when the answers differ.
    """
    torch.set_num_threads(1)
    loaded = sharp_tiny(max_pixels=SIZE[0] * SIZE[1])
    ways = {
        "one plain generate call per question": HfEngine(loaded, NEW_TOKENS, 1, share_images=False),
        f"plain batches of {BATCH_SIZE}": HfEngine(loaded, NEW_TOKENS, BATCH_SIZE, share_images=False),
        f"shared images, batches of {BATCH_SIZE}": HfEngine(loaded, NEW_TOKENS, BATCH_SIZE),
    }
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        requests = _requests(Path(folder))
        for _ in range(ROUNDS):
            outputs = []
            for name, engine in ways.items():
                start = time.process_time()
                outputs.append({reply.id: reply for reply in engine.replies(requests)})
                best[name] = min(best.get(name, float("inf")), time.process_time() - start)
            if outputs[0] != outputs[1] or outputs[0] != outputs[2]:
                sys.exit("the answers of the three ways differ")
    tokens = SIZE[0] * SIZE[1] // SIDE_OF_TOKEN_PX**2
    print(f"hf: {IMAGES} images of {tokens} tokens, {QUESTIONS_PER_IMAGE} questions each, {NEW_TOKENS} new tokens")
    for name, seconds in best.items():
        print(f"  {seconds / len(requests):.3f} s per question: {name}")
    plain, batched, shared = best.values()
    print(f"  from batches x{plain / batched:.1f}, from encoding an image once x{batched / shared:.1f}")
    return plain / shared


def _requests(folder: Path) -> list[Request]:
    """Questions about pictures that need no resizing."""
    paths = write_noise(folder, [SIZE] * IMAGES)
    return [request for path in paths for request in questions_about([path], [SIZE], path.stem, QUESTIONS_PER_IMAGE)]
