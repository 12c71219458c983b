"""One pixel budget, `--max-pixels`: for the processor, the frame, the prompt, vLLM, the start line and checkpoints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from data_gen.records import read_questions
from rewards.boxes import CoordinateFrame
from training import grpo, sft
from training.data import describe_images, image_tokens, resized_size
from training.grpo_arguments import parse_grpo
from training.model import load_model
from training.processor import shown_images

# The images are 160x96 pixels; the tiny model's own budget of 224x112 shows them as 168x84, this one as 84x56.
BUDGET = 100 * 60
GRID, TOKENS = (84, 56), 6
FAST = ["--model", "tiny", "--max-pixels", str(BUDGET), "--gradient_checkpointing", "false", "--save_strategy", "no"]


@pytest.fixture(scope="module")
def trainer(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    questions = traces.with_name("questions.jsonl")
    out = str(tmp_path_factory.mktemp("run"))
    told = parse_grpo(["--data", str(questions), "--out", out, "--rewards", "format", *FAST])
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    return grpo.make_trainer(told, chosen, questions.parent)[0]


def test_the_processor_and_the_prompt_of_training(trainer: Any) -> None:
    row = trainer.train_dataset[0]
    prompt = [{"role": "user", "content": [{"type": "image", "image": row["images"][0]}, {"type": "text", "text": ""}]}]
    ids, _, fields = trainer._tokenize_prompts([prompt])
    assert fields["image_grid_thw"].tolist() == [[1, GRID[1] // 14, GRID[0] // 14]]
    assert ids[0].count(trainer.model.config.image_token_id) == TOKENS
    assert "84" in row["prompt"][0]["content"] and "56" in row["prompt"][0]["content"]
    # Control: the tiny model's own budget shows more.
    assert load_model("tiny").processor(text=["<|image_pad|>"], images=[row["images"]])["image_grid_thw"][0, 2] == 12


def test_the_frame_of_the_rewards(trainer: Any) -> None:
    assert trainer.settings.frame.max_pixels == BUDGET
    assert trainer.settings.frame.size((160, 96)) == GRID


def test_vllm_counts_the_same_tokens_whatever_its_own_budget_allows(trainer: Any) -> None:
    path = trainer.train_dataset[0]["images"][0]
    (image,) = shown_images(trainer.processing_class, [path])
    assert image.size == GRID
    theirs = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 1280 * 28 * 28})
    ours = trainer.processing_class.image_processor(images=[path], return_tensors="pt")
    handed = theirs(images=[image], return_tensors="pt")
    assert all((handed[name] == ours[name]).all() for name in handed)
    # Control: the file itself would be another grid there.
    assert theirs(images=[trainer_image(path)])["image_grid_thw"][0][2] != GRID[0] // 14


def trainer_image(path: str) -> Any:
    from PIL import Image

    return Image.open(path).convert("RGB")


def test_checkpoints_and_the_start_line(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max_steps", "1", "--save_strategy", "steps", "--save_steps", "1"]
    sft.main(["--data", str(traces), "--out", str(tmp_path / "run"), *FAST, *options])
    assert f"at most {BUDGET} pixels, {TOKENS} tokens per image (160x96 as 84x56)" in capsys.readouterr().out
    for folder in (tmp_path / "run", tmp_path / "run" / "checkpoint-1"):
        loaded = load_model(str(folder))
        assert loaded.frame.max_pixels == BUDGET and loaded.frame.size((160, 96)) == GRID
        assert json.loads((folder / "frame.json").read_text())["max_pixels"] == BUDGET
        saved = json.loads((folder / "processor_config.json").read_text())
        for half in ("image_processor", "video_processor"):
            assert saved[half]["size"]["longest_edge"] == BUDGET
        batch = loaded.processor(text=["<|image_pad|>"], images=[[str(traces.with_name("003.png"))]])
        assert list(batch["image_grid_thw"][0]) == [1, GRID[1] // 14, GRID[0] // 14]


def test_a_budget_below_one_cell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_grpo(["--max-pixels", "700"])
    assert stop.value.code == 2 and "at least one cell of 28x28" in capsys.readouterr().err


def test_tokens_are_told_for_the_sizes_of_the_data() -> None:
    frame = CoordinateFrame("thousand", max_pixels=1_003_520)
    assert resized_size(frame, (1600, 900)) == (1316, 728)
    assert image_tokens(frame, (1600, 900)) == 1222 == 47 * 26
    assert describe_images(frame, {(1600, 900)}) == "1222 tokens per image (1600x900 as 1316x728)"
    told = describe_images(frame, {(1600, 900), (160, 96), (640, 480)})
    assert re.fullmatch(r"18/391/1222 tokens per image \(min/median/max of 3 sizes; 640x480 as 644x476\)", told)
