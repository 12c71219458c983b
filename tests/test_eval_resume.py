"""Runs on SURDS that are killed, go on, or belong to another model, prompt or question file."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from eval_runs import check_resumed_after_a_cut, lines_of, summary_of
from small_questions import write_small_set

from eval.engines import RandomEngine
from eval.surds import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


SLOW_RUN = """
import sys, time
from eval.engines import RandomEngine
from eval.surds import main

replies = RandomEngine.replies

def slow(self, requests, done=()):
    for reply in replies(self, requests, done):
        if any(request.prompt for request in requests):
            with open(sys.argv[1], "a") as asked:
                asked.write(reply.id + "\\n")
            time.sleep(0.02)
        yield reply

RandomEngine.replies = slow
sys.exit(main(sys.argv[2:]))
"""


def kill_after(lines: int, command: list[str], predictions: Path) -> None:
    """Start a run and kill it as soon as so many predictions are on disk."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not predictions.is_file() or predictions.read_bytes().count(b"\n") < lines:
        assert process.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_run_killed_twice_equals_an_uninterrupted_one_and_asks_only_what_was_not_written(
    data: Path, tmp_path: Path
) -> None:
    options = ["--data", str(data), "--engine", "random", "--label", "random"]
    assert evaluate(*options, "--out", tmp_path / "whole") == 0
    asked, out = tmp_path / "asked.txt", tmp_path / "run"
    command = [sys.executable, "-c", SLOW_RUN, str(asked), *options, "--out", str(out)]
    predictions = out / "predictions.jsonl"
    kill_after(10, command, predictions)
    assert not (out / "summary.json").exists()
    first = predictions.read_bytes().count(b"\n")
    kill_after(first + 10, [*command, "--resume"], predictions)
    second = predictions.read_bytes().count(b"\n")
    assert second < len(lines_of(tmp_path / "whole"))
    assert subprocess.run([*command, "--resume"], capture_output=True, timeout=60).returncode == 0
    for name in ("predictions.jsonl", "summary.json"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    # A kill between an answer and its line costs that one answer; what is written is never asked again.
    counts = Counter(asked.read_text().split())
    assert sum(counts.values()) - len(counts) <= 2 and len(counts) == len(lines_of(out))


@pytest.mark.parametrize("cut", [1, 40, 700, 2000])
def test_a_killed_run_resumes_to_the_same_files_and_asks_nothing_twice(
    cut: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--data", data, "--engine", "random"]
    check_resumed_after_a_cut(main, options, tmp_path / "run", RandomEngine, cut, monkeypatch)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (["--seed", "1"], "model: random, seed 0 there, random, seed 1 now"),
        (["--prompt-style", "direct"], "prompts: located"),
        (["--frame", "thousand"], "frame: "),
        (["--limit", "2"], "questions: "),
    ],
)
def test_another_model_prompt_or_data_is_not_mixed_in(
    change: list[str], named: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    before = lines_of(tmp_path / "run")
    assert evaluate(*options, "--resume", *change) == 2
    assert named in capsys.readouterr().err
    assert lines_of(tmp_path / "run") == before
    assert evaluate(*options, "--overwrite", *change) == 0


def test_another_scoring_of_the_same_run_is_no_other_run(data: Path, tmp_path: Path) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    assert evaluate(*options, "--resume", "--scoring", "official") == 0
    assert summary_of(tmp_path / "run")["scoring"] == "official"


def test_a_broken_line_inside_the_predictions_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    lines = lines_of(tmp_path / "run")
    (tmp_path / "run" / "predictions.jsonl").write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n")
    assert evaluate(*options, "--resume") == 2
    assert "predictions.jsonl, line 2" in capsys.readouterr().err
