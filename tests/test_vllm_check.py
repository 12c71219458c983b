"""What GRPO hands to vLLM, and what it checks first; a stand-in has its place, launch/test_vllm.sh has the real one.

The stand-in makes of one image token as many as an image needs under its own pixel budget, as vLLM does.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_questions import write_small_set
from trl.data_utils import prepare_multimodal_messages
from vllm_weights import compare_weights, names_in_policy, plain_weights

from data_gen.command_line import UsageError
from data_gen.records import read_questions
from rewards.boxes import CoordinateFrame
from training.arguments import ModelArguments
from training.data import grpo_rows, to_dataset
from training.grpo import main
from training.model import LoadedModel, load_model
from training.processor import shown_images
from training.rollouts.vllm_check import ImageTokens, check_image_tokens, one_pad_per_image, require_vllm, rows_to_check
from training.rollouts.vllm_rollouts import VllmRollouts

PAD = 9


@pytest.mark.parametrize(
    ("ids", "cut"),
    [
        ([1, PAD, PAD, PAD, 2], [1, PAD, 2]),
        ([1, PAD, 2, PAD, PAD, 3, PAD, PAD], [1, PAD, 2, PAD, 3, PAD]),
        ([PAD, PAD], [PAD]),
        ([1, 1, 1, 2], [1, 1, 1, 2]),
        ([], []),
    ],
)
def test_every_run_of_image_tokens_is_cut_to_one(ids: list[int], cut: list[int]) -> None:
    assert one_pad_per_image(ids, PAD) == cut


def test_the_first_image_of_each_size_is_counted_and_of_many_sizes_the_ends_too() -> None:
    assert rows_to_check([(16, 9), (4, 3), (16, 9), (4, 3), (8, 8)]) == [1, 4, 0]
    many = [(width, 10) for width in range(100, 10, -1)]
    chosen = [many[place] for place in rows_to_check(many)]
    assert len(chosen) == 8 and chosen == sorted(chosen) and (chosen[0], chosen[-1]) == ((11, 10), (100, 10))
    assert len(set(rows_to_check(many, 3))) == 3


def test_a_difference_is_told_with_both_numbers_and_the_remedy() -> None:
    same = ImageTokens((1600, 900), 1222, 1222)
    check_image_tokens([same], "runs/sft", 1_003_520)
    with pytest.raises(UsageError) as told:
        check_image_tokens([same, ImageTokens((800, 600), 609, 300)], "runs/sft", 1_003_520)
    for word in ("800x600: 609 here, 300 in vLLM", "runs/sft", "preprocessor_config.json", "1003520", "--max-pixels"):
        assert word in str(told.value)
    assert "1222" not in str(told.value)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_run_ends_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_small_set(tmp_path / "data", images=2)
    with pytest.raises(SystemExit) as ended:
        main(["--use_vllm", "true", "--model", "tiny", "--data", str(data), "--out", str(tmp_path / "run")])
    assert ended.value.code == 2 and not (tmp_path / "run").exists()
    assert 'pip install -e ".[vllm]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "use_cpu", "model", "refused"),
    [
        ("colocate", True, ModelArguments(), None),
        ("server", False, ModelArguments(), None),
        ("server", True, ModelArguments(), "needs a GPU; take --vllm_mode colocate"),
        ("colocate", False, ModelArguments(use_peft=True), None),
        ("colocate", False, ModelArguments(use_peft=True, dtype="bfloat16"), "take --dtype float32"),
        ("colocate", False, ModelArguments(dtype="bfloat16"), None),
    ],
)
def test_what_vllm_cannot_do_is_refused(
    mode: str, use_cpu: bool, model: ModelArguments, refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_vllm(SimpleNamespace(use_vllm=False), model)  # vLLM need not be there
    monkeypatch.setattr("training.rollouts.vllm_check.find_spec", lambda name: object())
    with pytest.raises(UsageError, match=refused) if refused else nullcontext():
        require_vllm(SimpleNamespace(use_vllm=True, vllm_mode=mode, use_cpu=use_cpu), model)


class StandIn:
    """TRL's handle of vLLM, and of a server, with a pixel budget of its own."""

    def __init__(self, image_token_id: int, max_pixels: int) -> None:
        self.pad, self.frame = image_token_id, CoordinateFrame("resized", 28 * 28, max_pixels)
        self.max_completion_length = 24
        self.calls: list[tuple[Any, ...]] = []
        reset = SimpleNamespace(reset_encoder_cache=lambda: self.calls.append(("forget",)))
        self.llm = SimpleNamespace(llm_engine=reset)
        self.vllm_client = self
        self.base_url = "http://server"
        self.session = self

    def generate(self, prompts: list[list[int]], images: list[list[Any]], num_generations: int) -> tuple[Any, ...]:
        self.calls.append(("generate", self.max_completion_length))
        return [self._expanded(ids, row) for ids, row in zip(prompts, images, strict=True)], [], [], []

    def _expanded(self, ids: list[int], images: list[Any]) -> list[int]:
        left = iter(images)
        return [token for one in ids for token in ([one] * (self._tokens(next(left)) if one == self.pad else 1))]

    def _tokens(self, image: Any) -> int:
        width, height = self.frame.size(image.size)
        return width * height // 28**2

    def image_features(self, images: list[list[Any]]) -> list[dict[str, Any]]:
        lengths = [[{"offset": 0, "length": self._tokens(image)} for image in row] for row in images]
        return [{"mm_placeholders": {"image": row}} for row in lengths]

    def post(self, url: str) -> Any:
        self.calls.append(("post", url))
        return SimpleNamespace(raise_for_status=lambda: None)


