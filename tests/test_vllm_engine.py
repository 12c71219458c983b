"""The engine `vllm`, with a stand-in for vLLM: what it is given, how its outputs are read, what is refused.

That the real one gives the tokens of `hf` is checked by hand, as it needs an environment of its own.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sharp_model import questions_about, write_noise
from small_questions import write_small_set

import eval.vllm_engine
from data_gen.command_line import UsageError
from data_gen.images import open_rgb
from eval.decoding import draw_seed, sampled
from eval.surds import main
from eval.vllm_engine import VllmEngine, read_checkpoint
from eval.vllm_parallel import gpu_shares
from training.model import LoadedModel, load_model

SIZES = [(400, 300), (160, 96)]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model("tiny")


class StandIn:
    """Writes the number of images and an end token, or runs into the limit where the prompt is about a truck."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.calls: list[list[dict[str, Any]]] = []
        self.sampling: list[Any] = []

    def generate(self, prompts: list[dict[str, Any]], sampling: list[Any], use_tqdm: bool) -> list[Any]:
        assert len(sampling) == len(prompts) and not use_tqdm
        self.calls.append(prompts)
        self.sampling += sampling
        return [SimpleNamespace(outputs=[self._choice(prompt)]) for prompt in prompts]

    def _choice(self, prompt: dict[str, Any]) -> Any:
        ids = self.tokenizer(f"<answer>{len(prompt['multi_modal_data']['image'])}</answer>")["input_ids"]
        ended = "truck" not in prompt["prompt"]
        return SimpleNamespace(
            token_ids=[*ids, self.tokenizer.eos_token_id] if ended else ids, finish_reason="stop" if ended else "length"
        )


@pytest.fixture
def stand_in(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = ModuleType("vllm")
    module.SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    return StandIn(loaded.processor.tokenizer)  # type: ignore[attr-defined]


def test_questions_come_image_by_image_with_the_chat_and_pixels_of_hf(
    loaded: LoadedModel, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval.vllm_engine, "CHUNK", 4)
    paths = write_noise(tmp_path, SIZES)
    first, second = (questions_about([p], [s], p.stem, 3) for p, s in zip(paths, SIZES, strict=True))
    both = questions_about(paths, SIZES, "both", 2)
    mixed = [request for three in zip(first, second, strict=True) for request in three] + both
    engine = VllmEngine(stand_in, loaded.processor, loaded.frame, 16)
    replies = {reply.id: reply for reply in engine.replies(mixed, {first[1].id})}
    assert replies.keys() == {request.id for request in mixed} - {first[1].id}
    assert [len(call) for call in stand_in.calls] == [4, 3]
    assert all(vars(sampling) == {"temperature": 0, "max_tokens": 16} for sampling in stand_in.sampling)
    asked = [prompt for call in stand_in.calls for prompt in call]
    assert [len(prompt["multi_modal_data"]["image"]) for prompt in asked] == [1] * 5 + [2] * 2
    assert all(prompt["prompt"].count("<|image_pad|>") == len(prompt["multi_modal_data"]["image"]) for prompt in asked)
    assert {replies[request.id].output for request in both} == {"<answer>2</answer>"}
    whole = len(loaded.processor.tokenizer("<answer>1</answer>")["input_ids"])  # type: ignore[attr-defined]
    assert {reply.tokens for reply in replies.values()} == {whole}
    prepare = loaded.processor.image_processor  # type: ignore[attr-defined]
    for shown, path, size in zip(asked[-1]["multi_modal_data"]["image"], paths, SIZES, strict=True):
        ours, theirs = (prepare(images=[i], return_tensors="np")["pixel_values"] for i in (shown, open_rgb(path, size)))
        assert np.array_equal(ours, theirs)


def test_samples_have_seeds_of_their_own_and_nothing_of_the_checkpoints_settings(
    loaded: LoadedModel, stand_in: StandIn, tmp_path: Path
) -> None:
    asked = sampled(questions_about(write_noise(tmp_path, SIZES[:1]), SIZES[:1], "one", 2), 3)
    replies = list(VllmEngine(stand_in, loaded.processor, loaded.frame, 16, 0.7, seed=5).replies(asked))
    assert [reply.id for reply in replies] == [request.id for request in asked]
    plain = {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "max_tokens": 16}
    assert [vars(item) for item in stand_in.sampling] == [plain | {"seed": draw_seed(5, r.id)} for r in asked]
    assert len({sampling.seed for sampling in stand_in.sampling}) == 6


def test_gpus_are_dealt_out_to_the_copies() -> None:
    assert gpu_shares(4, 2, None) == ["0,1", "2,3", "4,5", "6,7"]
    assert gpu_shares(2, 1, "5,7") == ["5", "7"]
    with pytest.raises(UsageError, match="needs 4 GPUs, CUDA_VISIBLE_DEVICES names 5,7"):
        gpu_shares(2, 2, "5,7")


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_command_that_installs_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_small_set(tmp_path / "data", images=2)
    assert main(["--data", str(data), "--ckpt", "tiny", "--engine", "vllm", "--out", str(tmp_path / "run")]) == 2
    assert 'pip install -e ".[vllm]"' in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_adapters_folders_without_processor_and_budgets_above_it_are_refused(
    tmp_path: Path, loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoProcessor

    from training.model import resolve_name

    with pytest.raises(UsageError, match=r"the processor of .* cannot be loaded"):
        read_checkpoint(str(tmp_path), None, None)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"is a LoRA adapter; merge it first: python training/merge\.py"):
        read_checkpoint(str(tmp_path), None, None)
    monkeypatch.setattr(AutoProcessor, "from_pretrained", lambda path: loaded.processor)  # the stock one: torchvision
    tiny = resolve_name("tiny")
    assert read_checkpoint(tiny, None, None)[1:] == (loaded.frame, True)
    assert read_checkpoint(tiny, "original", 9000)[1].max_pixels == 9000
    with pytest.raises(UsageError, match=r"--max-pixels: the processor of .* allows 25088"):
        read_checkpoint(tiny, None, 30000)
