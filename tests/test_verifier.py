"""The self-verifier: one forward pass says what greedy decoding would write."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from data_gen.prompts import located_response
from training.model import LoadedModel, load_model
from training.verifier import CLOSE, VerifierJob, greedy_agreement, verifier_job

TRACES = [
    "The white car lies lower, so it is nearer.",
    "It points to the left.",
    "Yes.",
    "It is about 12 meters ahead.",
]


@pytest.fixture(scope="module")
def sharp() -> LoadedModel:
    """The tiny model with sharpened attention: with its own flat one, a position error would hide."""
    loaded = load_model("tiny")
    with torch.no_grad():
        for name, weight in loaded.model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                weight.mul_(6)
    return loaded


def greedy(loaded: LoadedModel, prefix: tuple[int, ...], length: int) -> tuple[int, ...]:
    """What the real `generate` writes after a prefix."""
    ids = torch.tensor([prefix])
    out = loaded.model.generate(input_ids=ids, max_new_tokens=length, min_new_tokens=length, do_sample=False)
    return tuple(out[0, len(prefix) :].tolist())


def jobs_of(loaded: LoadedModel) -> list[VerifierJob]:
    jobs = []
    for index, think in enumerate(TRACES):
        prefix = verifier_job(loaded.processor.tokenizer, think, "Yes").prefix_ids
        jobs.append(VerifierJob(prefix, greedy(loaded, prefix, 2 + index)))
    return jobs


def agreement(loaded: LoadedModel, jobs: list[VerifierJob | None], batch_size: int = 3) -> list[bool]:
    pad_id = loaded.processor.tokenizer.pad_token_id
    return greedy_agreement(loaded.model, jobs, pad_id, batch_size, Accelerator(cpu=True))


def test_greedy_answers_agree_and_changed_ones_do_not(sharp: LoadedModel) -> None:
    jobs = jobs_of(sharp)
    assert agreement(sharp, jobs) == [True] * len(jobs)
    for place in (0, -1):
        changed = []
        for job in jobs:
            ids = list(job.answer_ids)
            ids[place] = (ids[place] + 1) % 300
            changed.append(VerifierJob(job.prefix_ids, tuple(ids)))
        assert agreement(sharp, changed) == [False] * len(jobs)


def test_crossed_traces_are_judged_as_generation_judges_them(sharp: LoadedModel) -> None:
    jobs = jobs_of(sharp)
    crossed = [VerifierJob(a.prefix_ids, b.answer_ids) for a in jobs for b in jobs]
    real = [greedy(sharp, job.prefix_ids, len(job.answer_ids)) == job.answer_ids for job in crossed]
    assert agreement(sharp, crossed) == real


def test_rows_without_a_job_and_repeated_jobs(sharp: LoadedModel) -> None:
    job = jobs_of(sharp)[0]
    other = VerifierJob(job.prefix_ids, (1, 2))
    assert agreement(sharp, [None, job, other, None, job]) == [False, True, False, False, True]
    assert agreement(sharp, [None, None]) == [False, False]


@pytest.mark.parametrize("answer", ["Yes", "The white car", "[100, 60]", "Between 4 meters and 10 meters", "<"])
def test_a_job_is_the_prompt_and_the_answer_as_the_policy_writes_it(sharp: LoadedModel, answer: str) -> None:
    tokenizer = sharp.processor.tokenizer
    job = verifier_job(tokenizer, "It is near.", answer)
    prompt, reply = tokenizer.decode(job.prefix_ids), tokenizer.decode(job.answer_ids)
    assert reply == answer + CLOSE
    assert prompt.endswith("assistant\n<answer>") and "It is near." in prompt
    assert "image" not in prompt


def taught(loaded: LoadedModel, think: str, answer: str) -> None:
    """Teach the model, on this one trace, to answer it as the verifier asks."""
    job = verifier_job(loaded.processor.tokenizer, think, answer)
    ids = torch.tensor([job.prefix_ids + job.answer_ids])
    labels = ids.clone()
    labels[:, : len(job.prefix_ids)] = -100
    optimiser = torch.optim.Adam(loaded.model.parameters(), lr=3e-3)
    for _ in range(12):
        loaded.model(input_ids=ids, labels=labels).loss.backward()
        optimiser.step()
        optimiser.zero_grad()


def test_the_trainer_pays_logic_for_traces_that_lead_back_to_the_answer(traces: Path, tmp_path: Path) -> None:
    from test_training import grpo_trainer

    options = ["--rewards", "logic", "--logic_target", "generated", "--per_device_train_batch_size", "4"]
    trainer = grpo_trainer(traces.with_name("questions.jsonl"), tmp_path, *options, reward=None)
    think = "The car lies lower, so it is nearer."
    taught(LoadedModel(trainer.model, trainer.processing_class, trainer.settings.frame, "tiny"), think, "Yes")
    good = located_response([("car", (1, 2, 30, 40))], think, "Yes")
    # Its own answer, with other blanks too; another answer than the trace leads to; a broken format.
    texts = [good, good.replace("<answer>", " <answer>"), good.replace("Yes", "No"), good + " indeed"]
    rows = [trainer.train_dataset[0]] * 4
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    trainer.model.train()
    rewards = trainer._calculate_rewards(rows, [row["prompt"] for row in rows], completions, [[0]] * 4)
    assert rewards[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert trainer._metrics["train"]["rewards/logic/" + rows[0]["task"]] == [1.0, 1.0, 0.0, 0.0]
    assert trainer._metrics["train"]["logic/verified"] == [1.0, 1.0, 1.0, 0.0]
    assert trainer._metrics["train"]["logic/agrees_own"] == [1.0, 1.0, 0.0]
