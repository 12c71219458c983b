"""Where does a text say an answer literally, in whatever spelling the normal form takes for the same?"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

from rewards.normal_form import normalise

GAP = "..."
_PIECE = re.compile(r"\w+|[^\w\s]")
_BETWEEN_WORDS = r"[\s\"'`*_“”‘’«»-]+"
_COMPASS = re.compile(r"(north|south)(east|west)")


def says_literally(text: str, answer: str) -> bool:
    """Whether the answer stands in the text, as whole words, in any spelling with the same normal form."""
    pattern = _spellings(answer)
    return pattern is not None and pattern.search(_plain(text)) is not None


def cut_out(text: str, answer: str) -> str:
    """The text with every literal occurrence of the answer, and the article before it, replaced by `...`."""
    pattern = _spellings(answer)
    return pattern.sub(GAP, _plain(text)) if pattern else text


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


@lru_cache(maxsize=1 << 10)
def _spellings(answer: str) -> re.Pattern[str] | None:
    """What matches the answer's spellings, or None for an answer whose normal form is empty."""
    pieces = _PIECE.findall(normalise(answer))
    if not pieces:
        return None
    body = _spelling(pieces[0])
    for before, piece in pairwise(pieces):
        both_words = before[-1].isalnum() and piece[0].isalnum()
        body += (_BETWEEN_WORDS if both_words else r"\s*") + _spelling(piece)
    left = r"(?<!\w)(?:(?:the|an?)\s+)?" if pieces[0][0].isalnum() else ""
    right = r"(?!\w)" if pieces[-1][-1].isalnum() else ""
    return re.compile(left + body + right, re.IGNORECASE)


def _spelling(piece: str) -> str:
    if piece == "meters":
        return "meters?"
    return _COMPASS.sub(r"\1[-\\s]?\2", piece) if _COMPASS.search(piece) else re.escape(piece)
