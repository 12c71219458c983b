"""Free text of a model about one object -> the standard wording, or why the text cannot be used.

The words that count are closed lists. A colour belongs to the next noun of its clause ("black wheels", "red bicycle"),
or, where none follows, to the object itself ("the car is white"). What is said of things beside the object is cut off.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from data_gen.describers.wording import is_person, wording
from data_gen.describers.words import (
    ANY_WHEELS,
    COLOURS,
    FOUR_WHEELS,
    GARMENTS,
    NO_ONE_COLOUR,
    PARTS,
    PEOPLE,
    SEVERAL_PEOPLE,
    SEVERAL_VEHICLES,
    SHADES,
    TWO_WHEELS,
    UPPER,
    VEHICLES,
    WITHOUT_SHADE,
)
from data_gen.descriptions import Description

_BESIDE = (
    r"next to|in front of|close to|in the background|near|behind|beside|besides|by|at|on|under|against|between|among|"
    r"around|outside|along|towards|toward|parked|surrounded"
)
_UNDECIDED = re.compile(
    r"\b(?:not|no|never|none|neither|nor|without|cannot|unable|unknown|unclear|unsure|uncertain|indistinguishable|"
    r"invisible|maybe|perhaps|possibly|probably|might|either|or|sorry|impossible|hard to|difficult)\b|n't\b"
)
_ARTICLES = r"(?:a|an|another|one|the)"
_WORDS = re.compile(r"[a-z]+|[,/&]")
_JOINTS = frozenset({"and", ",", "/", "&"})


_PLURALS = re.compile(r"(?:es|s)$")
_CLOTHES_OF_OTHERS = re.compile(
    rf"\b(?:wearing|dressed in|(?:{'|'.join(PEOPLE)}) in)\b.*?(?=\b(?:riding|rides|pushing|with)\b|$)"
)
_IS = frozenset({"is", "are", "was", "were"})
_LONGEST_TEXT = 500


@dataclass(frozen=True)
class _Mention:
    """Colours said of a noun (empty: of no noun); `blended` if two of them stand side by side, as in "blue green"."""

    noun: str = ""
    colours: tuple[str, ...] = ()
    blended: bool = False


def standardise(raw: str, category: str) -> Description:
    """The standard wording of what a model said of an object of a category, or the problem with it. Never raises.

    Problems: `no_description` for an empty text, `colour_unclear` for three colours or more, blends and "dark" alone,
    `vague_description` for the rest: no colour, no garment, doubt, negations, several objects, another kind of object.
    """
    raw = raw[:_LONGEST_TEXT]
    text = _plain(raw)
    if not re.search(r"\w", text):
        return Description(problem="no_description", raw=raw)
    heads = [re.split(rf"\b(?:{_BESIDE})\b", sentence)[0] for sentence in re.split(r"[.;:!?\n]+", text)]
    if _UNDECIDED.search(text) or any(_several(head, category) for head in heads) or _another_kind(heads, category):
        return Description(problem="vague_description", raw=raw)
    found = _worn(heads) if is_person(category) else _painted(heads)
    if not found.colours:
        shady = any(word in NO_ONE_COLOUR for head in heads for word in _WORDS.findall(head))
        return Description(problem="colour_unclear" if shady else "vague_description", raw=raw)
    colours = tuple(dict.fromkeys(found.colours))
    if len(colours) > 2 or found.blended:
        return Description(problem="colour_unclear", raw=raw)
    return Description(wording(category, " and ".join(colours), found.noun), raw=raw)


def _plain(raw: str) -> str:
    """Lower case without markup, hyphens and possessives; "t-shirt" in one word; cut to a sane length."""
    text = unicodedata.normalize("NFKC", raw).lower().replace("\u2019", "'")
    text = re.sub(r"\bt[\s\u2010-]?shirt", "tshirt", text)
    text = re.sub(r"[*_`\"\u2010-\u2015-]+", " ", text)
    return re.sub(r"'s\b", "", text)


def _several(head: str, category: str) -> bool:
    """Whether it speaks of several objects of the kind that was asked about."""
    own = PEOPLE if is_person(category) else VEHICLES
    plurals = SEVERAL_PEOPLE if is_person(category) else SEVERAL_VEHICLES
    subjects = "|".join(own)
    another = rf"\b(?:{subjects})\b.*\band {_ARTICLES} (?:\w+ )*?(?:{subjects})\b"
    return bool(plurals & set(_WORDS.findall(head)) or re.search(another, head))


def _another_kind(heads: Sequence[str], category: str) -> bool:
    """Whether vehicles of two kinds are named, or one that the object cannot be."""
    if is_person(category):
        return False
    named = {VEHICLES[word] for head in heads for word in _heads_of_compounds(head) if word in VEHICLES}
    wheels = TWO_WHEELS if "cycle" in category else ANY_WHEELS if "stroller" in category else FOUR_WHEELS
    kinds = {kind for kind, _ in named if kind}
    return len(kinds) > 1 or any(of_word not in (wheels, ANY_WHEELS) for _, of_word in named)


def _heads_of_compounds(text: str) -> list[str]:
    """The words without nouns that only qualify the next one: "bus" in "bus driver", "dress" in "dress shirt"."""
    words = _WORDS.findall(text)
    return [word for word, following in pairwise([*words, ""]) if not (_noun(word) and _noun(following))]


def _noun(word: str) -> str:
    """A noun that colours may belong to: a garment's standard name, "itself", or "other"; empty for other words."""
    for form in (word, _PLURALS.sub("", word), word.removesuffix("s")):
        if form in GARMENTS:
            return GARMENTS[form]
        if form in VEHICLES:
            return "itself"
        if form in PARTS or form in PEOPLE:
            return "other"
    return ""


