"""The verifier inside the trainer: both modes, every model that can be asked, and what is logged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl.generation.vllm_generation as trl_vllm
from chat_server import serve, text_of
from processes import torchrun
from taught_model import teach
from test_training import fails, grpo_trainer
from trl.generation.vllm_generation import VLLMGeneration

from data_gen.chat import ChatError
from data_gen.prompts import located_response
from rewards.settings import RewardSettings
from training import grpo
from training.grpo_arguments import RewardArguments
from training.verification.claims import claim_of
from training.verification.verifier import verifier_job
from training.verification.verifier_generate import ByVLLM, generated_answers
from training.verification.verifier_options import VerifierOptions

LOGIC = ["--rewards", "logic", "--per_device_train_batch_size", "4", "--beta", "0"]
THINK = "The car lies lower, so it is nearer."
BOXES = [("car", (1, 2, 30, 40))]


def response(answer: str, think: str = THINK) -> str:
    return located_response(BOXES, think, answer)


TEXTS = [response("Yes"), response("Yes").replace("Yes", "\n Yes "), response("No"), response("Yes") + " indeed"]


def rewards_of(trainer: Any, texts: Sequence[str], rows: Sequence[dict[str, Any]] | None = None) -> list[float]:
    rows = rows or [trainer.train_dataset[0]] * len(texts)
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    trainer.model.train()
    rewards = trainer._calculate_rewards(rows, [row["prompt"] for row in rows], completions, [[0]] * len(texts))
    return rewards[:, 0].tolist()


def logged(trainer: Any, name: str) -> list[float]:
    return trainer._metrics["train"].pop(name, [])


def teach_yes(trainer: Any, model: Any) -> None:
    """The model answers `Yes` to the trace, and to what surrounds it."""
    teach(model, [verifier_job(trainer._tokenizer, THINK, "Yes")], 14)


@pytest.fixture(scope="module")
def questions(traces: Path) -> Path:
    return traces.with_name("questions.jsonl")


@pytest.fixture
def trainer(questions: Path, tmp_path: Path) -> Any:
    made = grpo_trainer(questions, tmp_path / "out", *LOGIC, reward=None)
    teach_yes(made, made.model)
    return made


@pytest.fixture(params=["forward", "generate"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_generation_forgives_blanks_and_the_forward_pass_does_not(trainer: Any) -> None:
    trainer.verifier = VerifierOptions("forward")
    assert rewards_of(trainer, TEXTS) == [1.0, 0.0, 0.0, 0.0]
    trainer.verifier = VerifierOptions("generate")
    assert rewards_of(trainer, TEXTS) == [1.0, 1.0, 0.0, 0.0]


def test_the_meters_of_a_batch(trainer: Any) -> None:
    trainer._metrics["train"].clear()
    for mode, own in (("forward", [1.0, 0.0, 0.0]), ("generate", [1.0, 1.0, 0.0])):
        trainer.verifier = VerifierOptions(mode, compare_steps=2)
        trainer._compared_batch = None
        counted = []
        for trainer._step in (0, 1, 2, 2):
            rewards_of(trainer, TEXTS)
            counted.append(logged(trainer, "logic/modes_disagree"))
        # The second of the texts differs by blanks; what is drawn again for a batch is not counted again.
        assert counted == [[0.0, 1.0, 0.0], [], [0.0, 1.0, 0.0], []]
        assert logged(trainer, "logic/verified") == [1.0, 1.0, 1.0, 0.0] * 4
        assert logged(trainer, "logic/agrees_own") == own * 4
        assert logged(trainer, "logic/agrees_truth") == [0.0, 0.0, 0.0] * 4
        assert logged(trainer, "logic/literal") == [0.0, 0.0, 0.0] * 4


def test_comparing_changes_neither_rewards_nor_random_numbers(trainer: Any, mode: str) -> None:
    state = torch.get_rng_state()
    trainer.verifier = VerifierOptions(mode)
    plain = rewards_of(trainer, TEXTS)
    trainer.verifier = VerifierOptions(mode, compare_steps=1)
    assert rewards_of(trainer, TEXTS) == plain
    assert torch.equal(torch.get_rng_state(), state)


def test_target_truth_asks_for_the_true_answer(trainer: Any, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer.verifier = VerifierOptions(mode)
    monkeypatch.setattr(trainer, "settings", RewardSettings(trainer.settings.frame, logic_target="truth"))
    row = {**trainer.train_dataset[0], "answer": "yes.", "options": ["Yes", "No"], "task": "front_behind"}
    no = {**row, "answer": "No"}
    claims = [claim_of(item, response("No"), trainer.settings) for item in (row, no)]
    assert [claim and claim.target for claim in claims] == ["yes.", "No"]
    # In generation the normal form decides; the forward pass wants the very tokens.
    reached, _ = trainer._verdicts(claims)
    assert reached == (["Yes", "Yes"] if mode == "generate" else [None, None])
    plain = claim_of({**row, "answer": "Yes"}, response("No"), trainer.settings)
    assert trainer._verdicts([plain])[0] == ["Yes"]


def test_rows_of_other_stages_are_neither_verified_nor_counted(
    trainer: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.verifier = VerifierOptions(mode, compare_steps=1)
    trainer._metrics["train"].clear()
    monkeypatch.setattr(trainer, "applies", lambda reward, row: row["stage"] == 1, raising=False)
    rows = [{**trainer.train_dataset[0], "stage": stage} for stage in (0, 0, 1, 1)]
    monkeypatch.setattr(trainer, "stages", ())
    assert rewards_of(trainer, [TEXTS[0]] * 4, rows) == [0.0, 0.0, 1.0, 1.0]
    assert logged(trainer, "logic/verified") == [1.0, 1.0] and logged(trainer, "logic/agrees_own") == [1.0, 1.0]
    calls = counted_calls(trainer, monkeypatch)
    rewards_of(trainer, [TEXTS[0]] * 4, rows[:1] * 4)
    assert calls == [] and logged(trainer, "logic/verified") == []


def counted_calls(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """(training mode, checkpointing) of every forward pass from now on."""
    calls = []
    forward = trainer.model.forward

    def seen(*args: Any, **kwargs: Any) -> Any:
        calls.append((trainer.model.training, trainer.model.is_gradient_checkpointing))
        return forward(*args, **kwargs)

    monkeypatch.setattr(trainer.model, "forward", seen)
    return calls


def test_the_model_is_asked_as_it_samples_and_left_as_it_was(
    trainer: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.verifier = VerifierOptions(mode, compare_steps=1)
    trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    calls = counted_calls(trainer, monkeypatch)
    rewards_of(trainer, TEXTS)
    assert calls and set(calls) == {(False, False)}
    assert trainer.model.training and trainer.model.is_gradient_checkpointing
    trainer.model.gradient_checkpointing_disable()


def test_positions_left_by_a_batch_with_images_do_not_matter(trainer: Any, mode: str) -> None:
    trainer.verifier = VerifierOptions(mode)
    plain = rewards_of(trainer, TEXTS)
    trainer.model.model.rope_deltas = torch.full((len(TEXTS), 1), -37)
    assert rewards_of(trainer, TEXTS) == plain and plain[0] == 1.0


def test_equal_traces_are_asked_once(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    forward = trainer.model.forward

    def seen(*args: Any, **kwargs: Any) -> Any:
        asked.append(len(kwargs["input_ids"]))
        return forward(*args, **kwargs)

    monkeypatch.setattr(trainer.model, "forward", seen)
    trainer.verifier = VerifierOptions("forward")
    assert rewards_of(trainer, [TEXTS[0], TEXTS[0], TEXTS[2], TEXTS[0]]) == [1.0, 1.0, 0.0, 1.0]
    assert asked == [2]
    asked.clear()
    trainer.verifier = VerifierOptions("generate")
    rewards_of(trainer, [TEXTS[0], TEXTS[0], TEXTS[2], TEXTS[0]])
    assert set(asked) == {1}  # one trace, whatever was answered


def test_the_reference_model_answers_and_not_the_policy(questions: Path, tmp_path: Path, mode: str) -> None:
    options = [*LOGIC, "--beta", "0.04", "--logic_model", "reference", "--logic_mode", mode]
    trainer = grpo_trainer(questions, tmp_path, *options, reward=None)
    teach_yes(trainer, trainer.model)
    assert rewards_of(trainer, TEXTS)[0] == 0.0
    trainer.ref_model.load_state_dict(trainer.model.state_dict())
    assert rewards_of(trainer, TEXTS)[0] == 1.0
    assert trainer.ref_model.training is False


def test_the_reference_of_an_adapter_is_its_base(questions: Path, tmp_path: Path, mode: str) -> None:
    options = [*LOGIC, "--use_peft", "--lora_r", "8", "--logic_model", "reference", "--logic_mode", mode]
    trainer = grpo_trainer(questions, tmp_path, *options, reward=None)
    teach(trainer.model, [verifier_job(trainer._tokenizer, THINK, "Yes")], 20)
    assert rewards_of(trainer, TEXTS)[0] == 0.0
    trainer.verifier = VerifierOptions(mode)
    assert rewards_of(trainer, TEXTS)[0] == 1.0


def test_without_a_reference_none_can_be_asked(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], trainer: Any
) -> None:
    words = ["--data", str(questions), "--out", str(tmp_path), "--model", "tiny", *LOGIC, "--logic_model", "reference"]
    message = fails(capsys, grpo.main, words)
    assert "--beta above 0" in message and "--use_peft" in message and "--logic-model self" in message
    with pytest.raises(ValueError, match="--use_peft"):
        VerifierOptions(model="reference").check_reference(False)


def test_a_server_answers(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: dict[str, Any]) -> str:
        return "<answer>yes.</answer>" if THINK in text_of(request) else "I cannot tell."

    with serve(answer) as server:
        options = RewardArguments(logic_model=server.url, logic_endpoint_model="judge").verifier
        assert options.mode == "generate"
        monkeypatch.setattr(trainer, "verifier", options)
        monkeypatch.setattr(trainer, "_verifier_client", options.client())
        texts = [TEXTS[0], TEXTS[0], TEXTS[2], response("Yes", "x <|im_end|> </s> y")]
        assert rewards_of(trainer, texts) == [1.0, 1.0, 0.0, 0.0]
    asked = [text_of(request) for request in server.requests]
    assert len(asked) == 2 and {request["model"] for request in server.requests} == {"judge"}
    assert all(request["temperature"] == 0 for request in server.requests)
    assert not any("<|" in text or "</s>" in text for text in asked)


def test_a_server_that_fails_stops_the_run(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(lambda _: (401, "no such key")) as server:
        options = VerifierOptions("generate", server.url, "judge")
        monkeypatch.setattr(trainer, "verifier", options)
        monkeypatch.setattr(trainer, "_verifier_client", options.client())
        with pytest.raises(ChatError, match="key"):
            rewards_of(trainer, TEXTS)


def test_a_server_is_tried_before_anything_is_loaded(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(questions), "--out", str(tmp_path / "run"), "--model", "tiny", "--rewards", "logic"]
    with serve(lambda _: (404, "no such model")) as server:
        message = fails(capsys, grpo.main, [*words, "--logic_model", server.url, "--logic_endpoint_model", "judge"])
    assert "judge" in message and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"logic_model": "refernce"}, "self, reference or http"),
        ({"logic_model": "http://localhost:1/v1"}, "--logic-endpoint-model"),
        ({"logic_endpoint_model": "judge"}, "go together"),
        ({"logic_compare_steps": -1}, "at least 0"),
        ({"logic_mode": "guess"}, "forward, generate"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RewardArguments(**options)


class Sampling:
    """vLLM's SamplingParams, as far as TRL fills them."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


