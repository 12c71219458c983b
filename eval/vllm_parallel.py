"""Several copies of vLLM side by side, each in a process with GPUs of its own; questions come image by image."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from typing import Any

from data_gen.command_line import UsageError
from data_gen.in_order import map_in_order
from eval.engines import Reply, Request, by_image
from eval.vllm_engine import CHUNK, VllmEngine, load_vllm
from rewards.boxes import CoordinateFrame

_ENGINE: list[VllmEngine] = []  # of a worker process


@dataclass(frozen=True)
class ParallelVllm:
    """`copies` engines with the same weights, `tensor_parallel` GPUs each.

    path, processor, frame, max_new_tokens, temperature, seed: as of a `VllmEngine`.
    """

    path: str
    processor: Any
    frame: CoordinateFrame
    max_new_tokens: int
    tensor_parallel: int
    copies: int
    temperature: float = 0.0
    seed: int = 0

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """Replies chunk by chunk. Raises RecordError for an unfit image, UsageError when a process dies."""
        left = [request for request in by_image(requests) if request.id not in done]
        size = min(CHUNK, -(-len(left) // self.copies)) or 1
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        context = get_context("spawn")
        gpus = context.SimpleQueue()
        for share in gpu_shares(self.copies, self.tensor_parallel, os.environ.get("CUDA_VISIBLE_DEVICES")):
            gpus.put(share)
        workers = ProcessPoolExecutor(self.copies, context, _start, (gpus,))
        for replies in map_in_order(workers, partial(_answer, self), chunks, 2 * self.copies):
            yield from replies


def gpu_shares(copies: int, tensor_parallel: int, visible: str | None) -> list[str]:
    """The CUDA_VISIBLE_DEVICES of every copy. Raises UsageError when fewer GPUs are visible than needed."""
    needed = copies * tensor_parallel
    names = visible.split(",") if visible else [str(index) for index in range(needed)]
    if len(names) < needed:
        raise UsageError(f"--data-parallel {copies} with --tensor-parallel {tensor_parallel} needs {needed} GPUs, "
                         f"CUDA_VISIBLE_DEVICES names {visible}")  # fmt: skip
    return [",".join(names[start : start + tensor_parallel]) for start in range(0, needed, tensor_parallel)]


def _start(gpus: SimpleQueue[str]) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus.get()  # before vLLM is imported


def _answer(settings: ParallelVllm, chunk: Sequence[Request]) -> list[Reply]:
    if not _ENGINE:  # here, where what vLLM complains about reaches the parent
        llm = load_vllm(settings.path, settings.tensor_parallel)
        _ENGINE.append(
            VllmEngine(
                llm,
                settings.processor,
                settings.frame,
                settings.max_new_tokens,
                settings.temperature,
                settings.seed,
            )
        )
    return list(_ENGINE[0].replies(chunk))
