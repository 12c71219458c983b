"""Multiple choice: which letter does a model's free text give? Rules only; undecided texts give None."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

_MARKED = re.compile(r"(?:answer|option|choice)(?:is|[\s:=])*+[\s*_(\[\"'`]*+([A-Za-z])(?![A-Za-z0-9'])", re.IGNORECASE)
_WHOLE = re.compile(r"[*_(\[\"'`\s]*([A-Za-z])[*_)\]\"'`.:\s]*")
_BOXED = re.compile(r"\\boxed\{\s*([A-Za-z])\s*\}")


def read_choice(text: str, options: Sequence[str]) -> str | None:
    """The letter (A, B, ...) of the chosen option, or None when the text does not settle on one.

    In order: a text that is one letter, a boxed letter, the last "answer: X" or "answer is X", a text that equals
    one option.
    """
    letters = string.ascii_uppercase[: len(options)]
    body = text.strip()
    if whole := _WHOLE.fullmatch(body):
        return _known(whole.group(1), letters)
    if boxed := _BOXED.findall(body):
        return _known(boxed[-1], letters)
    marked = [found.group(1) for found in _MARKED.finditer(body) if _is_choice(found, body)]
    if marked:
        return _known(marked[-1], letters)
    plain = body.strip(" .\n\t").casefold()
    same = [letter for letter, option in zip(letters, options, strict=True) if option.strip(" .").casefold() == plain]
    return same[0] if len(same) == 1 else None


def _known(letter: str, letters: str) -> str | None:
    return letter.upper() if letter.upper() in letters else None


def _is_choice(found: re.Match[str], body: str) -> bool:
    """A lower-case letter, or an article before another word ("the answer is a red car"), is no choice."""
    letter, rest = found.group(1), body[found.end() :]
    return letter.isupper() and not (letter == "A" and re.match(r"\s+[a-z]", rest))
