"""How far a command of an ablation is, read from its log, and how long what is left is thought to take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "launch"))

from ablation.progress import (  # noqa: E402
    Step,
    all_left,
    duration,
    expected_seconds,
    last_lines,
    last_step,
    longest_first,
    seconds_left,
)
from ablation.study import Estimate  # noqa: E402
from ablation.work import Running  # noqa: E402

LOG = (
    "\n$ python training/grpo.py\nLoading weights: 100%|#####| 123/123 [00:00<00:00]\n"
    "mini: 1.90 M parameters\n\r  0%|          | 0/150 [00:00<?, ?it/s]\r  1%|          | 1/150 [00:08<20:00, 8.1s/it]"
    "\r                      \rstep 1: loss 0.1, reward 0.5\n\r  1%|1         | 2/150 [00:16<20:00, 8.1s/it]"
)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (LOG, Step(2, 150)),
        ("Loading weights: 100%|#####| 123/123 [00:00<00:00]\n", Step(123, 123)),
        ("synthetic world:  48%|####8     | 630/1320 [00:10<00:11, 62.11image/s]", Step(630, 1320)),
        (" 12%|#2        | 24/200 [00:10<01:15, 2.33question/s]", Step(24, 200)),
        ("Score 12 of 20 | 5/7 questions", None),
        ("", None),
    ],
)
def test_the_last_bar_of_a_log_tells_the_step(text: str, step: Step | None) -> None:
    assert last_step(text) == step


def test_the_last_lines_are_without_bars() -> None:
    assert last_lines(LOG + "\nTraceback\nValueError: no\n", 2) == ["Traceback", "ValueError: no"]
    assert last_lines(LOG, 9)[-1] == "step 1: loss 0.1, reward 0.5"


def test_what_is_left_is_told_by_pace_then_by_others_then_by_the_study() -> None:
    assert seconds_left(Step(10, 100), Step(40, 100), 60) == 120
    assert seconds_left(Step(10, 100), Step(10, 100), 60) is None
    assert seconds_left(Step(10, 100), Step(40, 90), 60) is None
    estimates = {"grpo": Estimate(150, 8)}
    assert expected_seconds("grpo", {}, estimates) == 1200
    assert expected_seconds("grpo", {"grpo": [900, 1100]}, estimates) == 1000
    assert expected_seconds("sft", {}, estimates) is None
    assert (duration(59.6), duration(3725), duration(None)) == ("1:00", "1:02:05", "?")


def test_the_whole_takes_its_longest_way_or_its_work_shared_out() -> None:
    needs = {"data": (), "sft": ("data",), "base": ("data",), "grpo": ("data", "sft")}
    own = {"data": 10.0, "sft": 20.0, "base": 5.0, "grpo": 40.0}
    assert all_left(own, needs, 2) == 70
    assert all_left(own, needs, 1) == 75
    assert all_left({"base": 5.0, "grpo": 40.0}, needs, 2) == 40
    assert all_left({**own, "base": None}, needs, 2) is None
    assert longest_first(own, needs) == ["data", "sft", "grpo", "base"]


def test_the_pace_of_what_resumes_is_that_from_where_it_goes_on(tmp_path: Path) -> None:
    nothing: Any = None
    running = Running(nothing, nothing, "--resume", nothing, 0, 0.0, 0.0)
    log = tmp_path / "log"
    firsts = []
    for shown in (0, 1701, 1760):
        log.write_text(f"\r 50%|#####     | {shown}/2000 [00:08<20:00, 8.1s/it]")
        running.look(log)
        assert running.first is not None
        firsts.append(running.first[0].number)
    assert firsts == [0, 1701, 1701]
    assert running.now == Step(1760, 2000)
