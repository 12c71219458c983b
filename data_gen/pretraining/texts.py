"""What is said about a picture in pretraining: captions, places, names, and grounding questions in the trained format.

No question of the six tasks is among them, and no answer to one. The prompts of grounding questions end as those of the
tasks do; only a part of the replies keeps the format, so that a model that samples from them does so on a part too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from data_gen.oracle_cues import third_of
from data_gen.oracle_wording import POINTINGS, SIDES
from data_gen.pretraining.pictures import COLOUR_NAMES, FRAME, HEIGHT_PX, KIND_NAMES, SHOWN_PX, WIDTH_PX, Seen, nameable
from data_gen.prompts import located_response, located_text
from data_gen.questions import SAME, option_name
from data_gen.rendering.palette import describe

TAGGED_SHARE = 0.45  # of the replies to grounding questions
ALL_NAMES = tuple(describe(kind, colour) for kind, colour in itertools.product(KIND_NAMES, COLOUR_NAMES))
OPTIONS = 3
PAIR_SHARE = 0.6  # of the questions about pictures that show two objects
SAME_WIDTH = 0.1
MOST_MEASURED = 3


@dataclass(frozen=True)
class Said:
    """A text that follows a picture, or that stands `alone`, and the reply."""

    prompt: str
    reply: str
    alone: bool = False


@dataclass(frozen=True)
class Grounding:
    """A grounding question: its objects, a trace and an answer."""

    question: str
    options: tuple[str, ...]
    objects: tuple[Seen, ...]
    think: str
    answer: str


def caption(objects: Sequence[Seen]) -> Said:
    """All objects from left to right, with box, depth and, for vehicles, heading."""
    ordered = sorted(objects, key=lambda item: item.box_xyxy_px[0])
    return Said("What is in the image?", "\n".join(map(_described, ordered)))


def _described(item: Seen) -> str:
    line = f"{item.name}: {box_text(item)}, {round(item.depth_m)} meters"
    vehicle = KIND_NAMES[item.kind] != "pedestrian"
    return f"{line}, points {POINTINGS[item.heading]}" if vehicle else line


def place(item: Seen) -> Said:
    """Where an object is."""
    return Said(place_question(item), f"<location>{item.name}: {box_text(item)}</location>")


def place_question(item: Seen) -> str:
    """The question that `place` answers."""
    return f"Where is the {item.name}?"


def name_in_box(item: Seen) -> Said:
    """What is in a box."""
    return Said(name_question(item), f"The {item.name}")


def name_question(item: Seen) -> str:
    """The question that `name_in_box` answers."""
    return f"Which is in the box {box_text(item)}?"


def measured(known: Sequence[Seen], rng: np.random.Generator) -> Said:
    """How many meters ahead some of the objects are, or where in percent of the width, each behind its name."""
    chosen = [known[index] for index in rng.permutation(len(known))[:MOST_MEASURED]]
    names = ", ".join(item.name for item in chosen)
    if rng.random() < 0.5:
        return Said(f"Read the meters: {names}", ", ".join(f"{item.name} {round(item.depth_m)}" for item in chosen))
    told = ", ".join(f"{item.name} {_percent(item)}" for item in chosen)
    return Said(f"Read the percent from the left: {names}", told)


def box_text(item: Seen) -> str:
    """A box as it is written."""
    return f"[{', '.join(map(str, item.whole_box))}]"


def grounding(objects: Sequence[Seen], rng: np.random.Generator) -> Grounding | None:
    """A random grounding question about objects of a picture; None where no name is the only one of its kind."""
    known = nameable(objects)
    if not known:
        return None
    asked = [known[index] for index in rng.permutation(len(known))]
    makers = _ABOUT_TWO if len(asked) > 1 and rng.random() < PAIR_SHARE else _ABOUT_ONE
    return makers[rng.integers(len(makers))](asked, rng)


def _box_of(asked: list[Seen], _: np.random.Generator) -> Grounding:
    item = asked[0]
    think = f"I see the {item.name} in the box {box_text(item)}."
    return Grounding(f"Which is the box of the {item.name}?", (), (item,), think, box_text(item))


def _which_of(asked: list[Seen], rng: np.random.Generator) -> Grounding:
    item = asked[0]
    others = [name for name in ALL_NAMES if name not in {other.name for other in asked}]
    names = [item.name, *(others[index] for index in rng.choice(len(others), OPTIONS - 1, replace=False))]
    options = tuple(option_name(names[index]) for index in rng.permutation(OPTIONS))
    question = f"Which of these is in the box {box_text(item)}?"
    return Grounding(question, options, (item,), _seen_in_box(item), option_name(item.name))


def _is_it(asked: list[Seen], rng: np.random.Generator) -> Grounding:
    item = asked[0]
    other = asked[1] if len(asked) > 1 else item.mirrored()
    same = bool(rng.random() < 0.5) or other.whole_box == item.whole_box
    question = f"Is the {item.name} in the box {box_text(item if same else other)}?"
    think = f"The box of the {item.name} is {box_text(item)}. This is {'the same' if same else 'another'} box."
    return Grounding(question, ("Yes", "No"), (item,), think, "Yes" if same else "No")


def _one_of_two(asked: list[Seen], rng: np.random.Generator) -> Grounding:
    pair = asked[:2]
    item = pair[rng.integers(2)]
    names = [other.name for other in pair]
    question = f"Which is in the box {box_text(item)}, the {names[0]} or the {names[1]}?"
    options = tuple(map(option_name, names))
    return Grounding(question, options, tuple(pair), _seen_in_box(item), option_name(item.name))


def _side_of(asked: list[Seen], rng: np.random.Generator) -> Grounding:
    item = asked[0]
    side = SIDES[third_of((item.box_xyxy_px[0] + item.box_xyxy_px[2]) / 2, SHOWN_PX[0])]
    options = tuple(SIDES[index].capitalize() for index in rng.permutation(len(SIDES)))
    question = f"On which side of the image is the {item.name}? The image has three sides of the same width."
    think = f"I see the {item.name} {side}. So the answer is {side}."
    return Grounding(question, options, (item,), think, side.capitalize())


def _wider_of_two(asked: list[Seen], rng: np.random.Generator) -> Grounding:
    first, second = asked[:2]
    word, narrower = (("wider", False), ("narrower", True))[rng.integers(2)]
    question = f"Which is {word} in the image, the {first.name} or the {second.name}? Width is that of the box."
    names = option_name(first.name), option_name(second.name)
    wider = _wider(first, second)
    answer = SAME if wider is None else names[wider != narrower]
    think = _compared_widths(first, second, f"Which is {word}?", narrower)
    return Grounding(question, (*names, SAME), (first, second), think, answer)


def _is_wider(asked: list[Seen], rng: np.random.Generator) -> Grounding:
    first, second = asked[:2]
    word, narrower = (("wider", False), ("narrower", True))[rng.integers(2)]
    question = f"Is the {first.name} {word} than the {second.name}? Width is that of the box."
    wider = _wider(first, second)
    answer = SAME if wider is None else ("Yes", "No")[wider != narrower]
    think = _compared_widths(first, second, f"Is the {first.name} {word}?", narrower)
    return Grounding(question, ("Yes", "No", SAME), (first, second), think, answer)


def _wider(first: Seen, second: Seen) -> bool | None:
    """Whether the second box is the wider one; None where they are about as wide."""
    widths = [item.box_xyxy_px[2] - item.box_xyxy_px[0] for item in (first, second)]
    return None if abs(widths[0] - widths[1]) < SAME_WIDTH * max(widths) else widths[1] > widths[0]


def _compared_widths(first: Seen, second: Seen, asked: str, narrower: bool) -> str:
    """Both widths in percent of the image, what is asked, and the number that is asked for with its object."""
    percent = [round(100 * (item.box_xyxy_px[2] - item.box_xyxy_px[0]) / SHOWN_PX[0]) for item in (first, second)]
    told = f"Width in percent: {_told((first, second), percent)}. {asked}"
    wider = _wider(first, second)
    if wider is None:
        return f"{told} Both are about the same."
    chosen, fewer = wider != narrower, "fewer" if narrower else "more"
    return f"{told} That means {fewer} percent: {percent[chosen]} {(first, second)[chosen].name}."


def _meters_of_two(asked: list[Seen], _: np.random.Generator) -> Grounding:
    return _measured_two("meters", "Meters away", asked[:2], [round(item.depth_m) for item in asked[:2]])


def _percent_of_two(asked: list[Seen], _: np.random.Generator) -> Grounding:
    return _measured_two("percent from the left", "Percent from the left", asked[:2], list(map(_percent, asked[:2])))


def _measured_two(unit: str, heading: str, pair: Sequence[Seen], values: Sequence[int]) -> Grounding:
    question = f"Read the {unit} of the {pair[0].name} and of the {pair[1].name}."
    think = f"{heading}: {_told(pair, values)}."
    return Grounding(question, (), tuple(pair), think, f"{values[0]} and {values[1]}")


def _told(pair: Sequence[Seen], values: Sequence[int]) -> str:
    """Each number between twice the name, as a trace has it."""
    return ", ".join(f"{item.name} {value} {item.name}" for item, value in zip(pair, values, strict=True))


def _percent(item: Seen) -> int:
    """Where the centre of the box is, in percent of the image width."""
    return round(50 * (item.box_xyxy_px[0] + item.box_xyxy_px[2]) / SHOWN_PX[0])


def _seen_in_box(item: Seen) -> str:
    return f"In the box {box_text(item)} I see the {item.name}. So the answer is the {item.name}."


Maker = Callable[[list[Seen], np.random.Generator], Grounding]
_ABOUT_ONE: tuple[Maker, ...] = (_box_of, _which_of, _is_it, _side_of)
_ABOUT_TWO: tuple[Maker, ...] = (_one_of_two, _wider_of_two, _is_wider, _meters_of_two, _percent_of_two)


def tagged(question: Grounding, rng: np.random.Generator) -> Said:
    """A grounding question with its prompt, and a reply that keeps the format or leaves out a part of it."""
    prompt = located_text(question.question, question.options, FRAME, (WIDTH_PX, HEIGHT_PX))
    boxes = [(item.name, item.box_xyxy_px) for item in question.objects]
    whole = located_response(boxes, question.think, question.answer)
    if rng.random() < TAGGED_SHARE:
        return Said(prompt, whole)
    location, think, answer = whole.split("\n")
    loose = (f"{think}\n{answer}", f"{location}\n{answer}", answer)
    return Said(prompt, loose[rng.integers(len(loose))])
