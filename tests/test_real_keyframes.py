"""The whole chain on two real key frames: questions, traces, SFT, two GRPO steps, a score, and a picture to look at."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from chat_server import serve, text_of
from PIL import Image
from shared import need

from data_gen import build_cot, build_surds
from data_gen.draw import draw_marks, scene_marks
from data_gen.records import read_questions
from data_gen.scene_records import read_scenes
from eval import surds
from rewards.grading import TASKS
from training import grpo, sft

# The strict rules keep a few single-object images; these settings keep a pair too: a truck and a construction vehicle,
# both in the dark, where colours by pixels are unclear. A stub of a vision server names them as a person would.
LOOSE = ["--ambiguity", "objects", "--min-area-px", "1000", "--max-overlap", "0.9", "--min-lidar-points", "3"]
# 1600x900 becomes 420x224: 120 image tokens.
TRAINED = ["--model", "tiny", "--max_pixels", "100352", "--save_strategy", "no", "--gradient_checkpointing", "false"]


def as_a_person_would(request: dict[str, Any]) -> str:
    """The colours of the truck and the construction vehicle as they look in the picture; people wear grey shirts."""
    asked = text_of(request)
    return "orange" if "construction vehicle" in asked else "grey shirt" if "garment" in asked else "grey"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every stage by its entry point, as a user types them."""
    run = tmp_path_factory.mktemp("real")
    real = str(need("nuscenes_real2"))
    with serve(as_a_person_would) as server:
        described = ["--describer", "endpoint", "--endpoint", server.url, "--describer-model", "stub"]
        build_surds.main(["--nuscenes", real, *LOOSE, *described, "--out", str(run / "data")])
    questions = str(run / "data" / "questions.jsonl")
    assert build_cot.main(["--data", questions, "--out", str(run / "cot")]) == 0
    traces = str(run / "cot" / "cot.jsonl")
    sft.main(["--data", traces, "--out", str(run / "sft"), *TRAINED, "--max_steps", "2", "--logging_steps", "1"])
    trained = ["--data", questions, "--out", str(run / "grpo"), *TRAINED, "--model", str(run / "sft")]
    grpo.main([*trained, "--max_steps", "2", "--max_completion_length", "24"])
    asked = ["--data", questions, "--ckpt", str(run / "grpo"), "--max-new-tokens", "24", "--batch-size", "16"]
    assert surds.main([*asked, "--out", str(run / "eval")]) == 0
    return run


def test_every_task_is_asked_on_full_size_images(chain: Path) -> None:
    questions = read_questions(chain / "data" / "questions.jsonl")
    assert {question.task for question in questions} == set(TASKS)
    assert {question.image_size for question in questions} == {(1600, 900)}
    assert {question.source for question in questions} == {"real"}


def test_training_ran_and_wrote_what_it_saw(chain: Path) -> None:
    for stage, figure in (("sft", "loss"), ("grpo", "rewards/logic/mean")):
        log = json.loads((chain / stage / "trainer_state.json").read_text())["log_history"]
        assert [entry["step"] for entry in log if figure in entry] == [1, 2]
    frame = json.loads((chain / "grpo" / "frame.json").read_text())
    assert frame["kind"] == "resized" and frame["max_pixels"] == 100352


def test_the_score_covers_every_question(chain: Path) -> None:
    summary = json.loads((chain / "eval" / "summary.json").read_text())
    assert summary["source"] == "real" and set(summary["tasks"]) == set(TASKS)
    predictions = (chain / "eval" / "predictions.jsonl").read_text().splitlines()
    assert len(predictions) == len(read_questions(chain / "data" / "questions.jsonl"))


def test_a_picture_of_boxes_and_headings_is_kept(chain: Path) -> None:
    pictures = Path(os.environ.get("TEST_PICTURES", chain))
    for index, scene in enumerate(read_scenes(chain / "data" / "scenes.jsonl")):
        image = Image.open(need("nuscenes_real2") / scene.file_name)
        drawn = draw_marks(image, scene_marks(scene))
        assert drawn.size == (1600, 900) and drawn.tobytes() != image.convert("RGB").tobytes()
        drawn.save(pictures / f"real-{index}.png")
    assert list(pictures.glob("real-*.png"))
