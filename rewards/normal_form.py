"""One form for texts that say the same: used to compare answers with options and names with names."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# Options and names are short and come again with every question; what models write is kept out of the memory.
_LONGEST_KEPT = 80
_QUOTES_AND_MARKDOWN = " \t\r\n\"'`*_“”‘’«»"
_COMPASS = {f"{ns}{gap}{ew}": f"{ns}{ew}" for ns in ("north", "south") for gap in ("-", " ") for ew in ("east", "west")}


def normalise(answer: str) -> str:
    """Strict normal form of an option: case, quotes, markdown, one full stop, one article, blanks, compass hyphens."""
    return _kept(answer) if len(answer) <= _LONGEST_KEPT else _normalise(answer)


def _normalise(answer: str) -> str:
    text = " ".join(unicodedata.normalize("NFKC", answer).lower().split()).strip(_QUOTES_AND_MARKDOWN)
    text = text.removesuffix(".").strip(_QUOTES_AND_MARKDOWN)
    for article in ("the ", "a ", "an "):
        if text.startswith(article):
            text = text.removeprefix(article)
            break
    for spelled, plain in _COMPASS.items():
        text = text.replace(spelled, plain)
    text = text.replace("front-back", "front back")
    return " ".join("meters" if word == "meter" else word for word in text.split())


_kept = lru_cache(maxsize=1 << 14)(_normalise)