def _mentions(clause: str) -> Iterator[_Mention]:
    """The nouns of a clause in turn, each with the colours before it; colours that no noun follows come last."""
    words = _heads_of_compounds(clause)
    now, shade, apart, predicate = _Mention(), "", True, False
    for word, following in pairwise([*words, ""]):
        if word in COLOURS:
            now = _with_colour(now, COLOURS[word], shade, apart)
            shade, apart = "", False
        elif noun := _noun(word):
            if predicate and following in _IS:  # "the shirt is blue, the trousers are black"
                yield now
                now = _Mention()
            yield replace(now, noun=noun)
            now, apart, predicate = _Mention(), True, False
        else:
            shade = f"{SHADES[word]} " if word in SHADES else ""
            apart |= word in _JOINTS
            predicate |= word in _IS
    yield now


def _with_colour(mention: _Mention, name: str, shade: str, apart: bool) -> _Mention:
    """The mention with one more colour. "Navy blue" and "silver grey" are one colour, "blue green" is a blend."""
    colour = name if " " in name or name in WITHOUT_SHADE else shade + name
    last = mention.colours[-1] if mention.colours else ""
    if not apart and (last.endswith(colour) or (last, colour) == ("silver", "grey")):
        return mention
    return replace(mention, colours=(*mention.colours, colour), blended=mention.blended or not apart)


def _worn(heads: Sequence[str]) -> _Mention:
    """The first garment of the upper body that has a colour, else the first of the legs; without colours if none."""
    garments: list[_Mention] = []
    for head in heads:
        for mention in _mentions(head):
            if mention.noun in GARMENTS.values():
                garments.append(mention)
            elif not mention.noun and garments and not garments[-1].colours:  # "the shirt is blue"
                garments[-1] = replace(mention, noun=garments[-1].noun)
    coloured = [garment for garment in garments if garment.colours]
    return next((item for item in coloured if item.noun in UPPER.values()), coloured[0] if coloured else _Mention())


def _painted(heads: Sequence[str]) -> _Mention:
    """The colours of the object itself in the first clause that gives it any; without colours if none does."""
    for head in heads:
        for clause in re.split(r"\b(?:with|in|riding|rides)\b", _CLOTHES_OF_OTHERS.sub(" ", head)):
            own = [mention for mention in _mentions(clause) if mention.noun in ("", "itself") and mention.colours]
            if own:
                agree = all(set(mention.colours) <= set(own[0].colours) for mention in own)
                return replace(own[0], blended=own[0].blended or not agree)
    return _Mention()
