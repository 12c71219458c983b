"""Multiple choice: which letter does a model's free text give? Rules only; undecided texts give None.

The rules prefer silence to a guess: a text that weighs several options without settling on one is left to a judge.
Every pattern is anchored at a word and runs over a bounded or possessive stretch, so the time is linear in the text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence

from rewards.normal_form import normalise
from rewards.response import last_answer

_SPECIAL_TOKEN = re.compile(r"<\|[^<>|]*\|>|</?s>|<(?:pad|eos|bos|unk)>")
_WHOLE = re.compile(r"[*_(\[\"'`\s$]*+([A-Za-z])[*_)\]\"'`.:\s$]*+")
_BOXED = re.compile(r"\\boxed\{\s*+(?:\\text(?:bf)?\{)?+([^{}\n]{1,200})\}")
_MARK = re.compile(
    r"\b(answer|letter|option|choice|choose|select|pick)\b[\s*_\"']*+(is|was|would be|should be|[:=])?+[\s:*_]*+",
    re.IGNORECASE,
)
_LETTER = re.compile(
    r"[\s*_(\[\"'`$]*+(?:(?:option|choice|letter)\s++)?+[*_(\[\"'`]*+([A-Za-z])(?![\w'])", re.IGNORECASE
)
_LED = re.compile(r"^[ \t*_>#-]*+\(?+([A-Z])[).:][*_]*+", re.MULTILINE)
_ARTICLE = re.compile(r"\s+(?!(?:because|since|as|due|based|for|or|and|is)\b)[a-z]")
_SECOND = re.compile(r"[)\]*_.\s]*+(?:,|/|&|\+|or\b|and\b)\s*+(?:option\s++)?+[(\[*_]*+([A-Z])(?![\w'])(\s+[a-z])?")
_JUDGED_RIGHT = re.compile(r"[)\]*_\"'`\s]*+(?:is|seems|looks)\s++(?:the\s++)?+(?:correct|right|best|answer|most)\b")
_NEGATED = re.compile(r"\b(?:not|never|neither|nor|cannot|wrong|incorrect|false|eliminated?)\b|n['’]t\b", re.IGNORECASE)
_YES_NO = re.compile(r"(yes|no)\b\s*(?:[,.;:!\n]|\Z)", re.IGNORECASE)
_CORRECTION = re.compile(
    r"\b(?:wait|actually|rather|sorry|correction|on second thoughts?|scratch that|i was wrong|no(?=[,.]))\b"
    r"|\b(?=(?:my |the )?final (?:answer|choice)\b)",
    re.IGNORECASE,
)
_BEFORE_CORRECTION = {"", "no", "but", "oh", "ah", "hm", "hmm", "and", "so", "or", "well"}
_LEADING = re.compile(
    r"[\s,.:;!?…–—-]*+(?:(?:it|that|this)(?:['’]s|\s++(?:is|must be|should be))|i\s++meant?)?+", re.IGNORECASE
)
_AFTER_CHOICE = re.compile(r"[)\]*_\"'`]*+\s*+(?:[.,;:!\n]|because\b|since\b|as\b|\Z)")
_CAPITAL = re.compile(r"(?<![\w'])(?:[B-Z]|A(?!\s+[a-z]))(?![\w'])")
_CLAUSE_END = re.compile(r"[.,;:!?\n}]")
_TAIL_CHARACTERS = 200
_CLAUSE_CHARACTERS = 40
_UNSETTLED = ""  # what a mark says that names two letters, or one that no option has


def read_choice(text: str, options: Sequence[str]) -> str | None:
    """The letter (A, B, ...) of the chosen option, or None when the text does not settle on one.

    Text inside `<think>` never counts; an answer in tags is read alone. In order: a text that is one letter, what is
    boxed, "answer: X" or "option X is correct", an option led by its letter, a first or last line that is a letter or
    an option, a text that begins with an option, the only "option X" of a text. What follows a correction ("wait",
    "actually", "final answer") overrides what was said before it; claims that differ without one settle nothing.
    """
    outside = _SPECIAL_TOKEN.sub("", text.rpartition("</think>")[2].partition("<think>")[0]).strip()
    tagged = last_answer(text)
    if tagged:
        return _read(_SPECIAL_TOKEN.sub("", tagged).strip(), options) or _settled(_named(tagged, options))
    return _read(outside, options) if outside else None


def letters_of(options: Sequence[str]) -> str:
    """The letters of the options, A first."""
    return string.ascii_uppercase[: len(options)]


def _read(body: str, options: Sequence[str]) -> str | None:
    first, *corrections = _parts(body)
    said = _claimed(first, options)
    for part in corrections:
        later = _stated(part, options)
        said = later if said is None or later is not None else _put_right(part, options, said)
    return _settled(_claimed(body, options) if said is None else said)


def _parts(body: str) -> list[str]:
    """A text cut where it corrects itself."""
    cuts = [
        found
        for found in _CORRECTION.finditer(body)
        if _CLAUSE_END.split(body[max(0, found.start() - _CLAUSE_CHARACTERS) : found.start()])[-1].strip().lower()
        in _BEFORE_CORRECTION
    ]
    starts, ends = [0, *(found.end() for found in cuts)], [*(found.start() for found in cuts), len(body)]
    return [body[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _put_right(part: str, options: Sequence[str], said: str) -> str:
    """What holds after a correction that states nothing in full: "it is B" overrides, to speak of B unsettles."""
    leading = _LEADING.match(part)
    body = part[leading.end() :] if leading else part
    letter, rest = _letter_said(body, letters_of(options))
    if letter and (not rest or _AFTER_CHOICE.match(rest) or _JUDGED_RIGHT.match(rest)):
        return letter
    if found := next(_line_said(_CLAUSE_END.split(body)[0], options), None) or _framing_line(body, options):
        return found
    spoken_of = set(_CAPITAL.findall(part)) & set(letters_of(options)) - {said}
    return _UNSETTLED if spoken_of or not _others_absent(normalise(part), options, said) else said


def _claimed(body: str, options: Sequence[str]) -> str | None:
    """What a text without corrections claims: a letter, `_UNSETTLED`, or None where it claims nothing."""
    if (stated := _stated(body, options)) is not None:
        return stated
    if found := _led(body, options) or _framing_line(body, options) or _opening(body, options):
        return found
    weak = set(_marks(body, options)[1])
    return weak.pop() if len(weak) == 1 else None


def _stated(body: str, options: Sequence[str]) -> str | None:
    """The claim of a text that is one letter, has something boxed, or says "answer: X"; else None."""
    letters = letters_of(options)
    if whole := _WHOLE.fullmatch(body):
        return _known(whole.group(1), letters)
    boxed = [(text, _WHOLE.fullmatch(text)) for text in _BOXED.findall(body)]
    said = [_known(one[1], letters) if one else _named(text, options) or _UNSETTLED for text, one in boxed]
    strong = said or _marks(body, options)[0]
    return _agreed(strong) if strong else None


def _agreed(claims: Sequence[str]) -> str:
    """The letter that the last claim gives and no other contradicts; one that names several may be narrowed later."""
    return claims[-1] if set(claims) <= {claims[-1], _UNSETTLED} else _UNSETTLED


def _settled(said: str | None) -> str | None:
    return said or None


def _known(letter: str, letters: str) -> str:
    return letter.upper() if letter.upper() in letters else _UNSETTLED


def _marks(body: str, options: Sequence[str]) -> tuple[list[str], list[str]]:
    """What the marks of a text say: those that give an answer, and those that only mention an option."""
    strong, weak = list[str](), list[str]()
    for mark in _MARK.finditer(body):
        tail = body[mark.end() : mark.end() + _TAIL_CHARACTERS].partition("\n")[0]
        word, linked = mark.group(1).lower(), mark.group(2) is not None
        said, rest = _letter_said(tail, letters_of(options))
        if said is None and linked:
            said = _named(tail, options)
        clause = _CLAUSE_END.split(body[max(0, mark.start() - _CLAUSE_CHARACTERS) : mark.start()])[-1]
        denied = _NEGATED.search(clause) or (not linked and _NEGATED.search(rest[:_CLAUSE_CHARACTERS]))
        if said is None or denied:
            continue
        mentioned = word in ("option", "choice", "letter") and not linked and not _JUDGED_RIGHT.match(rest)
        (weak if mentioned else strong).append(said)
    return strong, weak


def _letter_said(tail: str, letters: str) -> tuple[str | None, str]:
    """The letter that a tail begins with, and what follows it; None where it begins with none, or with an article."""
    if whole := _WHOLE.fullmatch(tail):
        return _known(whole.group(1), letters), ""
    found = _LETTER.match(tail)
    if not found or not found.group(1).isupper():
        return None, tail
    letter, rest = found.group(1), tail[found.end() :]
    if letter in "AI" and _ARTICLE.match(rest):
        return None, tail
    second = _SECOND.match(rest)
    if second and second.group(1) in letters and second.group(1) != letter and not second.group(2):
        return _UNSETTLED, rest
    return _known(letter, letters), rest


def _named(text: str, options: Sequence[str]) -> str | None:
    """The letter of the one option whose text occurs in a short text that negates nothing."""
    rest, found = normalise(text), list[str]()
    for option, letter in sorted(zip(options, letters_of(options), strict=True), key=lambda pair: -len(pair[0])):
        without = re.sub(rf"(?<!\w){re.escape(normalise(option))}(?!\w)", " ", rest)
        if without != rest:
            rest, found = without, [*found, letter]
    if not found or _NEGATED.search(rest):
        return None
    return found[0] if len(found) == 1 else _UNSETTLED


def _led(body: str, options: Sequence[str]) -> str | None:
    """A text that opens with "B." or "(B)" and has no other line led so, unless another option's text follows."""
    opening = _LED.match(body)
    if not opening or len({found.group(1) for found in _LED.finditer(body)}) > 1:
        return None
    letter = _known(opening.group(1), letters_of(options))
    opened = _begun(body[opening.end() :], options)
    return _settled(letter) if opened in (None, letter) else None


