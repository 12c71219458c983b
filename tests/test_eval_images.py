"""Pictures of every kind at evaluation: shown rightly, or named; with `--on-missing skip` counted as unanswered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_questions import SIZE, write_small_set

from data_gen.images import open_rgb, upright_size
from data_gen.records import RecordError, read_questions
from eval.engines import RandomEngine, Request, SkippingEngine
from eval.hf_engine import HfEngine
from eval.surds import main
from training.model import load_model, resolve_name

RED = (200, 30, 40)


def turned_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


@pytest.mark.parametrize(
    ("name", "mode", "settings"),
    [
        ("palette.png", "P", {}),
        ("grey.png", "L", {}),
        ("bits.png", "1", {}),
        ("clear.png", "RGBA", {}),
        ("print.jpg", "CMYK", {"quality": 95}),
        ("turned.jpg", "RGB", {"exif": turned_exif(), "quality": 95}),
    ],
)
def test_every_eight_bit_picture_is_shown_rightly(
    tmp_path: Path, name: str, mode: str, settings: dict[str, Any]
) -> None:
    picture = Image.new("RGB", (40, 20), RED)
    (picture.quantize(4) if mode == "P" else picture.convert(mode)).save(tmp_path / name, **settings)
    size = (20, 40) if name.startswith("turned") else (40, 20)
    picture = open_rgb(tmp_path / name, size)
    assert (picture.mode, picture.size, upright_size(tmp_path / name)) == ("RGB", size, size)
    if mode not in ("L", "1"):
        assert all(abs(a - b) < 40 for a, b in zip(picture.getpixel((9, 9)), RED, strict=True))


def broken(folder: Path) -> dict[str, Path]:
    """Files that are no picture a model can be shown, by what is wrong with them."""
    whole = Image.effect_noise(SIZE, 60).convert("RGB")
    paths = {kind: folder / f"{kind}.png" for kind in ("missing", "deep", "cut", "text", "empty")}
    Image.new("I;16", SIZE).save(paths["deep"])
    whole.save(paths["cut"])
    paths["cut"].write_bytes(paths["cut"].read_bytes()[:5000])
    paths["text"].write_text("no picture")
    paths["empty"].touch()
    return paths


@pytest.mark.parametrize("kind", ["deep", "cut", "text", "empty"])
def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = broken(tmp_path)[kind]
    reason = "convert it to 8 bits" if kind == "deep" else "cannot be read"
    with pytest.raises(RecordError, match=f"{path.name} .*{reason}"):
        list(HfEngine(load_model("tiny"), 2).replies([Request("a", "?", (path,), (SIZE,))]))


def test_questions_about_pictures_that_cannot_be_shown_stay_unanswered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = tmp_path / "good.png"
    Image.new("RGB", SIZE).save(good)
    requests = [Request(kind, "?", (path,), (SIZE,), ("Yes",)) for kind, path in broken(tmp_path).items()]
    requests += [Request("good", "?", (good,), (SIZE,), ("Yes",)), Request("both", "?", (good, requests[2].images[0]),
                 (SIZE, SIZE), ("Yes",))]  # fmt: skip
    replies = {reply.id: reply.output for reply in SkippingEngine(RandomEngine()).replies(requests)}
    assert replies == {request.id: "" for request in requests} | {"good": "<answer>Yes</answer>"}
    assert "5 of 6 images cannot be shown; the 6 questions about them count as unanswered. The first: no image" in (
        capsys.readouterr().err
    )
    assert {reply.id for reply in SkippingEngine(RandomEngine()).replies(requests, {"cut", "good"})} == (
        replies.keys() - {"cut", "good"}
    )


def test_a_picture_of_another_size_is_never_skipped(tmp_path: Path) -> None:
    Image.new("RGB", (30, 30)).save(tmp_path / "other.png")
    with pytest.raises(RecordError, match="is 30x30 pixels, its record says 160x96"):
        list(SkippingEngine(RandomEngine()).replies([Request("a", "?", (tmp_path / "other.png",), (SIZE,))]))


def test_a_missing_picture_ends_the_run_or_is_skipped_as_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_small_set(tmp_path / "data", images=4)
    questions = read_questions(data)
    gone = tmp_path / "data" / "001.png"
    gone.unlink()
    options = ["--data", str(data), "--ckpt", "tiny", "--max-new-tokens", "4", "--out", str(tmp_path / "run")]
    assert main(options) == 2
    assert "image 001.png is missing" in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert main([*options, "--on-missing", "skip"]) == 0
    assert "1 of 4 images cannot be shown" in capsys.readouterr().err
    rows = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [question.id for question in questions]
    for row, question in zip(rows, questions, strict=True):
        unanswered = question.image == gone.name
        assert (row["output"] == "", "no_answer" in row["reasons"]) == (unanswered, True)
        assert row["score"]["strict"] == 0


@pytest.mark.parametrize("size", [(2000, 12), (12, 2000), (2800, 12), (1, 201)])
def test_a_picture_of_extreme_shape_is_shown_or_refused_by_name(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "strip.png"
    Image.new("RGB", size).save(path)
    replies = HfEngine(load_model("tiny"), 2).replies([Request("a", "?", (path,), (size,))])
    if max(size) == 2000:
        assert [reply.id for reply in replies] == ["a"]
    else:
        with pytest.raises(
            RecordError, match=r"strip\.png is \d+x\d+ pixels, longer than 200 times its width; crop it"
        ):
            list(replies)


def test_a_checkpoint_without_its_processor_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_small_set(tmp_path / "data", images=2)
    bare = tmp_path / "bare"
    shutil.copytree(resolve_name("tiny"), bare)
    for part in ("processor_config.json", "tokenizer.json"):
        kept = (bare / part).read_bytes()
        (bare / part).unlink()
        assert main(["--data", str(data), "--ckpt", str(bare), "--out", str(tmp_path / "run")]) == 2
        assert f"the checkpoint {bare} cannot be loaded" in capsys.readouterr().err
        (bare / part).write_bytes(kept)
    assert not (tmp_path / "run").exists()


def test_an_unknown_engine_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--engine", "sglang"])
    told = capsys.readouterr().err
    assert error.value.code == 2 and all(f"'{name}'" in told for name in ("hf", "vllm", "openai", "random", "replay"))
