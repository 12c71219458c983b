"""Many jobs at once, results in the order of the jobs or as they come, never more than a few jobs ahead."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from typing import Any, TypeVar

from data_gen.command_line import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")
Shared = TypeVar("Shared")
JOBS_PER_WORKER = 4


def map_in_order(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """`function` of every item, in order; at most `ahead` items are taken before the first result is handed out.

    While the first of them is not finished, no more are taken: jobs of very uneven length want `map_as_completed`.
    The executor is shut down at the end. The first failure is raised, and jobs that have not begun are dropped. Raises
    UsageError when a worker process was killed, as systems do when memory runs out.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except KeyboardInterrupt:
        executor.shutdown(wait=False, cancel_futures=True)  # what is under way may take minutes
        raise
    except BrokenProcessPool as error:
        raise UsageError(
            "a worker process was killed, maybe for want of memory; go on with --resume and fewer --workers"
        ) from error
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


def map_as_completed(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """`function` of every item, each as soon as it is there; at most `ahead` items are taken and unfinished.

    One that takes long holds up none of the others. The executor is shut down at the end. After the first failure no
    item is taken or begun any more; results under way are handed out, then it is raised. Ctrl-C waits for nothing.
    """
    finished: SimpleQueue[Future[Result]] = SimpleQueue()
    left, under_way = iter(items), 0
    failed: Future[Result] | None = None
    try:
        while True:
            for item in islice(left, 0 if failed else ahead - under_way):
                executor.submit(function, item).add_done_callback(finished.put)
                under_way += 1
            if not under_way:
                break
            future = finished.get()
            under_way -= 1
            if future.cancelled():
                continue
            if future.exception() is None:
                yield future.result()
            elif failed is None:
                failed = future
                executor.shutdown(wait=False, cancel_futures=True)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    if failed:
        failed.result()


def map_in_processes(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`function`, of a module's top level, of every item, in order; with one worker in this process."""
    if workers == 1:
        yield from map(function, items)
        return
    executor = ProcessPoolExecutor(workers, get_context("spawn"), _follow_parent)
    yield from map_in_order(executor, function, items, workers * JOBS_PER_WORKER)


def map_in_forks(
    function: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """`function(shared, item)` of every item, in order; forked processes have `shared` without a copy of it."""
    if workers == 1:
        yield from (function(shared, item) for item in items)
        return
    executor = ProcessPoolExecutor(workers, get_context("fork"), _take, (partial(function, shared),))
    yield from map_in_order(executor, _call, items, workers * JOBS_PER_WORKER)


_CALLED: list[Callable[[Any], Any]] = []  # of a forked process


def _follow_parent() -> None:
    """A worker leaves Ctrl-C, which reaches all processes of a terminal, to its parent, and ends when that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def _take(function: Callable[[Any], Any]) -> None:
    _follow_parent()
    _CALLED[:] = [function]


def _call(item: Any) -> Any:
    return _CALLED[0](item)
