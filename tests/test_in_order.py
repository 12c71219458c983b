"""Many jobs at once in processes: order kept, memory shared by forks, a killed worker told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_gen.command_line import UsageError
from data_gen.in_order import map_in_forks


def scaled(values: np.ndarray, place: int) -> float:
    return float(values[place] * 2)


def killed_at_three(values: np.ndarray, place: int) -> int:
    if place == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return place


class Unpicklable:
    """Forks hand it over as it is."""

    def __reduce__(self) -> None:  # type: ignore[override]
        raise TypeError("this is never pickled")


def called(shared: Unpicklable, place: int) -> int:
    return place + 1


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_order(workers: int) -> None:
    values = np.arange(50.0)
    assert list(map_in_forks(scaled, values, range(50), workers)) == (values * 2).tolist()


def test_what_is_shared_is_not_copied() -> None:
    assert list(map_in_forks(called, Unpicklable(), range(4), 2)) == [1, 2, 3, 4]


def test_a_killed_worker_ends_the_work_and_says_how_to_go_on() -> None:
    with pytest.raises(UsageError, match=r"a worker process was killed.* go on with --resume and fewer --workers"):
        list(map_in_forks(killed_at_three, np.zeros(3), range(20), 2))


PARENT = """
import os, signal, sys, time
from data_gen.in_order import map_in_processes

def slow(number):
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    list(map_in_processes(slow, range(4), 2))
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    with subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = {int(parent.stdout.readline()) for _ in range(2)}
        parent.kill()
        assert parent.stdout.read() == ""  # ends only when the last worker has closed it
    assert len(workers) == 2
