"""Outputs of the published DriveMLLM code, scored on the questions that it asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_drivemllm import small_set

from data_gen.drivemllm.prompts import marked
from data_gen.drivemllm.records import KINDS, read_images
from eval.drivemllm import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def published_folder(data: Path, folder: Path, outputs: dict[str, str]) -> Path:
    """What the published code writes: per kind a file of rows, and which objects were named; objects in file order."""
    images = read_images(data.parent / "metadata.jsonl")
    folder.mkdir(parents=True)
    samples = []
    for place, (kind, facts) in enumerate(KINDS.items(), 1):
        asked = [index for index, image in enumerate(images) if len(image.objects) >= facts.objects]
        rows = [{"dataset_index": index, "output": outputs[kind]} for index in asked]
        (folder / f"{place:02d}_{kind}_qa.json").write_text(json.dumps(rows))
        named = [list(range(facts.objects)) if index in asked else None for index in range(len(images))]
        samples.append([{"inference_sample_index": item} for item in named])
    (folder / "inference_sample_index.json").write_text(json.dumps(samples))
    return folder


CONSTANT = {
    "xy": "[30, 100]", "box": "[10, 80, 50, 120]", "left": "the red car", "right": "blue bus", "front": "Yes",
    "behind": "No", "dA": "8", "dz": "8", "dAB": "nan", "dx": "3",
}  # fmt: skip


def test_a_published_folder_is_scored_on_the_questions_it_asked(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = {kind: marked(answer) for kind, answer in CONSTANT.items()}
    folder = published_folder(data, tmp_path / "model" / "03_five_shot", outputs)
    assert evaluate("--data", data, "--replay", folder, "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    tasks = summary["tasks"]
    assert tasks["left_right"]["score"] == 1, "the named objects are those of the folder, in its order"
    # Depths of 8 + i for the car and 15 - i for the bus in odd images i: the car is nearer where i is 1 or 3.
    assert tasks["front_behind"]["accuracy"] == 0.5
    assert tasks["depth"]["accuracy"] == pytest.approx(1 / (1 + 0.05 * 3.5))  # errors of 0 to 7 m
    assert tasks["object_distance"]["efficiency"] == 0
    assert (summary["label"], summary["prompt_style"]) == ("replay-model-03_five_shot", "5-shot")
    assert "own prompts" not in capsys.readouterr().out
    assert summary["prompts"] == "official (published outputs)"
    assert evaluate("--data", data, "--replay", tmp_path / "run", "--out", tmp_path / "again") == 2
    assert f"replay {folder}" in capsys.readouterr().err, "the run asked about other objects than the question file"
    first = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    assert evaluate("--data", data, "--replay", folder, "--out", tmp_path / "run", "--resume") == 0
    assert (tmp_path / "run" / "predictions.jsonl").read_bytes() == first


def test_a_published_folder_about_other_images_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = published_folder(data, tmp_path / "02_one_shot", dict.fromkeys(KINDS, ""))
    other = small_set(tmp_path / "other", images=6)
    options = ["--replay", folder, "--out", tmp_path / "run", "--data"]
    assert evaluate(*options, other) == 2
    assert "is about 8 images, the metadata beside the questions has 6" in capsys.readouterr().err
    (folder / "10_dx_qa.json").unlink()
    assert evaluate(*options, data) == 2
    assert "has 9 output files" in capsys.readouterr().err
    (data.parent / "metadata.jsonl").unlink()
    assert evaluate(*options, data) == 2
    assert "metadata.jsonl" in capsys.readouterr().err


def test_a_broken_published_file_is_named(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = published_folder(data, tmp_path / "02_one_shot", dict.fromkeys(KINDS, ""))
    (folder / "03_left_qa.json").write_text('[{"dataset_index": 1}]')
    assert evaluate("--replay", folder, "--data", data, "--out", tmp_path / "run") == 2
    assert "03_left_qa.json" in capsys.readouterr().err
