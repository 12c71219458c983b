"""The sweep runner: the commands it plans, what it takes as done, and where it stops."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))

from ablate import Command, parse, plan, run

GRID = ["--rewards-grid", "format,acc", "format,loc,acc,logic", "--data", "train.jsonl", "--eval-data", "val.jsonl"]


def test_every_row_is_trained_then_scored_then_all_are_compared(tmp_path: Path) -> None:
    options, passed_on = parse([*GRID, "--out", str(tmp_path), "--config", "configs/grpo/tiny.yaml", "--beta", "0"])
    commands = [str(command) for command in plan(options, passed_on)]
    assert [sum(name in line for line in commands) for name in ("grpo.py", "surds.py", "report.py")] == [2, 2, 1]
    assert "--rewards format,acc" in commands[0] and "--rewards format,loc,acc,logic" in commands[2]
    assert "--config configs/grpo/tiny.yaml --beta 0" in commands[0]
    assert f"--ckpt {tmp_path / 'format+acc'}" in commands[1] and "--data val.jsonl" in commands[1]
    assert commands[4].count(str(tmp_path)) == 3


def test_without_data_it_says_which_option_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(["--data", "train.jsonl"])
    assert stop.value.code == 2
    assert "--eval-data is missing" in capsys.readouterr().err


def writes(path: Path, text: str, status: int = 0) -> tuple[str, ...]:
    code = f"import sys; open({str(path)!r}, 'a').write({text!r}); sys.exit({status})"
    return (sys.executable, "-c", code)


def test_a_failing_row_stops_the_sweep_and_a_second_call_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = Command(writes(log, "a"), tmp_path / ".first")
    broken = Command(writes(log, "b", status=3), tmp_path / ".second")
    with pytest.raises(SystemExit) as stop:
        run([first, broken, Command(writes(log, "c"))])
    assert stop.value.code == 3 and log.read_text() == "ab"
    run([first, Command(writes(log, "d"), tmp_path / ".second"), Command(writes(log, "c"))])
    assert log.read_text() == "abdc"


def test_a_row_with_other_options_is_not_taken_as_done(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run([Command(writes(log, "a"), tmp_path / ".mark")])
    run([Command(writes(log, "b"), tmp_path / ".mark")])
    assert log.read_text() == "ab"
