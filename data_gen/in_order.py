"""Many jobs at once, results in the order of the jobs, never more than a few jobs ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
JOBS_PER_WORKER = 4


def map_in_order(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """`function` of every item, in order; at most `ahead` items are taken before the first result is handed out.

    The executor is shut down at the end. The first failure is raised, and jobs that have not begun are dropped.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)


def map_in_processes(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`function`, of a module's top level, of every item, in order; with one worker in this process."""
    if workers == 1:
        yield from map(function, items)
        return
    executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    yield from map_in_order(executor, function, items, workers * JOBS_PER_WORKER)
