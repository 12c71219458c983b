"""Files that are whole or not there: written under a temporary name, then renamed."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, with its folder; no half-written file ever has the final name, whoever else writes it as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file of this project holds. Raises UsageError when it holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); start anew with --overwrite") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no object; start anew with --overwrite")
    return value