class PlainTrainer:
    """As much of TRL's trainer as the mix-in sees."""

    def __init__(self, loaded: LoadedModel, data: Path, mode: str, engine: StandIn) -> None:
        rows = grpo_rows(read_questions(data), data.parent, loaded.frame)
        self.use_vllm, self.vllm_mode, self.vllm_generation = mode != "none", mode, engine
        self.model, self.processing_class = loaded.model, loaded.processor
        self.train_dataset = to_dataset(rows)
        self.settings = SimpleNamespace(frame=loaded.frame)
        self.accelerator = SimpleNamespace(is_main_process=True)
        self.state, self._last_loaded_step = SimpleNamespace(global_step=0), -1

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[Any, ...]:
        processor: Any = self.processing_class
        told = processor.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True, return_dict=True)
        return told["input_ids"], [[prompt[0]["content"][0]["image"]] for prompt in prompts], {}

    def _generate_single_turn(self, prompt_ids: Any, images: Any, *_: Any) -> tuple[Any, Any]:
        self._last_loaded_step = self.state.global_step
        return prompt_ids, None


class Trainer(VllmRollouts, PlainTrainer):
    """The mix-in on it."""


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model("tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_set(tmp_path_factory.mktemp("small"), images=4)


def make_trainer(loaded: LoadedModel, data: Path, mode: str, max_pixels: int | None = None) -> tuple[Any, StandIn]:
    engine = StandIn(loaded.model.config.image_token_id, max_pixels or loaded.frame.max_pixels)
    return Trainer(loaded, data, mode, engine), engine


def one_turn(trainer: Any) -> tuple[list[list[int]], list[list[int]]]:
    """The prompt of the first row as the update has it, and as it goes to vLLM."""
    row = trainer.train_dataset[0]
    ids, images, _ = trainer._tokenize_prompts([prepare_multimodal_messages(row["prompt"], images=row["images"])])
    given, _ = trainer._generate_single_turn(ids, [shown_images(trainer.processing_class, images[0])], {}, 4)
    return [list(row) for row in ids], given


def test_colocated_vllm_gets_one_image_token_each_is_counted_once_and_forgets_images_after_every_step(
    loaded: LoadedModel, data: Path
) -> None:
    trainer, engine = make_trainer(loaded, data, "colocate")
    update, given = one_turn(trainer)
    assert given == [one_pad_per_image(update[0], engine.pad)] and given != update
    assert engine.calls == [("generate", 1), ("forget",)] and engine.max_completion_length == 24
    one_turn(trainer)  # the same step: vLLM keeps what it has encoded
    assert len(engine.calls) == 2
    trainer.state.global_step = 1
    one_turn(trainer)
    assert engine.calls[2:] == [("forget",)]


def test_a_server_gets_whole_runs_of_image_tokens(loaded: LoadedModel, data: Path) -> None:
    trainer, engine = make_trainer(loaded, data, "server")
    update, given = one_turn(trainer)
    assert given == update
    assert engine.calls == [("post", "http://server/reset_encoder_cache")]


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_another_pixel_budget_stops_the_run_before_its_first_completion(
    mode: str, loaded: LoadedModel, data: Path
) -> None:
    trainer, engine = make_trainer(loaded, data, mode, max_pixels=28 * 28 * 10)
    with pytest.raises(UsageError, match=r"160x96: 18 here, \d in vLLM"):
        one_turn(trainer)
    assert trainer._last_loaded_step == -1 and engine.max_completion_length == 24


def test_without_vllm_prompts_go_on_as_they_are(loaded: LoadedModel, data: Path) -> None:
    trainer, engine = make_trainer(loaded, data, "none")
    update, given = one_turn(trainer)
    assert [list(row) for row in given] == update and not engine.calls


def test_the_comparison_of_weights_sees_what_differs(loaded: LoadedModel) -> None:
    policy = plain_weights(loaded.model)
    engine = in_vllm(policy)
    assert compare_weights(policy, engine) == len(policy)
    for name in ("language_model.model.layers.1.self_attn.qkv_proj.weight", "visual.merger.mlp.2.bias"):
        changed = engine | {name: engine[name].clone()}
        changed[name].view(-1)[-1] += 1
        with pytest.raises(AssertionError, match=name):
            compare_weights(policy, changed)
        with pytest.raises(AssertionError, match="not in vLLM"):
            compare_weights(policy, {key: weight for key, weight in engine.items() if key != name})


def in_vllm(policy: dict[str, Any]) -> dict[str, Any]:
    """The weights under vLLM's names, q, k and v of a layer in one, and gate and up."""
    import torch

    held: dict[str, Any] = {}
    for name in policy:
        for part, fused in (("q", "qkv"), ("k", ""), ("v", ""), ("gate", "gate_up"), ("up", "")):
            if f".{part}_proj." in name:
                name = name.replace(f".{part}_proj.", f".{fused}_proj.") if fused else ""
        name = name.replace("model.language_model.", "language_model.model.").replace("model.visual.", "visual.")
        if name:
            held[name] = torch.cat([policy[part] for part in names_in_policy(name)])
    return held
