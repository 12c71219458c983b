"""The sweep over a grid of rewards: the commands it plans, where it stops, and that it leaves nothing running."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LAUNCH = Path(__file__).resolve().parents[1] / "launch"
sys.path.insert(0, str(LAUNCH))

from ablation.grid import checks, parse, plan, run  # noqa: E402

GRID = ["--rewards-grid", "format,acc", "format,loc,acc,logic", "--data", "train.jsonl", "--eval-data", "val.jsonl"]


def test_every_row_is_trained_then_scored_then_all_are_compared(tmp_path: Path) -> None:
    words = [*GRID, "--dry-run", "--out", str(tmp_path), "--config", "configs/grpo/tiny.yaml", "--beta", "0"]
    commands = [shlex.join(command) for command in plan(*parse(words))]
    assert [sum(name in line for line in commands) for name in ("grpo.py", "surds.py", "report.py")] == [2, 2, 1]
    assert "--rewards format,acc" in commands[0] and "--rewards format,loc,acc,logic" in commands[2]
    assert "--config configs/grpo/tiny.yaml --beta 0" in commands[0] and commands[0].endswith("--resume")
    assert f"--ckpt {tmp_path / 'format+acc' / 'grpo'}" in commands[1] and "--data val.jsonl" in commands[1]
    assert commands[4].count(str(tmp_path)) == 3
    anew = plan(*parse([*words, "--overwrite"]))
    assert all("--overwrite" in command and "--resume" not in command for command in anew[:4])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--data", "train.jsonl"], "--data names no file"),
        (["--eval-data", __file__], "--data is missing"),
        (["--data", __file__], "--eval-data is missing"),
        (["--data", __file__, "--eval-data", __file__, "--eval-limit", "0"], "at least 1"),
        (["--data", __file__, "--eval-data", __file__, "--out", str(LAUNCH)], "something else than a sweep"),
    ],
)
def test_bad_input_is_refused_before_the_first_row(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(words)
    assert stop.value.code == 2
    assert reason in capsys.readouterr().err


def test_all_rows_are_checked_before_the_first_is_trained(tmp_path: Path) -> None:
    commands = plan(*parse([*GRID, "--dry-run", "--out", str(tmp_path)]))
    assert checks(commands) == [[*commands[0], "--check"], [*commands[2], "--check"]]


@pytest.mark.slow
def test_a_misspelt_reward_ends_the_sweep_before_its_first_row(traces: Path, tmp_path: Path) -> None:
    questions = str(traces.with_name("questions.jsonl"))
    words = ["--rewards-grid", "format", "format,lok", "--data", questions, "--eval-data", questions, "--model", "tiny"]
    sweep = [sys.executable, str(LAUNCH / "ablate.py"), *words, "--out", str(tmp_path / "sweep")]
    done = subprocess.run(sweep, capture_output=True, text=True)
    assert done.returncode != 0 and not (tmp_path / "sweep").exists()
    assert "unknown reward 'lok'; known: format, loc, acc" in done.stderr
    assert "rewards format; nothing was trained" in done.stdout


def writes(path: Path, text: str, status: int = 0) -> list[str]:
    code = f"import sys; open({str(path)!r}, 'a').write({text!r}); sys.exit({status})"
    return [sys.executable, "-c", code]


def test_a_failing_row_stops_the_sweep(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(SystemExit) as stop:
        run([writes(log, "a"), writes(log, "b", status=3), writes(log, "c")])
    assert stop.value.code == 3 and log.read_text() == "ab"


def test_a_stopped_sweep_takes_its_command_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    sleeper = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = f"from ablation.grid import run; import sys; run([[sys.executable, '-c', {sleeper!r}]])"
    sweep = subprocess.Popen([sys.executable, "-c", code], cwd=LAUNCH)
    while not (pid.exists() and pid.read_text()):
        time.sleep(0.05)
    sweep.send_signal(signal.SIGTERM)
    assert sweep.wait(timeout=20) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
