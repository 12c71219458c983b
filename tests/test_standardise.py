"""The standard wording, and what free text of a model becomes: standard words or a problem."""

from __future__ import annotations

import pytest

from data_gen.describers.standardise import standardise
from data_gen.describers.wording import NOUNS, answer_form, question_about, wording
from data_gen.descriptions import Description
from data_gen.filters import REASONS

CAR, BICYCLE, ADULT = "vehicle.car", "vehicle.bicycle", "human.pedestrian.adult"
EMPTY, UNCLEAR, VAGUE = "no_description", "colour_unclear", "vague_description"


def test_the_standard_wording() -> None:
    assert wording(CAR, "white") == "white car"
    assert wording("vehicle.bus.bendy", "white and black") == "white and black bus"
    assert wording("vehicle.emergency.police", "white") == "white police car"
    assert wording("human.pedestrian.stroller", "black") == "black stroller"
    assert wording(ADULT, "blue") == "adult wearing a blue shirt"
    assert wording("human.pedestrian.construction_worker", "orange", "vest") == (
        "construction worker wearing an orange vest"
    )
    assert wording("human.pedestrian.child", "blue", "jeans") == "child wearing blue jeans"


@pytest.mark.parametrize("category", NOUNS)
@pytest.mark.parametrize("colour", ["white", "dark blue", "orange", "white and black"])
def test_the_standard_wording_stays_as_it_is(category: str, colour: str) -> None:
    text = wording(category, colour)
    assert standardise(text, category) == Description(text, raw=text)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("white", "white car"),
        ("White.", "white car"),
        ("**Gray**", "grey car"),
        ("The car is white.", "white car"),
        ("The colour of the car in the middle is silver.", "silver car"),
        ("it is a dark grey SUV", "dark grey car"),
        ("dark black", "black car"),
        ("navy blue", "dark blue car"),
        ("navy", "dark blue car"),
        ("off-white", "white car"),
        ("silver-gray", "silver car"),
        ("reddish brown", "brown car"),
        ("white and black", "white and black car"),
        ("white/black", "white and black car"),
        ("black-and-white car", "black and white car"),
        ("white and dark blue", "white and dark blue car"),
        ("white pickup truck", "white car"),
        ("white car with black windows", "white car"),
        ("White car, black roof", "white car"),
        ("a white car parked next to a red bus", "white car"),
        ("the car has a white body", "white car"),
        # near misses
        ("", EMPTY),
        (" ... ", EMPTY),
        ("car", VAGUE),
        ("reddish", VAGUE),
        ("black wheels", VAGUE),
        ("unclear", VAGUE),
        ("unknown", VAGUE),
        ("I'm sorry, I can't tell what colour the white car has", VAGUE),
        ("The car isn't white", VAGUE),
        ("not white", VAGUE),
        ("white or silver", VAGUE),
        ("probably white", VAGUE),
        ("a white car and a black car", VAGUE),
        ("a white car and a red bus", VAGUE),
        ("The car is white. The bus is red.", VAGUE),
        ("two white cars", VAGUE),
        ("a car parked next to a red bus", VAGUE),
        ("red bicycle", VAGUE),
        ("白色", VAGUE),
        ("red, white and blue", UNCLEAR),
        ("blue-green", UNCLEAR),
        ("multi-coloured", UNCLEAR),
        ("dark", UNCLEAR),
        ("the red car is blue", UNCLEAR),
    ],
)
def test_what_is_said_of_a_car(raw: str, expected: str) -> None:
    check(raw, CAR, expected)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("blue shirt", "adult wearing a blue shirt"),
        ("A man in a blue t-shirt walking", "adult wearing a blue t-shirt"),
        ("an orange hi-vis vest over a white shirt", "adult wearing an orange vest"),
        ("The man’s shirt is blue and his pants are black", "adult wearing a blue shirt"),
        ("the shirt is blue, pants are black", "adult wearing a blue shirt"),
        ("blue jeans and a white T-shirt", "adult wearing a white t-shirt"),
        ("white dress shirt", "adult wearing a white shirt"),
        ("grey suit jacket", "adult wearing a grey jacket"),
        ("She is wearing a long-sleeved light blue sweater.", "adult wearing a light blue sweater"),
        ("black and white striped shirt", "adult wearing a black and white shirt"),
        ("a man with a black backpack and a red coat", "adult wearing a red coat"),
        ("a white shirt and a black tie", "adult wearing a white shirt"),
        ("black pants", "adult wearing black trousers"),
        ("a man in a red shirt next to a woman in a blue coat", "adult wearing a red shirt"),
        # near misses
        ("person walking", VAGUE),
        ("a man wearing a shirt", VAGUE),
        ("blue", VAGUE),
        ("a woman in red", VAGUE),
        ("blue clothes", VAGUE),
        ("a black backpack and a red hat", VAGUE),
        ("white car", VAGUE),
        ("no shirt", VAGUE),
        ("a man in a blue shirt and a woman in a red dress", VAGUE),
        ("two men in white shirts", VAGUE),
        ("dark jacket", UNCLEAR),
        ("red, white and blue shirt", UNCLEAR),
    ],
)
def test_what_is_said_of_a_person(raw: str, expected: str) -> None:
    check(raw, ADULT, expected)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("red bike", "red bicycle"),
        ("a man in a black shirt riding a red bicycle", "red bicycle"),
        ("man in black riding a red bike", "red bicycle"),
        ("person wearing a blue jacket", VAGUE),
        ("person wearing a blue jacket on a red bicycle", VAGUE),
        ("black car", VAGUE),
    ],
)
def test_the_colour_of_a_bicycle_is_not_its_riders(raw: str, expected: str) -> None:
    check(raw, BICYCLE, expected)


def check(raw: str, category: str, expected: str) -> None:
    found = standardise(raw, category)
    assert (found.text or found.problem, found.raw) == (expected, raw)
    assert found.problem in ("", *REASONS)


@pytest.mark.parametrize("category", [CAR, BICYCLE, ADULT, "vehicle.unheard_of", ""])
@pytest.mark.parametrize(
    "raw", ["\x00", "'s", "and and,/&", "is is is", "\ud800", "shirt " * 5000, "car and a x " * 5000, "dark", "ﬁ\u2011"]
)
def test_no_text_raises(raw: str, category: str) -> None:
    found = standardise(raw, category)
    assert bool(found.text) != bool(found.problem)


def test_each_kind_of_object_is_asked_about_in_its_own_words() -> None:
    assert "What colour is the bus" in question_about("vehicle.bus.rigid")
    assert "garment" in question_about(ADULT) and "adult" in question_about(ADULT)
    assert "garment" in answer_form(ADULT) and "garment" not in answer_form(CAR)
