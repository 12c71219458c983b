"""Official scoring and construction against the published rules themselves, on random inputs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from data_gen.question_set import make_questions
from data_gen.questions import published_units
from data_gen.scene_records import scene_from_row
from data_gen.templates import read_templates
from rewards.boxes import CoordinateFrame
from rewards.grading import Truth, grade_text


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    """evalscope's SURDS utilities, which need only the standard library, loaded from their file."""
    try:
        distribution = importlib.metadata.distribution("evalscope")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("evalscope is not installed; launch/test.sh installs it")
    path = distribution.locate_file("evalscope/benchmarks/surds/utils.py")
    spec = importlib.util.spec_from_file_location("published_rules", str(path))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OPTIONS = ("The white car", "A red-and-white bus", "Almost the same")
PIECES = [
    "<answer>", "</answer>", "the", "The white car", "white car", "a", "an", "Almost the same", "almost  THE same",
    "red-and-white bus", "A red-and-white bus", ".", "’", "\n", " ", "-", "[", "]", "(", ")", ",", ", ", "0.5", "800",
    "07", "1599.9", "1600", "-3", "+4", "[800, 450]", "[0.25,0.5]", "[700, 400, 801, 451]", "[1, 2, 3]", "[5, 6,]",
    "[1 2, 3]", "[.5, 5.]", "[1-2, 3]", "9" * 400,
]  # fmt: skip
BOX = (400.0, 200.0, 1200.0, 700.0)


def random_text(rng: random.Random) -> str:
    inside = "".join(rng.choices(PIECES, k=rng.randint(0, 5)))
    return rng.choice(["{}", "<answer>{}</answer>", "x<answer>{}</answer> y", "<answer>{}"]).format(inside)


def test_options_are_graded_as_published(rules: ModuleType) -> None:
    rng = random.Random(1)
    outcomes = set()
    for _ in range(20_000):
        text, truth = random_text(rng), rng.choice(OPTIONS)
        answer = rules.extract_tagged_answer(text)
        valid = any(rules.option_is_present(option, answer) for option in OPTIONS)
        right = valid and rules.normalize_answer(answer) == rules.normalize_answer(truth)
        grade = grade_text(text, Truth("distance", truth, OPTIONS), CoordinateFrame(), "official")
        assert (grade.valid, grade.score) == (valid, float(right)), text
        outcomes.add((valid, right))
    assert outcomes == {(False, False), (True, False), (True, True)}


def test_points_are_graded_as_published(rules: ModuleType) -> None:
    rng = random.Random(2)
    scores = []
    for _ in range(20_000):
        text = random_text(rng)
        point = rules.parse_point(rules.extract_tagged_answer(text))
        expected = rules.compute_centerness(point, BOX) if point else 0.0
        grade = grade_text(text, Truth("pixel", "[800, 450]", (), BOX), CoordinateFrame(), "official")
        assert (grade.valid, grade.score) == (point is not None, pytest.approx(expected)), text
        scores.append(grade.score)
    assert 0.0 in scores and 1.0 in scores and any(0 < score < 1 for score in scores)


def random_row(rng: random.Random, index: int) -> dict[str, Any]:
    count = rng.choice([1] * 8 + [2, 3])
    objects = [
        {
            "descs": f"{rng.choice(['white', 'red'])} car {place}",
            "bboxes2D": [10.0, 10.0, 90.0, 90.0],
            "xy2Ds": [rng.randrange(1600), rng.randrange(900)],
            "xyz3Ds": [0.0, 0.0, 1.0],
            "depths": rng.choice([rng.uniform(1, 60), 7.0, 15.0, 6.9, 15.1]),
            "distances": rng.choice([rng.uniform(1, 60), 5.0, 6.0]),
            "yaw_descs": rng.choice(["North", "Northeast", "East", "Southeast", "South", "Southwest", "West"]),
        }
        for place in range(count)
    ]
    return {"file_name": f"{index}.webp"} | {name: [item[name] for item in objects] for name in objects[0]}


@pytest.mark.parametrize("seed", range(5))
def test_units_are_built_as_published(rules: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    rows = [random_row(rng, index) for index in range(400)]
    published = rules.build_official_vqa_records(rows)
    expected = [(unit["pair_id"], unit["answers"], unit["options"]) for task in published for unit in published[task]]
    ours = [
        (
            unit.name.replace("pixel-", "xy2d-"),
            [str(list(answer)) if isinstance(answer, tuple) else answer for answer in unit.answers],
            list(unit.options),
        )
        for unit in published_units([scene_from_row(row) for row in rows])
    ]
    assert sorted(ours) == sorted(expected)


def test_templates_are_filled_as_published(rules: ModuleType, tmp_path: Path) -> None:
    texts = {
        "yaw": "YAW",
        "xy2d": "XY2D",
        "depth": "DEPTH",
        "dis": "DISTANCE",
        "lr": "LEFT_RIGHT",
        "fb": "FRONT_BEHIND",
    }
    for name, constant in texts.items():
        (tmp_path / f"{name}.txt").write_text(getattr(rules, f"{constant}_PROMPT"))
    rng = random.Random(0)
    rows = [random_row(rng, index) for index in range(200)]
    published = rules.build_official_vqa_records(rows)
    expected = {
        f"{unit['pair_id']}-{variant}": prompt
        for units in published.values()
        for unit in units
        for variant, prompt in enumerate(unit["prompts"])
    }
    units = published_units([scene_from_row(row) for row in rows])
    made = make_questions(units, "metadata", "official", read_templates(tmp_path), trusted=False)
    assert {question.id.replace("pixel-", "xy2d-"): question.prompt for question in made.questions} == expected
