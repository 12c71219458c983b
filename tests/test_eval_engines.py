"""Engines: batches, images, and the tiny model from question to reply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from small_questions import SIZE, write_small_set

from data_gen.images import open_rgb
from data_gen.prompts import prompt_text
from data_gen.records import RecordError, read_questions
from eval.engines import Request, windows
from eval.hf_engine import HfEngine, cut_at_end
from eval.surds import main
from rewards.boxes import CoordinateFrame

FRAME = CoordinateFrame("original")


def small_requests(folder: Path) -> list[Request]:
    data = write_small_set(folder, images=4)
    return [
        Request(
            question.id,
            prompt_text(question.task, question.question, question.options, FRAME, SIZE),
            (folder / question.image,),
            (SIZE,),
            question.options,
            SIZE,
        )
        for question in read_questions(data)
    ]


def test_windows_hold_every_request_once_and_keep_an_image_together(tmp_path: Path) -> None:
    requests = small_requests(tmp_path)
    cut = list(windows(requests, batch_size=1))
    assert sorted(request.id for window in cut for request in window) == sorted(request.id for request in requests)
    assert all([len(r.prompt) for r in window] == sorted(len(r.prompt) for r in window) for window in cut)
    seen = [dict.fromkeys(request.images for request in window) for window in cut]
    assert sum(map(len, seen)) <= len({request.images for request in requests}) + len(cut) - 1


def test_ids_end_before_the_first_end_token() -> None:
    assert cut_at_end([5, 6, 2, 7, 2], {2}) == [5, 6]
    assert cut_at_end([5, 6], {2}) == [5, 6]


def test_an_image_of_another_size_or_no_image_is_named(tmp_path: Path) -> None:
    Image.new("P", (8, 4)).save(tmp_path / "palette.png")
    assert open_rgb(tmp_path / "palette.png", (8, 4)).mode == "RGB"
    with pytest.raises(RecordError, match=r"palette.png is 8x4 pixels"):
        open_rgb(tmp_path / "palette.png", (16, 9))
    whole = tmp_path / "whole.jpg"
    Image.effect_noise((64, 64), 50).convert("RGB").save(whole)
    (tmp_path / "cut.jpg").write_bytes(whole.read_bytes()[:1000])
    (tmp_path / "text.jpg").write_text("no image")
    for name in ("cut.jpg", "text.jpg"):
        with pytest.raises(RecordError, match=name):
            open_rgb(tmp_path / name, (64, 64))


def test_the_tiny_model_answers_alike_alone_in_batches_and_resumed(tmp_path: Path) -> None:
    from training.model import load_model

    requests = small_requests(tmp_path)[:6]
    loaded = load_model("tiny")
    one_by_one = {reply.id: reply for reply in HfEngine(loaded, 12, batch_size=1).replies(requests)}
    engine = HfEngine(loaded, 12, batch_size=4)
    together = {reply.id: reply for reply in engine.replies(requests)}
    assert together == one_by_one
    assert set(together) == {request.id for request in requests}
    assert all(0 <= reply.tokens <= 12 for reply in together.values())
    done = set(list(together)[:3])
    assert {reply.id for reply in engine.replies(requests, done)} == set(together) - done


def test_the_tiny_model_is_scored_from_the_command_line_and_says_it_is_tiny(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_small_set(tmp_path / "data", images=4)
    options = ["--data", str(data), "--ckpt", "tiny", "--limit", "1", "--max-new-tokens", "8"]
    assert main([*options, "--batch-size", "10", "--out", str(tmp_path / "run")]) == 0
    assert "! tiny model" in capsys.readouterr().out
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["tiny"], facts["frame"]["kind"], facts["label"]) == (True, "resized", "tiny")
    rows = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 10 and all(0 <= row["tokens"] <= 8 for row in rows)
