"""Whether a text says an answer literally, and the text without it."""

from __future__ import annotations

import pytest

from rewards.literal import cut_out, says_literally


@pytest.mark.parametrize(
    ("text", "answer", "left"),
    [
        ("So it is the white car.", "The white car", "So it is ...."),
        ("So it is **White-Car**", "white car", "So it is **...**"),
        ("A white  car; the\nwhite car", "White car", "...; ..."),
        ("It faces north-east, not North East.", "Northeast", "It faces ..., not ...."),
        ("It faces northeast.", "North-East", "It faces ...."),
        ("between 4 meter and 10 meters", "Between 4 meters and 10 meters", "..."),
        ("at [100,60] or ( 100, 60 )", "[100, 60]", "at ... or ( 100, 60 )"),
        ("Ｙｅｓ!", "Yes", "...!"),
        ("It is front-back apart", "front back", "It is ... apart"),
    ],
)
def test_every_spelling_of_the_normal_form_is_found_and_cut(text: str, answer: str, left: str) -> None:
    assert says_literally(text, answer)
    assert cut_out(text, answer) == left
    assert not says_literally(left, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("nothing is known of it", "No"),
        ("the whitecar", "white car"),
        ("a white and a black car", "white car"),
        ("southeast", "Northeast"),
        ("[100, 61]", "[100, 60]"),
        ("anything", '"."'),
        ("", "Yes"),
    ],
)
def test_near_misses_are_left_alone(text: str, answer: str) -> None:
    assert not says_literally(text, answer)
    assert cut_out(text, answer) == text
