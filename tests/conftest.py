"""Fixtures shared by the tests: nothing is looked up on a network, and the tiny model is built once per run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["COLUMNS"] = "200"  # tables are as wide as the terminal, whatever that is here


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cot.jsonl over a few images of coloured rectangles, with manifest and images beside it."""
    from small_questions import write_small_set

    from data_gen.records import Trace, read_questions, trace_to_row, write_rows

    questions = write_small_set(tmp_path_factory.mktemp("small"), images=12)
    path = questions.with_name("cot.jsonl")
    asked = read_questions(questions)
    write_rows(path, (trace_to_row(Trace(item, f"So it is {item.answer_text}.", "test")) for item in asked))
    return path
