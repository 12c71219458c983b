"""The self-verifier: one forward pass says what greedy decoding would write."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from sharp_model import sharp_tiny
from taught_model import teach

from data_gen.prompts import located_response, verifier_text
from training.model import LoadedModel
from training.verification.verifier import CLOSE, OPEN, VerifierJob, answer_scores, greedy_agreement, verifier_job
from training.verification.verifier_generate import ByTransformers, generated_answers, read_reply

TRACES = [
    "The white car lies lower, so it is nearer.",
    "It points to the left.",
    "Yes.",
    "It is about 12 meters ahead.",
]


@pytest.fixture(scope="module")
def sharp() -> LoadedModel:
    """The tiny model with sharpened attention: with its own flat one, a position error would hide."""
    return sharp_tiny()


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


def agreement(loaded: LoadedModel, jobs: Sequence[VerifierJob | None], batch_size: int = 3) -> list[bool]:
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


ANSWERS = ["Yes", "No", "The white car", "Between 4 meters and 10 meters", "[100, 60]", "\nYes\n"]


@pytest.fixture(scope="module")
def half_taught() -> LoadedModel:
    """A sharp model that has learned an answer to every other trace."""
    loaded = sharp_tiny()
    tokenizer = loaded.processor.tokenizer
    pairs = list(zip(MANY[::2], ANSWERS, strict=True))
    teach(loaded.model, [verifier_job(tokenizer, think, answer) for think, answer in pairs], 40)
    return loaded


MANY = [
    f"The car number {number} is {word}." for number in (3, 7) for word in ("near", "far", "lower", "red", "it", "left")
]


def generator(loaded: LoadedModel) -> ByTransformers:
    tokenizer, accelerator = loaded.processor.tokenizer, Accelerator(cpu=True)
    return ByTransformers(lambda: nullcontext(loaded.model), tokenizer, [tokenizer.eos_token_id], accelerator)


def by_generation(loaded: LoadedModel, jobs: Sequence[VerifierJob | None], batch_size: int = 5) -> list[str | None]:
    """The answers that the generating mode reads."""
    return generated_answers(
        generator(loaded), jobs, loaded.processor.tokenizer.pad_token_id, batch_size, Accelerator(cpu=True)
    )


def test_both_modes_agree_on_every_pair_of_trace_and_answer(half_taught: LoadedModel) -> None:
    tokenizer = half_taught.processor.tokenizer
    pairs = [(think, answer) for think in MANY for answer in ANSWERS]
    jobs = [verifier_job(tokenizer, think, answer) for think, answer in pairs]
    agreed = agreement(half_taught, jobs, batch_size=7)
    assert 6 <= sum(agreed) < 24  # what was taught, and little else
    (texts,) = generator(half_taught)([jobs])
    assert agreed == [text.startswith(answer + CLOSE) for (_, answer), text in zip(pairs, texts, strict=True)]
    read = by_generation(half_taught, jobs)
    assert read == [read_reply(job, text) for job, text in zip(jobs, texts, strict=True)]
    assert read == by_generation(half_taught, jobs, batch_size=1)  # padding changes nothing


def test_an_answer_counts_once_its_tag_is_closed(sharp: LoadedModel) -> None:
    job = verifier_job(sharp.processor.tokenizer, "It is near.", "Yes")
    assert read_reply(job, "Yes</answer> and more") == "Yes"
    assert read_reply(job, " \n No\n</answer>") == "No"
    for text in ("", "Yes", "</answer>", " </answer>", "Yes</answer"):
        assert read_reply(job, text) is None
    assert read_reply(replace(job, unopened=">"), ">[1, 2]</answer>") == "[1, 2]"
    assert read_reply(replace(job, unopened=">"), "s>[1, 2]</answer>") is None


def test_a_token_may_span_the_border_of_tag_and_answer() -> None:
    """Tokenizers of the Qwen family write `>[` as one token."""
    loaded = sharp_tiny()
    tokenizer, plain = loaded.processor.tokenizer, verifier_job(loaded.processor.tokenizer, "It is near.", "[100, 60]")
    tokenizer.add_tokens(["<answer", ">["])
    loaded.model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    job = verifier_job(tokenizer, "It is near.", "[100, 60]")
    assert plain.unopened == "" and job.unopened == ">"
    assert tokenizer.decode(job.prefix_ids).endswith("<answer")
    assert tokenizer.decode(job.answer_ids) == ">[100, 60]</answer>"
    assert by_generation(loaded, [job]) == [None] and agreement(loaded, [job]) == [False]
    teach(loaded.model, [job], 14)
    assert by_generation(loaded, [job]) == ["[100, 60]"] and agreement(loaded, [job]) == [True]


@pytest.mark.parametrize("marker", ["<|im_end|>", "<|im_start|>assistant\n", "<|image_pad|>", "<|endoftext|>"])
def test_markers_in_a_trace_or_answer_stay_text(sharp: LoadedModel, marker: str) -> None:
    tokenizer = sharp.processor.tokenizer
    special = set(tokenizer.all_special_ids) | {tokenizer.convert_tokens_to_ids("<|image_pad|>")}
    special |= {tokenizer.convert_tokens_to_ids("<|im_start|>")}
    plain = verifier_job(tokenizer, "It is near.", "Yes")
    job = verifier_job(tokenizer, f"It is {marker} near.", f"Yes{marker}")
    assert [id for id in job.prefix_ids if id in special] == [id for id in plain.prefix_ids if id in special]
    assert not special & set(job.answer_ids)
    assert f"It is {marker} near." in tokenizer.decode(job.prefix_ids)
    assert tokenizer.decode(job.answer_ids) == f"Yes{marker}{CLOSE}"


def test_the_prompt_is_tokenised_as_the_chat_template_writes_it(sharp: LoadedModel) -> None:
    tokenizer = sharp.processor.tokenizer
    for think in [*TRACES, "x" * 4000, "{request} {think}"]:
        messages = [{"role": "user", "content": verifier_text(think)}]
        whole = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + OPEN
        assert verifier_job(tokenizer, think, "Yes").prefix_ids == tuple(
            tokenizer(whole, add_special_tokens=False)["input_ids"]
        )


def test_a_template_that_rewrites_messages_is_refused() -> None:
    tokenizer = sharp_tiny().processor.tokenizer
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] | upper }}{% endfor %}"
    with pytest.raises(ValueError, match="chat template"):
        verifier_job(tokenizer, "It is near.", "Yes")


def test_scores_are_mean_log_probabilities_of_the_answer(sharp: LoadedModel) -> None:
    jobs = [verifier_job(sharp.processor.tokenizer, think, answer) for think in TRACES for answer in ANSWERS]
    pad_id = sharp.processor.tokenizer.pad_token_id
    scores = answer_scores(sharp.model, jobs, pad_id, 5, Accelerator(cpu=True))
    for job, score in zip(jobs, scores, strict=True):
        ids = torch.tensor([job.prefix_ids + job.answer_ids])
        labels = ids.clone()
        labels[:, : len(job.prefix_ids)] = -100
        with torch.no_grad():
            assert score == pytest.approx(-sharp.model(input_ids=ids, labels=labels).loss.item(), abs=1e-4)


def test_the_trainer_pays_logic_for_traces_that_lead_back_to_the_answer(traces: Path, tmp_path: Path) -> None:
    from test_training import grpo_trainer

    options = ["--rewards", "logic", "--logic_target", "generated", "--per_device_train_batch_size", "4"]
    trainer = grpo_trainer(traces.with_name("questions.jsonl"), tmp_path, *options, reward=None)
    think = "The car lies lower, so it is nearer."
    teach(trainer.model, [verifier_job(trainer._tokenizer, think, "Yes")], 12)
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
