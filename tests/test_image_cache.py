"""Images of training: read as evaluation reads them, decoded and processed once, and never others."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from transformers import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from data_gen.images import open_rgb
from data_gen.records import RecordError, read_questions
from eval.engines import Request
from eval.hf_engine import _open, _processed, chat_text
from training import grpo, processor, sft
from training.bounded_cache import BoundedCache
from training.grpo_arguments import parse_grpo
from training.model import load_model
from training.processor import CachedImageProcessor, ImageOnlyProcessor
from training.rollouts.image_cache import DecodeOnce

BUDGET = {"shortest_edge": 28 * 28, "longest_edge": 224 * 112}


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def write_odd_files(folder: Path) -> dict[str, tuple[Path, tuple[int, int]]]:
    """Files of every kind, with the size they are shown in."""
    turned = Image.Exif()
    turned[0x0112] = 6
    kinds: dict[str, Callable[[Path], None]] = {
        "palette.png": lambda path: noise(160, 96).quantize(64).save(path),
        "transparent.png": lambda path: noise(160, 96).convert("RGBA").save(path),
        "gray.png": lambda path: noise(160, 96).convert("L").save(path),
        "bits.png": lambda path: noise(160, 96).convert("1").save(path),
        "cmyk.jpg": lambda path: noise(160, 96).convert("CMYK").save(path, quality=90),
        "turned.jpg": lambda path: noise(96, 160).save(path, quality=90, exif=turned),
        "large.jpg": lambda path: noise(800, 450).save(path, quality=90),
        "small.png": lambda path: noise(20, 30).save(path),
        "grid.png": lambda path: noise(196, 112).save(path),
    }
    sizes = {"large.jpg": (800, 450), "small.png": (20, 30), "grid.png": (196, 112)}
    for name, write in kinds.items():
        write(folder / name)
    return {name: (folder / name, sizes.get(name, (160, 96))) for name in kinds}


def test_pixels_are_those_of_the_stock_processor_and_of_evaluation(tmp_path: Path) -> None:
    files = write_odd_files(tmp_path)
    stock, own = Qwen2VLImageProcessorPil(size=BUDGET), CachedImageProcessor(size=BUDGET)
    loaded = load_model("tiny", max_pixels=BUDGET["longest_edge"])
    for name, (path, size) in files.items():
        expected = stock(images=[open_rgb(path, size)], return_tensors="pt")
        for _ in range(2):  # fresh, and from the cache
            got = own(images=[str(path)], return_tensors="pt")
            assert torch.equal(got["pixel_values"], expected["pixel_values"]), name
            assert torch.equal(got["image_grid_thw"], expected["image_grid_thw"]), name
        # Resizing what has its size already changes nothing: other processors get the same pixels.
        again = stock(images=[own.shown(str(path))], return_tensors="pt")
        assert torch.equal(again["pixel_values"], expected["pixel_values"]), name
        request = Request(name, "What is it?", (path,), (size,))
        text = chat_text(loaded.processor, request)
        evaluated = _processed(loaded, [text], [[_open([request])[path]]])
        trained = loaded.processor(text=[text], images=[[str(path)]], padding=True, return_tensors="pt")
        assert all(torch.equal(evaluated[part], trained[part]) for part in trained), name


def test_sixteen_bits_are_refused_as_in_evaluation(tmp_path: Path) -> None:
    Image.fromarray(np.full((96, 160), 40_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(RecordError, match="mode I;16; convert it to 8 bits"):
        CachedImageProcessor(size=BUDGET)(images=[str(tmp_path / "deep.png")])
    with pytest.raises(RecordError, match="cannot be read"):
        CachedImageProcessor(size=BUDGET)(images=[str(tmp_path / "none.png")])


def test_several_images_and_opened_ones_keep_their_order(tmp_path: Path) -> None:
    files = write_odd_files(tmp_path)
    paths = [str(path) for path, _ in files.values()]
    opened = [open_rgb(path, size) for path, size in files.values()]
    own, stock = CachedImageProcessor(size=BUDGET), Qwen2VLImageProcessorPil(size=BUDGET)
    expected = stock(images=opened, return_tensors="pt")
    mixed = [[path if index % 2 else image] for index, (path, image) in enumerate(zip(paths, opened, strict=True))]
    for images in (paths, [paths[:4], paths[4:]], mixed):
        got = own(images=images, return_tensors="pt")
        assert torch.equal(got["pixel_values"], expected["pixel_values"])


def test_a_setting_of_one_call_is_none_of_the_next(tmp_path: Path) -> None:
    path, _ = write_odd_files(tmp_path)["large.jpg"]
    own = CachedImageProcessor(size=BUDGET)
    small = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    grids = [
        own(images=[str(path)], **told, return_tensors="pt")["image_grid_thw"].tolist()[0]
        for told in ({}, {"size": small}, {}, {"do_normalize": False})
    ]
    assert grids[0] == grids[2] == grids[3] != grids[1]
    plain = own(images=[str(path)], do_normalize=False)["pixel_values"]
    assert plain.min() >= 0 and own(images=[str(path)])["pixel_values"].min() < 0
    own.size = small  # as a new pixel budget does
    assert own(images=[str(path)], return_tensors="pt")["image_grid_thw"].tolist()[0] == grids[1]


def test_the_cache_holds_what_was_used_last_within_its_bytes() -> None:
    cache: BoundedCache[str] = BoundedCache(10)
    for key in "abc":
        cache.put(key, key.upper(), 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), cache.held_bytes) == (None, "B", "C", 8)
    cache.get("b")
    cache.put("d", "D", 4)
    assert (cache.get("b"), cache.get("c"), cache.get("d")) == ("B", None, "D")
    cache.put("b", "again", 6)
    assert (cache.get("b"), cache.held_bytes, len(cache)) == ("again", 10, 2)
    cache.put("whale", "W", 11)
    assert cache.get("whale") is None and cache.held_bytes == 0
    for copied in (deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert (copied.most_bytes, len(copied)) == (10, 0)


def test_nothing_read_is_saved_with_the_processor(tmp_path: Path) -> None:
    path, _ = write_odd_files(tmp_path)["large.jpg"]
    loaded = load_model("tiny")
    loaded.processor(text=["<|image_pad|>"], images=[[str(path)]])
    loaded.processor.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "processor_config.json").read_text())
    assert saved["image_processor"]["image_processor_type"] == "Qwen2VLImageProcessor"
    assert not any("patches" in name or "resized" in name for name in saved["image_processor"])
    assert isinstance(deepcopy(loaded.processor), ImageOnlyProcessor)


@pytest.fixture()
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often Pillow decodes each file."""
    seen: Counter[str] = Counter()
    load = ImageFile.ImageFile.load

    def counted(image: ImageFile.ImageFile) -> Any:
        if image.tile and image.filename:
            seen[Path(image.filename).name] += 1
        return load(image)

    monkeypatch.setattr(ImageFile.ImageFile, "load", counted)
    return seen