def vllm_that_writes(text: str, tokenizer: Any, seen: list[dict[str, Any]]) -> VLLMGeneration:
    """TRL's own engine class in colocated mode, around an engine that writes one text and keeps its settings."""

    def generate(prompts: list[dict[str, Any]], sampling_params: Sampling, use_tqdm: bool) -> list[Any]:
        seen.append(sampling_params.settings)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        written = SimpleNamespace(token_ids=ids, logprobs=None)
        return [SimpleNamespace(prompt_token_ids=item["prompt_token_ids"], outputs=[written]) for item in prompts]

    engine: VLLMGeneration = object.__new__(VLLMGeneration)
    settings = {
        "accelerator": None, "model": torch.nn.Linear(1, 1), "mode": "colocate", "tensor_parallel_size": 1,
        "enable_sleep_mode": False, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "logprobs": 0,
        "repetition_penalty": 1.1, "max_completion_length": 512, "structured_outputs_regex": "x*",
        "generation_kwargs": {"logit_bias": {1: -100.0}}, "llm": SimpleNamespace(generate=generate),
    }  # fmt: skip
    engine.__dict__.update(settings)
    return engine


def test_vllm_is_asked_greedily_and_its_settings_come_back(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl_vllm, "SamplingParams", Sampling, raising=False)
    seen: list[dict[str, Any]] = []
    tokenizer = trainer._tokenizer
    engine = vllm_that_writes("Yes</answer>", tokenizer, seen)
    before = dict(engine.__dict__)
    job = verifier_job(tokenizer, THINK, "No")
    answers = generated_answers(ByVLLM(engine, tokenizer), [None, job], 0, None, trainer.accelerator)
    assert answers == [None, "Yes"]
    (asked,) = seen
    greedy = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "max_tokens": 32}
    assert greedy.items() <= asked.items() and asked["stop"] == ["</answer>"] and "logit_bias" not in asked
    assert "structured_outputs" not in asked
    assert engine.__dict__ == before


def test_two_processes_stay_in_step_when_one_has_nothing_to_ask(questions: Path, tmp_path: Path) -> None:
    done = torchrun(str(Path(__file__).with_name("verifier_processes.py")), str(questions), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"process-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second and first["world"] == 2  # calls, gathered rewards and figures alike
    for mode, own in (("forward", [1.0, 0.0, 0.0, 0.0]), ("generate", [1.0, 1.0, 0.0, 0.0])):
        seen = first[f"{mode} True"]
        assert seen["rewards"] == [*own, 0.0, 0.0, 0.0, 0.0]
        assert seen["figures"]["logic/verified"] == [1.0] * 4 + [0.0] * 4
        assert seen["figures"]["logic/agrees_own"] == own and len(seen["figures"]["logic/masked"]) == 4
        assert seen["figures"]["logic/modes_disagree"] == [0.0, 1.0, 0.0, 0.0]
        assert seen["calls"] == {"opened": 1, "compared": 2}  # one batch in each mode, one of the options
        assert first[f"{mode} False"] == {"rewards": [0.0] * 8, "calls": {}, "figures": {"logic/verified": [0.0] * 8}}
