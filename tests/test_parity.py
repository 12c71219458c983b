"""The published construction and both scorings, against data made with the published rules."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from shared import json_lines, need

from data_gen.questions import Unit, published_units
from data_gen.scene_records import read_scenes
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS, Truth, grade_text, unit_score

PUBLIC_NAMES = {"pixel": "xy2d"}
FRAME = CoordinateFrame("original")


def units() -> list[Unit]:
    return published_units(read_scenes(need("parity/metadata.jsonl")))


def public_row(unit: Unit) -> dict[str, object]:
    name = unit.name.replace("pixel-", "xy2d-")
    answers = [answer if isinstance(answer, str) else str(list(answer)) for answer in unit.answers]
    box = list(unit.scene.objects[unit.object_indices[0]].box_xyxy_px) if len(unit.object_indices) == 1 else None
    task = PUBLIC_NAMES.get(unit.task, unit.task)
    return {
        "task": task, "unit": name, "image": unit.scene.file_name, "options": list(unit.options),
        "answers": answers, "bbox": box,
    }  # fmt: skip


def test_units_equal_the_published_ones_in_order() -> None:
    expected = json.loads(need("parity/expected_units.json").read_text())
    assert [public_row(unit) for unit in units()] == expected


def test_another_seed_gives_other_units() -> None:
    scenes = read_scenes(need("parity/metadata.jsonl"))
    assert [public_row(u) for u in published_units(scenes, 43)] != [public_row(u) for u in published_units(scenes)]


@pytest.mark.parametrize(
    ("scoring", "file"), [("official", "expected_scores.json"), ("strict", "expected_scores_strict.json")]
)
def test_scores_equal_the_expected_ones(scoring: str, file: str) -> None:
    expected = json.loads(need(f"parity/{file}").read_text())
    outputs = {(row["unit"], row["variant"]): row["output"] for row in json_lines("parity/predictions.jsonl")}
    per_task: dict[str, dict[str, list[float]]] = {task: defaultdict(list) for task in TASKS}
    for unit in units():
        scores, valid = [], []
        for variant, answer in enumerate(unit.answers):
            box = unit.scene.objects[unit.object_indices[0]].box_xyxy_px
            truth = Truth(unit.task, str(answer), unit.options, box)
            output = outputs[unit.name.replace("pixel-", "xy2d-"), variant]
            grade = grade_text(output, truth, FRAME, scoring)
            scores.append(grade.score)
            valid.append(grade.valid)
        per_task[unit.task]["score"].append(unit_score(unit.task, scores))
        per_task[unit.task]["single_question"] += scores
        per_task[unit.task]["valid_rate"] += valid
    for task, figures in per_task.items():
        for name, values in figures.items():
            assert sum(values) / len(values) == pytest.approx(expected[PUBLIC_NAMES.get(task, task)][name], abs=1e-12)


def test_every_official_verdict_is_reproduced() -> None:
    by_name = {unit.name.replace("pixel-", "xy2d-"): unit for unit in units()}
    for row in json_lines("parity/predictions.jsonl"):
        unit = by_name[row["unit"]]
        box = unit.scene.objects[unit.object_indices[0]].box_xyxy_px
        truth = Truth(unit.task, str(unit.answers[row["variant"]]), unit.options, box)
        grade = grade_text(row["output"], truth, FRAME, "official")
        assert (grade.valid, grade.score) == (row["official_valid"], pytest.approx(row["official_value"])), row