FAST = ["--model", "tiny", "--gradient_checkpointing", "false", "--save_strategy", "no", "--learning_rate", "1e-3"]
GRPO = [
    *FAST, "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "4", "--num_generations", "4",
    "--max_completion_length", "8", "--max_steps", "3", "--rewards", "format",
]  # fmt: skip


def train_grpo(traces: Path, out: Path, *options: str) -> tuple[list[float], Any]:
    """Losses of three steps, which are three generation batches of eight prompts each, and the trainer."""
    questions = traces.with_name("questions.jsonl")
    told = parse_grpo(["--data", str(questions), "--out", str(out), *GRPO, *options])
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, questions.parent)
    trainer.reward_funcs[0] = lambda completions, **_: [float(index % 3) for index, _ in enumerate(completions)]
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], trainer


def test_a_real_run_decodes_each_image_once_with_the_losses_of_the_stock_processor(
    traces: Path, tmp_path: Path, decoded: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[str] = Counter()
    features = CachedImageProcessor._features

    def counted(self: CachedImageProcessor, image: Any, settings: dict[str, Any]) -> Any:
        made[Path(image).name] += 1
        return features(self, image, settings)

    monkeypatch.setattr(CachedImageProcessor, "_features", counted)
    patchify = Counter[str]()
    stock_patchify = Qwen2VLImageProcessorPil.patchify

    def cut(self: Any, image: Any, *args: Any, **kwargs: Any) -> Any:
        patchify["images"] += 1
        return stock_patchify(self, image, *args, **kwargs)

    monkeypatch.setattr(Qwen2VLImageProcessorPil, "patchify", cut)
    losses, _ = train_grpo(traces, tmp_path / "cached")
    # 3 batches of 8 prompts about 12 images: TRL asks for each image 2 x 4 times a prompt.
    assert sum(made.values()) == 3 * 8 * 4 * 2
    assert set(decoded.values()) == {1} and decoded.keys() == made.keys()
    assert patchify["images"] == len(made)
    # Control: without our processor every asking decodes, and the losses are the same.
    decoded.clear()
    monkeypatch.setattr(processor, "CachedImageProcessor", Qwen2VLImageProcessorPil)
    monkeypatch.setattr(ImageOnlyProcessor, "_process_images", Qwen2_5_VLProcessor._process_images)
    stock, _ = train_grpo(traces, tmp_path / "stock")
    assert stock == losses and len(set(losses)) == 3
    assert sum(decoded.values()) == 3 * 8 * 4 * 2


def test_one_generation_batch_decodes_its_distinct_images(traces: Path, tmp_path: Path, decoded: Counter[str]) -> None:
    _, trainer = train_grpo(traces, tmp_path, "--max_steps", "1", "--num_iterations", "2")
    shown = {Path(message["content"][0]["image"]).name for (message,) in trainer._logs["prompt"]}
    assert decoded == Counter(dict.fromkeys(shown, 1)) and len(shown) > 2


def test_an_image_of_another_size_than_its_row_says_stops_the_run(traces: Path, tmp_path: Path) -> None:
    for path in traces.parent.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in tmp_path.glob("*.png"):
        Image.open(path).resize((80, 48)).save(path)
    with pytest.raises(RecordError, match="is 80x48 pixels, its record says 160x96"):
        train_grpo(tmp_path / "cot.jsonl", tmp_path / "run")


def test_evicted_images_are_read_again_and_change_nothing(
    traces: Path, tmp_path: Path, decoded: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, _ = train_grpo(traces, tmp_path / "kept")
    decoded.clear()
    monkeypatch.setattr(processor, "RESIZED_BYTES", 100_000)
    monkeypatch.setattr(processor, "PATCHES_BYTES", 500_000)
    again, trainer = train_grpo(traces, tmp_path / "small")
    assert again == losses and max(decoded.values()) > 1
    own = trainer.processing_class.image_processor
    assert own._resized.held_bytes <= 100_000 and own._patches.held_bytes <= 500_000


def test_sft_reads_through_the_same_cache(traces: Path, tmp_path: Path, decoded: Counter[str]) -> None:
    options = ["--max_steps", "6", "--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "1"]
    sft.main(["--data", str(traces), "--out", str(tmp_path / "run"), *FAST, *options])
    # The check at the start decodes a PNG too: its header does not say how it is turned.
    assert len(decoded) > 6 and set(decoded.values()) == {2}


def test_vllm_is_handed_opened_images_of_the_models_grid(traces: Path) -> None:
    class Engine:
        def _generate_single_turn(self, prompt_ids: Any, images: Any, *_: Any) -> Any:
            return images, None

    class Both(DecodeOnce, Engine):
        pass

    trainer: Any = Both.__new__(Both)
    loaded = load_model("tiny", max_pixels=112 * 56)
    trainer.use_vllm, trainer.processing_class = True, loaded.processor
    path = str(traces.with_name("003.png"))
    ((first,), nothing, (second,)), _ = trainer._generate_single_turn([[1]] * 3, [[path], None, [path]], {}, 1)
    assert nothing is None and first is second
    assert (first.mode, first.size) == ("RGB", (84, 56))
    trainer.use_vllm = False
    assert trainer._generate_single_turn([[1]], [[path]], {}, 1)[0] == [[path]]
    # Other families' processors are asked nothing: theirs resize as they do in training.
    trainer.use_vllm, trainer.processing_class = True, SimpleNamespace(image_processor=object())
    (((whole,),), _) = trainer._generate_single_turn([[1]], [[path]], {}, 1)
    assert whole.size == (160, 96)
