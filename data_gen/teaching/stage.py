"""Running one stage: many requests at once, each result in its file as soon as it is there, progress meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from data_gen.append_file import AppendFile
from data_gen.chat import ChatClient
from data_gen.in_order import map_as_completed

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")


@dataclass(frozen=True)
class Amount:
    """How much a stage has to do: jobs in all and jobs that are in its file already, and what one is called."""

    total: int
    done: int
    unit: str = "question"


def run_jobs(
    path: Path,
    job: Callable[[Item], Sequence[Any]],
    items: Iterable[Item],
    amount: Amount,
    client: ChatClient,
    concurrency: int,
) -> None:
    """Append the records (dataclasses) that `job` makes of every item, in the order in which they come.

    Items are taken as they are needed. Raises what `job` raises, after what was under way is written.
    """
    from tqdm import tqdm

    left = amount.total - amount.done
    if not left:
        return
    client.check()
    threads = ThreadPoolExecutor(min(concurrency, left))
    progress = tqdm(total=amount.total, initial=amount.done, desc=path.stem, unit=amount.unit, mininterval=1.0)
    with AppendFile(path) as file, progress:
        for records in map_as_completed(threads, job, items, min(concurrency, left)):
            file.append(records)
            _show(progress, client)


def _show(progress: tqdm[Any], client: ChatClient) -> None:
    usage = client.usage()
    told = [f"{usage.tokens_in} tokens in", f"{usage.tokens_out} out"]
    if retries := sum(usage.retries.values()):
        told.append(f"{retries} retries")
    if wrong := sum(usage.reasons.values()):
        told.append(f"{wrong} unusable")
    progress.set_postfix_str(", ".join(told), refresh=False)
    progress.update()
