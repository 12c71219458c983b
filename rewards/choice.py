"""Multiple choice: which letter does a model's free text give? Rules only; undecided texts give None."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

_MARKED = re.compile(r"(answer|option|choice)(?:is|[\s:=])*+[\s*_(\[\"'`]*+([A-Za-z])(?![A-Za-z0-9'])", re.IGNORECASE)
_WHOLE = re.compile(r"[*_(\[\"'`\s]*([A-Za-z])[*_)\]\"'`.:\s]*")
_LED = re.compile(r"[(\[]?([A-Z])[)\].:]\s+(\S.*)\Z", re.DOTALL)
_BOXED = re.compile(r"\\boxed\{\s*([A-Za-z])\s*\}")


def read_choice(text: str, options: Sequence[str]) -> str | None:
    """The letter (A, B, ...) of the chosen option, or None when the text does not settle on one.

    In order: a text that is one letter, a boxed letter, the last "answer: X" or "answer is X" (then "option X"), an
    option led by its letter, a text that equals one option.
    """
    letters = string.ascii_uppercase[: len(options)]
    body = text.strip()
    if whole := _WHOLE.fullmatch(body):
        return _known(whole.group(1), letters)
    if boxed := _BOXED.findall(body):
        return _known(boxed[-1], letters)
    marked = [found for found in _MARKED.finditer(body) if _is_choice(found, body)]
    # "answer: B" says more than "option A", which may be talked about.
    if marked := [found for found in marked if found.group(1).lower() == "answer"] or marked:
        return _known(marked[-1].group(2), letters)
    if led := _LED.match(body):
        letter = _known(led.group(1), letters)
        told = letter and _plain(led.group(2)) == _plain(options[letters.index(letter)])
        return letter if told else None
    same = [letter for letter, option in zip(letters, options, strict=True) if _plain(option) == _plain(body)]
    return same[0] if len(same) == 1 else None


def _plain(text: str) -> str:
    return text.strip(" .\n\t").casefold()


def _known(letter: str, letters: str) -> str | None:
    return letter.upper() if letter.upper() in letters else None


def _is_choice(found: re.Match[str], body: str) -> bool:
    """A lower-case letter, or an article before another word ("the answer is a red car"), is no choice."""
    letter, rest = found.group(2), body[found.end() :]
    return letter.isupper() and not (letter == "A" and re.match(r"\s+[a-z]", rest))
