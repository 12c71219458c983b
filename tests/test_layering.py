"""Who may import whom, and what must stay light to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("rewards", "data_gen", "training", "eval", "launch")
ALLOWED = {
    "rewards": {"rewards"},
    "data_gen": {"data_gen", "rewards"},
    "training": {"training", "data_gen", "rewards"},
    "eval": {"eval", "data_gen", "rewards", "training.model", "training.prefill", "training.going_on"},
    "launch": set(),
}


def modules_imported(source: str) -> Iterator[str]:
    """Every module an import statement names, anywhere in the file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def forbidden(room: str, source: str) -> list[str]:
    """Imports of a room's file that the house does not allow."""
    allowed = ALLOWED[room]
    found = []
    for module in modules_imported(source):
        top = module.split(".")[0]
        own = top in ROOMS or top == "tests"
        outside = room == "rewards" and top not in sys.stdlib_module_names and top != "rewards"
        if outside or (own and module not in allowed and top not in allowed):
            found.append(module)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_only_the_drawn_arrows_exist(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files, f"no file in {room}"
    bad = {str(path.relative_to(ROOT)): forbidden(room, path.read_text(encoding="utf-8")) for path in files}
    assert {path: modules for path, modules in bad.items() if modules} == {}


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("rewards", "import numpy"),
        ("rewards", "def f():\n    from data_gen.records import Question"),
        ("data_gen", "from training.model import load_model"),
        ("training", "import eval.runner"),
        ("eval", "from training.trainer import SpatialGRPOTrainer"),
        ("launch", "from rewards import REWARDS"),
    ],
)
def test_other_arrows_are_found(room: str, source: str) -> None:
    assert forbidden(room, source)


@pytest.mark.parametrize(
    "module",
    [
        "rewards",
        "data_gen.records",
        "data_gen.build_surds",
        "data_gen.build_drivemllm",
        "data_gen.build_cyclingvqa",
        "eval.surds",
        "eval.cyclingvqa",
        "eval.drivemllm",
    ],
)
def test_importing_it_pulls_in_no_heavy_library(module: str) -> None:
    code = f"import {module}, sys; print([m for m in ('torch', 'transformers', 'trl', 'datasets') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "script",
    [
        "data_gen/synthetic.py", "data_gen/build_surds.py", "data_gen/build_drivemllm.py", "data_gen/audit.py",
        "data_gen/gallery.py", "data_gen/build_cot.py", "data_gen/cot_report.py", "training/tiny.py",
        "training/merge.py", "training/sft.py",
        "data_gen/build_cyclingvqa.py", "training/grpo.py", "eval/surds.py", "eval/drivemllm.py", "eval/cyclingvqa.py",
        "eval/export.py", "eval/report.py", "eval/ablation_row.py", "eval/ablation_table.py",
        "training/mini_pretrain.py", "launch/ablate.py",
    ],
)  # fmt: skip
def test_every_entry_point_explains_itself(script: str, tmp_path: Path) -> None:
    out = subprocess.run(
        [sys.executable, str(ROOT / script), "--help"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert "usage" in out.stdout and script in out.stdout
