"""Two processes: both questions of a mirrored pair reach the rewards of one process in one generation batch, always."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import torchrun

from data_gen.records import read_questions
from training.schedule.curriculum import read_pass_rates

STAGES = """
- {name: pairs, rewards: [acc, pair], steps: 2, tasks: [distance, left_right, yaw]}
- {name: all, rewards: [acc], steps: 2, difficulty: [0, 1]}
"""


@pytest.fixture(scope="module")
def seen(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """What both processes saw, and the folder of the runs."""
    out = tmp_path_factory.mktemp("two")
    (out / "stages.yaml").write_text(STAGES)
    script = str(Path(__file__).with_name("schedule_processes.py"))
    done = torchrun(script, str(traces.with_name("questions.jsonl")), str(out / "stages.yaml"), str(out))
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((out / f"process-{rank}.json").read_text()) for rank in (0, 1))
    return first, second, out


@pytest.mark.parametrize(
    ("run", "calls", "prompts", "steps"), [("epochs", 6, 4, 12), ("longer batches", 1, 8, 2), ("stages", None, 4, 4)]
)
def test_a_pair_is_in_one_batch_of_one_process(
    seen: Any, traces: Path, run: str, calls: int | None, prompts: int, steps: int
) -> None:
    pair_of = {item.id: item.pair_id for item in read_questions(traces.with_name("questions.jsonl"))}
    first, second, _ = seen
    for process in (first[run], second[run]):
        assert calls in (None, len(process["calls"])) and process["steps"] == steps
        for names in process["calls"]:
            assert len(names) == prompts
            for a, b in zip(names[::2], names[1::2], strict=True):
                assert pair_of[a] == pair_of[b] and (pair_of[a] is None or a != b), (a, b)
    for ours, theirs in zip(first[run]["calls"], second[run]["calls"], strict=True):
        assert not set(ours) & set(theirs)
    assert first[run]["weights"] == second[run]["weights"]


def test_curriculum_and_dynamic_sampling_decide_the_same_in_all_processes(seen: Any, traces: Path) -> None:
    first, second, out = seen
    ours, theirs = first["stages"], second["stages"]
    assert ours["order"] == theirs["order"] and len(ours["order"]) == 4 * 8
    assert len(ours["calls"]) == len(theirs["calls"]) > 4
    assert all(spread > 0 for run in (ours, theirs) for batch in run["spreads"] for spread in batch)
    replaced = sum(entry["dynamic/replaced"] for entry in ours["logged"])
    assert replaced > 0 and sum(entry["dynamic/left"] for entry in ours["logged"]) == 0
    # Control: without it, some groups of other runs have no spread.
    assert any(spread == 0 for batch in first["longer batches"]["spreads"] for spread in batch)
    names = [item.id for item in read_questions(traces.with_name("questions.jsonl"))]
    head = json.loads((out / "2" / "pass_rates.jsonl").read_text().splitlines()[0])
    rates = read_pass_rates(out / "2" / "pass_rates.jsonl", names, head["options"])
    assert rates is not None and all(rate in (0.0, 0.5, 1.0) for rate in rates.values())
