"""The geometric oracle: a teacher that needs no model and writes a trace from the true geometry of a question.

A trace says what an object's size, lower edge or visible sides tell, how far away it is or where in the picture, and
how that compares; of two numbers the one that is asked for, again with its object. It ends in one of three ways, chosen
by the id: with the literal answer, with a paraphrase of it, or with the premises alone, so that an answer cannot always
be copied from the trace.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from functools import partial

from data_gen.compass import DIRECTIONS, opposite
from data_gen.oracle_cues import (
    depth_cues,
    equal_cues,
    ground_level,
    head_noun,
    heading_sector,
    nearer_cues,
    seen_sector,
    short_names,
    spot_in_box,
    third_of,
)
from data_gen.oracle_wording import (
    DEPTHS,
    GAPS,
    GROUNDS,
    POINTINGS,
    SHAPES,
    SIDES,
    SIDES_SEEN,
    SIZES,
    SPOTS,
    TURNS,
    phrase,
)
from data_gen.records import Question, QuestionObject, Trace
from rewards.response import numbers_in

ENDINGS = ("literal", "paraphrase", "premises")
TIE = 2  # index of the option that says neither, in all three tasks that compare
FAR_APART = 0.3  # of the image width
# What the two questions of a comparison ask for.
ASKED = {
    "distance": ("closer", "farther"),
    "left_right": ("more to the left", "more to the right"),
    "front_behind": ("in front", "behind"),
}

Say = Callable[..., str]


def oracle_trace(question: Question, seed: int = 0) -> Trace:
    """The trace of a question; the same question and seed give the same words."""
    say = partial(phrase, random.Random(f"{seed}-{question.id}"))
    sentences = _WRITERS[question.task](question, ending_of(question.id), say)
    return Trace(question, " ".join(sentences), teacher="oracle")


def ending_of(question_id: str) -> str:
    """How the oracle ends the trace of a question: a third of all ids each."""
    return ENDINGS[int(hashlib.sha256(question_id.encode()).hexdigest(), 16) % len(ENDINGS)]


def _yaw(question: Question, ending: str, say: Say) -> list[str]:
    (s,) = short_names(question.objects)
    sector = heading_sector(question)
    camera = DIRECTIONS[0 if question.variant == 0 else 4]
    item = question.objects[0]
    third, seen = third_of(item.pixel[0], question.width), seen_sector(question)
    slot, off = "points" if seen == sector else "points_aside", "left" if third == 0 else "right"
    sentences = [
        say("sides_seen", name=item.name, side=SIDES[third], sides=SIDES_SEEN[seen]),
        say(slot, s=s, off=off, pointing=POINTINGS[sector]),
    ]
    if ending == "premises" or (ending == "paraphrase" and sector in TURNS):
        sentences.append(say("camera", camera=camera))
    else:
        sentences.append(say("compass", camera=camera, sense=_sense(sector, question.variant)))
    if ending == "paraphrase":
        halfway = " and ".join(_compass_word(part, question.variant) for part in _parts(sector))
        sentences.append(say("turned", s=s, turn=TURNS.get(sector, f"halfway between {halfway}")))
    return sentences + _literal(question, ending, say)


def _parts(sector: int) -> list[int]:
    """The one or two main sectors that a sector lies between."""
    return [sector] if sector % 2 == 0 else [(sector - 1) % 8, (sector + 1) % 8]


def _compass_word(sector: int, variant: int) -> str:
    return DIRECTIONS[sector] if variant == 0 else opposite(DIRECTIONS[sector])


def _sense(sector: int, variant: int) -> str:
    """What the parts of a heading in the picture mean on the compass."""
    words = {0: "away", 2: "right", 4: "towards me", 6: "left"}
    first, *second = (f"{words[part]} is {_compass_word(part, variant)}" for part in _parts(sector))
    return " and ".join([first, *(text.replace(" is ", " ") for text in second)])


def _pixel(question: Question, ending: str, say: Say) -> list[str]:
    item = question.objects[0]
    (s,) = short_names(question.objects)
    side, ground = SIDES[third_of(item.pixel[0], question.width)], GROUNDS[ground_level(item, question.height)]
    x1, y1, x2, y2 = item.bbox
    sentences = [say("place_down", name=item.name, side=side, ground=ground), say("box", s=s, box=_at(item.bbox))]
    if ending == "premises":
        return [*sentences, say("shape", shape=SHAPES[int(y2 - y1 > x2 - x1)])]
    spot = SPOTS[spot_in_box(item, item.pixel)]
    return [*sentences, say("centre_at", s=s, spot=spot), *_literal(question, ending, say)]


def _depth(question: Question, ending: str, say: Say) -> list[str]:
    item = question.objects[0]
    level, cues = depth_cues(question)
    slot = "depth_both" if len(cues) == 2 else "_".join(["depth", *cues])
    side = SIDES[third_of(item.pixel[0], question.width)]
    sentences = [say(slot, name=item.name, side=side, size=SIZES[level], ground=GROUNDS[level], depth=DEPTHS[level])]
    sentences.append(say("meters", s=head_noun(item.name), m=round(item.xyz_m[2])))
    if ending == "premises":
        return sentences
    if ending == "paraphrase":
        low, high = (int(number) for number in numbers_in(question.answer_text)[:2])
        sentences.append(say("depth_range", s=head_noun(item.name), low=low, high=high))
    return sentences + _literal(question, ending, say)


def _distance(question: Question, ending: str, say: Say) -> list[str]:
    chosen = question.options.index(question.answer_text)
    nearer = None if chosen == TIE else chosen if question.variant == 0 else 1 - chosen
    asked = say("asked_more", more=ASKED[question.task][question.variant])
    if ending == "premises":
        return [_compare(question, nearer, say), _numbers(question, say), asked]
    return [_numbers(question, say), asked, _found(question, chosen, say), *_chosen(question, ending, say)]


def _front_behind(question: Question, ending: str, say: Say) -> list[str]:
    yes_no = question.options.index(question.answer_text)
    # The first object is farther when it is in front: "Yes" to the first question, "No" to the second.
    nearer = None if yes_no == TIE else int(yes_no == question.variant)
    rule = [] if nearer is None else [say("in_front_means")]
    asked = say("asked_front", a=question.objects[0].name, more=ASKED[question.task][question.variant])
    if ending == "premises":
        return [_compare(question, nearer, say), _numbers(question, say), *rule, asked]
    # Of two that are apart, the one that is as asked: the first object for "Yes", the second for "No".
    sentences = [_numbers(question, say), *rule, asked, _found(question, yes_no, say)]
    if ending == "literal":
        return sentences + _literal(question, ending, say)
    if nearer is None:
        return [*sentences, say("none_in_front")]
    names = short_names(question.objects)
    return [*sentences, say("in_front", near=names[nearer], far=names[1 - nearer])]


def _left_right(question: Question, ending: str, say: Say) -> list[str]:
    chosen = question.options.index(question.answer_text)
    asked = say("asked_more", more=ASKED[question.task][question.variant])
    if ending == "premises":
        return [_numbers(question, say), _beside(question, chosen, say), asked]
    found = _beside(question, chosen, say) if chosen == TIE else _asked_number(question, chosen, say)
    return [_numbers(question, say), asked, found, *_chosen(question, ending, say)]


def _beside(question: Question, chosen: int, say: Say) -> str:
    """Which object is to the left of which, or that they stand in one column."""
    if chosen == TIE:
        return say("same_column")
    a, b = question.objects
    names = short_names(question.objects)
    left, right = names if a.pixel[0] < b.pixel[0] else names[::-1]
    gap = GAPS[int(abs(a.pixel[0] - b.pixel[0]) > FAR_APART * question.width)]
    return say("left_of", left=left, right=right, gap=gap)


def compared_numbers(question: Question) -> tuple[int, int]:
    """What is compared of the two objects: meters, along the viewing axis for front and behind, or for left and right
    the places of their centres in percent of the image width.
    """
    a, b = (_COMPARED[question.task](item, question) for item in question.objects)
    return round(a), round(b)


_COMPARED: dict[str, Callable[[QuestionObject, Question], float]] = {
    "distance": lambda item, _: math.hypot(*item.xyz_m),
    "front_behind": lambda item, _: item.xyz_m[2],
    "left_right": lambda item, question: 100 * item.pixel[0] / question.width,
}


def _numbers(question: Question, say: Say) -> str:
    """Both numbers, each between twice the name: behind it, as one reads it off, and in front, as one looks it up."""
    a, b = question.objects
    a_number, b_number = (
        f"{item.name} {number}" for item, number in zip(question.objects, compared_numbers(question), strict=True)
    )
    slot = "percent_both" if question.task == "left_right" else "meters_both"
    return say(slot, a=a.name, b=b.name, a_number=a_number, b_number=b_number)


def _asked_number(question: Question, chosen: int, say: Say) -> str:
    """The number that is asked for, with the object that it belongs to."""
    fewer = (question.variant == 0) != (question.task == "front_behind")
    unit = "percent" if question.task == "left_right" else "meters"
    number, name = compared_numbers(question)[chosen], question.objects[chosen].name
    return say("asked_number", fewer="fewer" if fewer else "more", unit=unit, number=number, s=name)


def _found(question: Question, chosen: int, say: Say) -> str:
    """Of two distances the one that is asked for, or that both are alike."""
    if chosen == TIE:
        return say("equal_ahead" if question.task == "front_behind" else "equal")
    return _asked_number(question, chosen, say)


def _compare(question: Question, nearer: int | None, say: Say) -> str:
    """Which of the two is nearer, or that neither is, by a cue that shows it."""
    near, far = question.objects[nearer or 0], question.objects[1 - (nearer or 0)]
    names = short_names((near, far))
    kind = "equal" if nearer is None else "nearer"
    cues = equal_cues(near, far, question) if nearer is None else nearer_cues(near, far, question)
    slots = [f"{kind}_{cue}" if cue else kind for cue in cues]
    return say(*slots, near=names[0], far=names[1])


def _chosen(question: Question, ending: str, say: Say) -> list[str]:
    """The end of a comparison: the answer, or the object told by its kind and side."""
    if ending != "paraphrase":
        return _literal(question, ending, say)
    more = ASKED[question.task][question.variant]
    chosen = question.options.index(question.answer_text)
    if chosen == TIE:
        return [say("none_chosen", more=more)]
    return [say("chosen", ref=_reference(question, chosen), more=more)]


def _reference(question: Question, index: int) -> str:
    """One of two objects without its full name: by its kind, and its side where the sides differ."""
    item, other = question.objects[index], question.objects[1 - index]
    noun = short_names((item, other))[0]
    third, other_third = (third_of(each.pixel[0], question.width) for each in (item, other))
    known = third == other_third or noun != head_noun(item.name) or question.task == "left_right"
    return f"the {noun}" if known else f"the {noun} {SIDES[third]}"


def _literal(question: Question, ending: str, say: Say) -> list[str]:
    """The sentence that gives the answer, as a list that is empty for the other endings."""
    if ending != "literal":
        return []
    answer = question.answer_text
    if not isinstance(question.answer, str):
        answer = _at(question.answer)
    elif question.task in ("distance", "left_right") and answer in question.options[:TIE]:
        answer = question.objects[question.options.index(answer)].name
    return [say("answer", answer=answer)]


def _at(values: tuple[float, ...]) -> str:
    """Coordinates as a trace writes them, in whole original pixels."""
    return f"[[{', '.join(str(round(value)) for value in values)}]]"


_WRITERS: dict[str, Callable[[Question, str, Say], list[str]]] = {
    "yaw": _yaw,
    "pixel": _pixel,
    "depth": _depth,
    "distance": _distance,
    "left_right": _left_right,
    "front_behind": _front_behind,
}
