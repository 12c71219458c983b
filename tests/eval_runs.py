"""What the tests of all evaluation commands share: a run as it stands in its folder, and a run that is cut short."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Main = Callable[[Sequence[str]], int]


def summary_of(folder: Path) -> dict[str, Any]:
    """What `summary.json` holds."""
    return json.loads((folder / "summary.json").read_text())


def lines_of(folder: Path) -> list[str]:
    """The lines of `predictions.jsonl`."""
    return (folder / "predictions.jsonl").read_text().splitlines()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """What the lines of `predictions.jsonl` hold."""
    return [json.loads(line) for line in lines_of(folder)]


def check_resumed_after_a_cut(
    main: Main, options: Sequence[object], out: Path, engine: type, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose predictions lose their last `cut` bytes ends up the same; `engine` is asked for what is lost only."""
    words = [*map(str, options), "--out", str(out)]
    assert main(words) == 0
    predictions, summary = out / "predictions.jsonl", out / "summary.json"
    whole, scores = predictions.read_bytes(), summary.read_bytes()
    predictions.write_bytes(whole[:-cut])
    summary.unlink()
    asked: list[str] = []
    replies = engine.replies  # type: ignore[attr-defined]

    def counted(self: Any, requests: Any, done: Any = ()) -> Any:
        of_the_run = any(request.prompt for request in requests)  # and not of a random floor
        for reply in replies(self, requests, done):
            asked.extend([reply.id] * of_the_run)
            yield reply

    monkeypatch.setattr(engine, "replies", counted)
    assert main(words) == 2, "a folder that is not empty needs --resume"
    assert main([*words, "--resume"]) == 0
    assert (predictions.read_bytes(), summary.read_bytes()) == (whole, scores)
    assert len(asked) == len(set(asked)) == whole.count(b"\n") - whole[:-cut].count(b"\n")
