"""The oracle teacher's sentences: for every step of a trace several wordings over the same few plain words.

A field in braces is filled by `data_gen/oracle.py`. `all_sentences` lists everything that can be said, which is what a
small tokenizer is trained on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

SIDES = ("on the left", "in the middle", "on the right")
# Three levels each, from what speaks for near to what speaks for far.
GROUNDS = ("low in the image", "below the horizon", "near the horizon")
SIZES = ("large", "medium", "small")
DEPTHS = ("close", "some way ahead", "far ahead")
GAPS = ("clearly", "far")
# Eight sectors clockwise from "away from me", as in `data_gen.compass.DIRECTIONS`.
SIDES_SEEN = (
    "back", "back and right side", "right side", "front and right side", "front", "front and left side", "left side",
    "back and left side",
)  # fmt: skip
POINTINGS = (
    "away from me", "away and right", "right", "right and towards me", "towards me", "left and towards me", "left",
    "away and left",
)  # fmt: skip
TURNS = {0: "the same way", 2: "to the right of that", 4: "the opposite way", 6: "to the left of that"}
SPOTS = (
    "in the middle", "a little left of the middle", "a little right of the middle", "a little above the middle",
    "a little below the middle",
)  # fmt: skip
SHAPES = ("wider than high", "higher than wide")

WORDINGS: dict[str, tuple[str, ...]] = {
    "answer": (
        "So the answer is {answer}.",
        "The answer is {answer}.",
        "This makes the answer {answer}.",
        "So the answer must be {answer}.",
    ),
    "asked_more": (
        "Which is {more}?",
        "Which of the two is {more}?",
        "Which object is {more}?",
        "Which is {more} here?",
    ),
    "asked_front": (
        "Is the {a} {more}?",
        "So is the {a} {more}?",
        "Of the two, is the {a} {more}?",
        "So of the two, is the {a} {more}?",
    ),
    "meters": (
        "The {s} is about {m} meters ahead.",
        "The {s} must be about {m} meters ahead.",
        "The way to the {s} is about {m} meters.",
        "So the {s} is about {m} meters away.",
    ),
    # A small model finds whose a number is where the name follows it at once, and nowhere else.
    "meters_both": (
        "Meters away: {a_number} {a}, {b_number} {b}.",
        "In meters I see: {a_number} {a}, {b_number} {b}.",
        "The way in meters: {a_number} {a}, {b_number} {b}.",
        "Meters from the camera: {a_number} {a}, {b_number} {b}.",
    ),
    "percent_both": (
        "Percent from the left: {a_number} {a}, {b_number} {b}.",
        "In percent from the left I see: {a_number} {a}, {b_number} {b}.",
        "The place in percent from the left: {a_number} {a}, {b_number} {b}.",
        "Percent of the image from the left: {a_number} {a}, {b_number} {b}.",
    ),
    "asked_number": (
        "{fewer} {unit}: {number} {s}.",
        "That means {fewer} {unit}: {number} {s}.",
        "So the one of {fewer} {unit}: {number} {s}.",
        "That is the one of {fewer} {unit}: {number} {s}.",
    ),
    "place_down": (
        "The {name} is {side}, {ground}.",
        "I see the {name} {side}, {ground}.",
        "The {name} stands {side}, {ground}.",
        "{side}, {ground}, is the {name}.",
    ),
    "nearer_lower": (
        "The {near} reaches lower in the image and so is closer.",
        "The {far} ends nearer to the horizon and so is farther away.",
        "Lower in the image means closer, and the {near} is lower.",
        "The {near} stands lower in the image, which means closer.",
    ),
    "nearer_larger": (
        "The {near} looks larger for its kind and so is closer.",
        "The {far} looks smaller for its kind and so is farther away.",
        "Larger for its kind means closer, and that is the {near}.",
        "The {near} looks larger for its kind, which means closer.",
    ),
    "nearer_inward": (
        "The {far} is further out to the side and so is farther away.",
        "The {near} is less far out to the side and so is closer.",
        "Further out to the side means farther away, and that is the {far}.",
        "The way to the {far} out at the side is longer.",
    ),
    "nearer": (
        "On the ground the {near} is closer to the camera.",
        "On the ground the {far} is farther from the camera.",
        "On the ground the way to the {near} is shorter.",
        "On the ground the way to the {far} is longer.",
    ),
    "nearer_ahead": (
        "Straight ahead the {near} is closer to the camera.",
        "Straight ahead the {far} is farther from the camera.",
        "Straight ahead the way to the {near} is shorter.",
        "Straight ahead the way to the {far} is longer.",
    ),
    "equal_lower": (
        "Both end at about the same height in the image.",
        "Both reach about equally low in the image.",
        "The lower edges of both are at about the same height.",
        "Both stand about equally low in the image.",
    ),
    "equal_larger": (
        "Both look about equally large for their kind.",
        "For their kind both look about the same size.",
        "Neither looks clearly larger for its kind.",
        "In size for their kind both are about the same.",
    ),
    "equal": (
        "On the ground both are about equally far.",
        "On the ground neither is clearly closer.",
        "On the ground the way to both is about equally long.",
        "On the ground both are about equally far from the camera.",
    ),
    "equal_ahead": (
        "Straight ahead both are about equally far.",
        "Straight ahead neither is clearly closer.",
        "Straight ahead the way to both is about equally long.",
        "Straight ahead both are about equally far from the camera.",
    ),
    "chosen": (
        "So {ref} is {more}.",
        "So of the two {ref} is {more}.",
        "So it must be {ref}.",
        "All this points to {ref}.",
    ),
    "none_chosen": (
        "So neither is clearly {more}.",
        "So there is no clear difference.",
        "So of the two neither is {more}.",
        "All this means no clear difference.",
    ),
    "in_front_means": (
        "Here farther means in front.",
        "Farther means in front here.",
        "Here in front means farther.",
        "In front means farther here.",
    ),
    "in_front": (
        "So the {far} is in front of the {near}.",
        "So the {near} is behind the {far}.",
        "So of the two the {far} is in front.",
        "So of the two the {near} is behind.",
    ),
    "none_in_front": (
        "So neither is clearly in front.",
        "So neither is clearly behind.",
        "So of the two neither is in front.",
        "So there is no clear order from front to back.",
    ),
    "left_of": (
        "The {left} is {gap} to the left of the {right}.",
        "The {right} is {gap} to the right of the {left}.",
        "From left to right the {left} is first.",
        "From right to left the {right} is first.",
    ),
    "same_column": (
        "From left to right both are at about the same place.",
        "From left to right there is no clear difference.",
        "Neither is clearly more to one side.",
        "Both stand at about the same place from left to right.",
    ),
    "depth_both": (
        "The {name} {side} looks {size} for its kind and stands {ground}, which means {depth}.",
        "{side} the {name} is {size} for its kind, stands {ground} and so is {depth}.",
        "{side} I see the {name}, {size} for its kind and {ground}, which means {depth}.",
        "The {name} {side} stands {ground} and looks {size} for its kind, so must be {depth}.",
    ),
    "depth_ground": (
        "The {name} {side} stands {ground}, which means {depth}.",
        "{side} the lower edge of the {name} is {ground}, which means {depth}.",
        "{side} the {name} stands {ground} and so is {depth}.",
        "I see the {name} {side} and {ground}, so must be {depth}.",
    ),
    "depth_size": (
        "The {name} {side} looks {size} for its kind, which means {depth}.",
        "{side} the {name} is {size} for its kind and so is {depth}.",
        "{side} I see the {name}, {size} for its kind, which means {depth}.",
        "The {name} {side} looks {size} for its kind and so must be {depth}.",
    ),
    "depth": (
        "The {name} {side} is {depth} on the ground.",
        "{side} the {name} stands {depth}.",
        "I see the {name} {side}, {depth}.",
        "The {name} {side} must be {depth} on the ground.",
    ),
    "depth_range": (
        "So the {s} is {low} to {high} meters away.",
        "So the way to the {s} is {low} to {high} meters.",
        "So the {s} must be {low} to {high} meters ahead.",
        "All this means {low} to {high} meters.",
    ),
    "box": (
        "The box of the {s} is {box}.",
        "The {s} fills the box {box}.",
        "The {s} is in the box {box}.",
        "I see the {s} in the box {box}.",
    ),
    "shape": (
        "The box is {shape}.",
        "This box is {shape}.",
        "I see a box {shape}.",
        "In shape the box is {shape}.",
    ),
    "centre_at": (
        "The centre is {spot} of the box.",
        "The centre of the {s} is {spot} of the box.",
        "The centre must be {spot} of the box.",
        "I see the centre {spot} of the box.",
    ),
    "sides_seen": (
        "{side} I see the {sides} of the {name}.",
        "{side} the {name} shows the {sides}.",
        "The {name} {side} shows the {sides}.",
        "The {name} is {side}, and I see the {sides}.",
    ),
    "points": (
        "So the {s} points {pointing}.",
        "This means the {s} points {pointing}.",
        "So the front is turned {pointing}.",
        "The {s} must point {pointing}.",
    ),
    "points_aside": (
        "So far {off} this means the {s} points {pointing}.",
        "So far {off} the {s} must point {pointing}.",
        "Out on the {off} the {s} points {pointing}.",
        "Out on the {off} the front is turned {pointing}.",
    ),
    "camera": (
        "The camera faces {camera}.",
        "The camera itself faces {camera}.",
        "Here the camera faces {camera}.",
        "The camera is turned {camera}.",
    ),
    "compass": (
        "The camera faces {camera}, so {sense}.",
        "As the camera faces {camera}, {sense}.",
        "For a camera turned {camera}, {sense}.",
        "The camera is turned {camera}, so {sense}.",
    ),
    "turned": (
        "So the {s} faces {turn}.",
        "So the {s} points {turn}.",
        "So the {s} must face {turn}.",
        "So the front is turned {turn}.",
    ),
}

_NAMES = ("white car", "adult wearing a blue shirt", "adult")
_SAMPLES: dict[str, tuple[str, ...]] = {
    "answer": (*_NAMES, "Almost the same", "Between 4 meters and 10 meters", "Between 1 meter and 5 meters"),
    "side": SIDES, "a_side": SIDES, "b_side": SIDES, "ground": GROUNDS, "size": SIZES, "depth": DEPTHS,
    "gap": GAPS, "sides": SIDES_SEEN, "pointing": POINTINGS, "spot": SPOTS, "shape": SHAPES, "off": ("left", "right"),
    "turn": (*TURNS.values(), "halfway between South and East", "halfway between North and West"),
    "camera": ("North", "South"), "low": ("4", "12"), "high": ("10", "18"),
    "m": ("4", "12"), "number": ("4", "12"), "a_number": ("4", "12"), "b_number": ("8", "16"),
    "sense": ("right is East and away North", "left is West", "towards me is South"),
    "more": ("closer", "farther", "more to the left", "more to the right", "in front", "behind"),
    "ref": ("the car", "the car on the left", "the left car", "the right adult"),
    "unit": ("meters", "percent"), "fewer": ("fewer", "more"), "box": ("[[1, 2, 3, 4]]",),
}  # fmt: skip


def phrase(rng: random.Random, *slots: str, **values: object) -> str:
    """One wording of a step, or of any of several, filled and starting with a capital letter."""
    text = rng.choice([wording for slot in slots for wording in WORDINGS[slot]]).format(**values)
    return text[0].upper() + text[1:]


def all_sentences() -> Iterator[str]:
    """Every wording of every step with sample names, each value that its fields can take in turn."""
    for wordings in WORDINGS.values():
        for wording in wordings:
            fields = [name for name, values in _SAMPLES.items() if f"{{{name}}}" in wording]
            for turn in range(max([len(_SAMPLES[name]) for name in fields] + [len(_NAMES)])):
                sample = {name: _SAMPLES[name][turn % len(_SAMPLES[name])] for name in fields}
                text = wording.format_map(_WithNames(sample, turn))
                yield text[0].upper() + text[1:]


class _WithNames(dict[str, str]):
    """Sample values; every field without one is an object's name."""

    def __init__(self, values: dict[str, str], turn: int) -> None:
        super().__init__(values)
        self.turn = turn

    def __missing__(self, key: str) -> str:
        self.turn += 1
        return _NAMES[self.turn % len(_NAMES)]