def _framing_line(body: str, options: Sequence[str]) -> str | None:
    """The letter that the first or the last line is, or whose option it equals, unless the two differ."""
    lines = body.split("\n")
    said = {letter for line in (lines[0], lines[-1]) for letter in _line_said(line, options)}
    return said.pop() if len(said) == 1 else None


def _line_said(line: str, options: Sequence[str]) -> Iterator[str]:
    letters = letters_of(options)
    if (whole := _WHOLE.fullmatch(line)) and (letter := _known(whole.group(1), letters)):
        yield letter
    plain = normalise(line)
    same = [letter for letter, option in zip(letters, options, strict=True) if normalise(option) == plain]
    if len(same) == 1:
        yield same[0]


def _begun(body: str, options: Sequence[str]) -> str | None:
    """The letter of the longest option that a text begins with."""
    plain = normalise(body[: _TAIL_CHARACTERS * 2])
    begun = [
        (len(option), letter)
        for letter, option in zip(letters_of(options), options, strict=True)
        if re.match(rf"{re.escape(normalise(option))}(?!\w)", plain)
    ]
    return max(begun)[1] if begun else None


def _opening(body: str, options: Sequence[str]) -> str | None:
    """A text that opens with an option's whole text, or with the yes or no of one option, and names no other."""
    letters = letters_of(options)
    if letter := _begun(body, options):
        option = normalise(options[letters.index(letter)])
        after = normalise(body)[len(option) :].lstrip(" *_\"'`")
        return letter if after[:1] in (",", ".", ";", ":", "(") and _others_absent(after, options, letter) else None
    if word := _YES_NO.match(body):
        said = word.group(1).lower()
        same = [
            letter for letter, option in zip(letters, options, strict=True) if re.match(rf"{said}\b", normalise(option))
        ]
        return same[0] if len(same) == 1 else None
    return None


def _others_absent(text: str, options: Sequence[str], letter: str) -> bool:
    others = [option for other, option in zip(letters_of(options), options, strict=True) if other != letter]
    return not any(re.search(rf"(?<!\w){re.escape(normalise(option))}(?!\w)", text) for option in others)
