"""Exercises in reading: their solutions are right, and they are learnt as text alone, as the verifier is asked."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from data_gen.oracle_wording import WORDINGS
from data_gen.pretraining.pictures import Seen
from data_gen.pretraining.reading import comparison, exercise, far_behind, listed_option
from data_gen.pretraining.texts import Said
from rewards.normal_form import normalise
from rewards.response import contains_phrase, numbers_in
from training.mini_stages.architecture import new_mini
from training.mini_stages.forward import IMAGE_TOKENS, alone_loss, text_loss
from training.mini_stages.speech import Speech
from training.tiny import train_tokenizer


@pytest.fixture(scope="module")
def speech() -> Speech:
    return Speech(train_tokenizer())


def test_the_solution_of_an_exercise_stands_in_it_or_follows_from_its_numbers() -> None:
    exercises = [exercise(np.random.default_rng(seed)) for seed in range(400)]
    assert all(said.alone for said in exercises)
    for said in exercises:
        answer = said.reply.removeprefix("<answer>").removesuffix("</answer>")
        words = contains_phrase(normalise(said.prompt), normalise(answer))
        assert said.reply == "Neither" or answer in said.prompt or words or said.prompt.endswith(" first"), said
    numbers = [said for said in exercises if said.prompt.startswith(("Which is larger, ", "Which is smaller, "))]
    for said in numbers:
        assert said.reply == f"{(max if 'larger' in said.prompt else min)(numbers_in(said.prompt)):g}"
    fitting = [said for said in exercises if said.prompt.startswith("Which range fits")]
    for said in fitting:
        wanted, *_ = numbers_in(said.prompt)
        held = [low <= wanted <= high for low, high in (numbers_in(line) for line in said.prompt.split("\n")[1:])]
        assert sum(held) == 1 and said.prompt.split("\n")[1:][held.index(True)] == said.reply
    assert min(len(numbers), len(fitting)) > 10


def test_words_are_repeated_options_found_and_answers_read_out() -> None:
    exercises = [exercise(np.random.default_rng(seed)) for seed in range(400)]
    repeated = [said for said in exercises if said.prompt.startswith("Read: ")]
    assert all(said.reply == said.prompt.removeprefix("Read: ") for said in repeated)
    picked = [said for said in exercises if said.prompt.startswith("Answer with option ")]
    for said in picked:
        asked, _, *options = said.prompt.split("\n")
        assert said.reply == options[int(numbers_in(asked)[0]) - 1]
    concluded = [said for said in exercises if said.reply.startswith("<answer>")]
    for said in concluded:
        answer = said.reply.removeprefix("<answer>").removesuffix("</answer>")
        told = f"[{answer}]" if answer.startswith("[") else answer.removeprefix("The ")
        assert any(wording.format(answer=told) in said.prompt for wording in WORDINGS["answer"]), said
    assert min(len(repeated), len(picked), len(concluded)) > 20


def test_things_are_sorted_and_compared_by_their_numbers() -> None:
    exercises = [exercise(np.random.default_rng(seed)) for seed in range(600)]
    sorted_things = [said for said in exercises if said.prompt.endswith(" first")]
    for said in sorted_things:
        things, word = said.prompt.removesuffix(" first").split(": ")
        falling = word in ("more", "larger")
        assert said.reply.split(", ") == sorted(things.split(", "), key=lambda t: numbers_in(t)[0], reverse=falling)
    compared = [said for said in exercises if re.search(r"\. Which is \w+\?$", said.prompt)]
    for said in compared:
        told, word = re.fullmatch(r"(.+)\. Which is (\w+)\?", said.prompt).groups()  # type: ignore[union-attr]
        (first, a), (second, b) = ((thing, numbers_in(thing)[0]) for thing in told.split(", "))
        more = word in ("more", "larger")
        assert said.reply == ("Neither" if a == b else first if (a > b) == more else second)
    assert min(len(sorted_things), len(compared)) > 30


def test_a_comparison_finds_the_number_that_is_asked_for_and_the_answer_follows() -> None:
    seen = set()
    for seed in range(400):
        said = comparison(np.random.default_rng(seed))
        told, asked = said.prompt.split(". ", 1)
        things = [re.fullmatch(r"(.+) (\d+) \1", thing) for thing in told.split(", ")]
        (first, a), (second, b) = ((thing[1], int(thing[2])) for thing in things if thing)
        found, concluded = said.reply.split(". ")
        answer = re.fullmatch(r".*(?:answer is|the answer|must be) (.+)\.", concluded)
        assert answer, concluded
        if a == b:
            assert (found, answer[1]) == ("Both are about the same", "Almost the same")
            continue
        number, name = (min if "fewer" in asked else max)((a, first), (b, second))
        assert found.endswith(f": {number} {name}")
        yes_no = asked.startswith("Is the ")
        assert answer[1] == (name if not yes_no else "Yes" if asked.startswith(f"Is the {name} of") else "No")
        seen.add((yes_no, answer[1] in ("Yes", first), abs(a - b) < 4))
    assert len(seen) == 8


def test_a_listed_option_is_the_one_of_its_number() -> None:
    item = Seen(0, 1, 2, (10, 20, 60, 50), 9.0)
    for seed in range(20):
        asked = listed_option(item, np.random.default_rng(seed))
        assert asked.options[int(numbers_in(asked.question)[0]) - 1] == asked.answer


def test_what_stands_alone_is_learnt_as_text_without_a_picture(speech: Speech) -> None:
    model = new_mini(speech.tokenizer, 0)
    said = Said("Which is larger, 12 or 20?", "20", alone=True)
    conversation = speech.conversation(said)
    ids = torch.tensor([conversation.ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        stock = cross_entropy(
            logits[0, conversation.prompt_length - 1 : -1], ids[0, conversation.prompt_length :]
        ).item()
        picture = torch.randn(1, IMAGE_TOKENS, model.config.text_config.hidden_size)
        beside = text_loss(model, picture, speech.rows([[said]]))
        by_itself = alone_loss(model, [conversation, conversation], speech.tokenizer.pad_token_id)
        seeing = text_loss(model, picture, speech.rows([[replace(said, alone=False)]]))
    assert beside.item() == pytest.approx(stock, abs=1e-4)
    assert by_itself.item() == pytest.approx(stock, abs=1e-4)
    assert abs(seeing.item() - stock) > 1e-4


def test_half_of_what_is_said_stands_far_behind_its_picture() -> None:
    said = Said("Where is the red car?", "[1, 2, 3, 4]")
    drawn = [far_behind(said, np.random.default_rng(seed)) for seed in range(200)]
    moved = [each for each in drawn if each != said]
    assert 70 < len(moved) < 130
    assert all(each.prompt.endswith(said.prompt) and each.reply == said.reply for each in moved)
    lengths = {len(each.prompt.split()) for each in moved}
    assert min(lengths) < 20 and max(lengths) > 70
