"""Where outside test data lies; tests that need it skip when it is absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def need(name: str) -> Path:
    """The path of an outside file or folder, or a skip."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the checkout")
    return path


def json_lines(name: str) -> list[dict[str, Any]]:
    """The objects of an outside JSON Lines file, or a skip."""
    return [json.loads(line) for line in need(name).read_text(encoding="utf-8").splitlines() if line.strip()]
