"""Model text -> its parts. The one reader of responses: rewards, verifier, evaluation and trace checks all call it.

The trained format is

    <location>white car: [640, 410, 812, 560]</location>
    <think>step by step</think>
    <answer>White car</answer>

Nothing here raises on model text: what is wrong with a response comes back as reason codes.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from rewards.boxes import Box, Size, area, clip_box, sort_corners
from rewards.normal_form import normalise

LOCATED_TAGS = ("location", "think", "answer")
PARSER_REASONS = (
    "missing_tag", "duplicate_tag", "nested_tag", "unclosed_tag", "tag_order", "text_outside",
    "empty_part", "no_box", "box_clipped", "box_degenerate", "duplicate_object", "truncated",
)  # fmt: skip
_HARMLESS = frozenset({"box_clipped", "box_degenerate", "duplicate_object"})

# No pattern may start with, or hold two neighbouring, repeats of blanks: 100,000 of them would take minutes.
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)"
_GAP = r"\s*,\s*"
_POINT = rf"[\[(]\s*({_NUMBER}){_GAP}({_NUMBER})\s*[\])]"
_FLAT_BOX = rf"[\[(]\s*({_NUMBER}){_GAP}({_NUMBER}){_GAP}({_NUMBER}){_GAP}({_NUMBER})\s*(?:,\s*)?[\])]"
_CORNER_BOX = rf"(?:[\[(]\s*)?{_POINT}\s*(?:,\s*|to\s+)?{_POINT}(?:\s*[\])])?"
_ANY_BOX = re.compile(f"{_FLAT_BOX}|{_CORNER_BOX}")
_NUMBERS = rf"\s*({_NUMBER}(?:{_GAP}{_NUMBER})*)\s*"
_WHOLE_LIST = re.compile(rf"\[{_NUMBERS}\]|\({_NUMBERS}\)")
_WHOLE_NUMBER = re.compile(rf"{_NUMBER}(?:[eE][-+]?\d+)?")
# A number as Python's own syntax has it: no leading zeros in a whole one, blanks after the sign.
_PYTHON_NUMBER = re.compile(r"([-+]?)[ \t\n\r\f]*((?:0+|[1-9][0-9]*)|[0-9]+\.[0-9]*|\.[0-9]+)")
_SPECIAL_TOKEN = re.compile(r"<\|[^<>|]*\|>|</?s>|<(?:pad|eos|bos|unk)>")
_LEADING_TOKENS = re.compile(rf"(?:\s|{_SPECIAL_TOKEN.pattern})*")
_LAST_TOKEN = re.compile(rf"(?:{_SPECIAL_TOKEN.pattern})\Z")
_LONGEST_TOKEN = 64
_MARKUP = re.compile(rf"</?(?:{'|'.join(LOCATED_TAGS)})>|{_SPECIAL_TOKEN.pattern}")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_CODE_FENCE = re.compile(r"```(?:json)?")
_BOX_KEY = re.compile(r"[\"']?bbox_2d[\"']?\s*:\s*\Z")
_LABEL = re.compile(r"\"label\"\s*:\s*\"([^\"]*)\"|'label'\s*:\s*'([^']*)'")
_KEY = re.compile(r"\"([^\"]*)\"\s*:\s*\Z|'([^']*)'\s*:\s*\Z")
_BEFORE_NAME = re.compile(r"(?:[^\w(<]|\d+[.)]\s|and\b)*", re.IGNORECASE)
_AFTER_NAME = re.compile(r"(?:\s+(?:is|are|at|in|located))+\Z|[\s:=({\[\"'`*|,.;-]+\Z")
_INNER_COORDINATES = re.compile(rf"\[\[\s*({_NUMBER}(?:{_GAP}{_NUMBER})*)\s*\]\]")


@dataclass(frozen=True)
class NamedBox:
    """One box of the location part: the name before it (may be empty) and its corners in the frame of the run."""

    name: str
    box_xyxy: Box


@dataclass(frozen=True)
class Response:
    """What a model's text holds: parts as written (None: not there) and reason codes, first problem first."""

    location: str | None
    think: str | None
    answer: str | None
    boxes: tuple[NamedBox, ...]
    reasons: tuple[str, ...]

    @property
    def well_formed(self) -> bool:
        """The strict format holds: every tag once, in order, filled, nothing outside, at least one readable box."""
        return _HARMLESS.issuperset(self.reasons)


def parse(text: str, size: Size | None = None, tags: Sequence[str] = LOCATED_TAGS) -> Response:
    """Read a response.

    text: the model's output. size: (width, height) of the frame; boxes are cut at it when given.
    tags: the tags that the strict format asks for, in order.
    """
    body = strip_special_tokens(text)
    location = _first_part(body, "location")
    boxes, box_reasons = read_boxes(location, size) if location else ((), [])
    reasons = list(_format_reasons(body, tags))
    if "location" in tags and location is not None and not boxes:
        reasons.append("no_box")
    reasons += box_reasons
    return Response(location, _think_part(body), last_answer(body), boxes, tuple(dict.fromkeys(reasons)))


def strip_special_tokens(text: str) -> str:
    """The text without white space and chat or padding tokens (`<|im_end|>`, `</s>`, ...) at its ends."""
    leading = _LEADING_TOKENS.match(text)
    text = text[leading.end() :].rstrip() if leading else text
    while found := _LAST_TOKEN.search(text, max(0, len(text) - _LONGEST_TOKEN)):
        text = text[: found.start()].rstrip()
    return text


def last_answer(text: str) -> str | None:
    """The last complete `<answer>` after the last `</think>`, or None; what stands inside `<think>` never counts.

    A `<think>` that never closes runs to the end of the text.
    """
    outside = text.rpartition("</think>")[2].partition("<think>")[0]
    answer, start = None, 0
    while (end := outside.find("</answer>", start)) >= 0:
        opening = outside.rfind("<answer>", start, end)
        if opening >= 0:
            answer = outside[opening + len("<answer>") : end].strip()
        start = end + len("</answer>")
    return answer


def first_answer(text: str) -> str:
    """The first `<answer>...</answer>`, wherever it stands, or an empty string: the published extraction."""
    return _first_part(text, "answer") or ""


def read_boxes(text: str, size: Size | None = None) -> tuple[tuple[NamedBox, ...], list[str]]:
    """Named boxes of a location part, and reason codes.

    Reads `name: [x1, y1, x2, y2]`, JSON objects with `bbox_2d`, and `(x1, y1), (x2, y2)`; full-width forms count as
    plain ones. Reversed corners are sorted; boxes are cut at `size` when given.
    """
    plain = unicodedata.normalize("NFKC", text).replace("\N{MINUS SIGN}", "-")
    plain = _SPECIAL_TOKEN.sub(" ", _CODE_FENCE.sub("", plain)).strip()
    boxes, reasons = [], []
    for name, values in _named_boxes(plain):
        if not all(math.isfinite(value) for value in values):
            continue
        box = sort_corners(values)
        clipped = clip_box(box, size) if size else box
        if clipped != box:
            reasons.append("box_clipped")
        if area(clipped) <= 0:
            reasons.append("box_degenerate")
        boxes.append(NamedBox(name, clipped))
    names = [normalise(named.name) for named in boxes if named.name]
    if len(set(names)) < len(names):
        reasons.append("duplicate_object")
    return tuple(boxes), reasons


def read_point(answer: str) -> tuple[float, float] | None:
    """The point that a whole answer is: one list of two numbers, or of four (a box: its centre); else None."""
    numbers = whole_list(answer)
    return _point_of(numbers) if numbers else None


def whole_list(text: str) -> list[float] | None:
    """The finite numbers of the one list in [] or () that a whole text is, else None."""
    found = _WHOLE_LIST.fullmatch(unicodedata.normalize("NFKC", text).strip())
    if not found:
        return None
    numbers = [float(number) for number in (found.group(1) or found.group(2)).split(",")]
    return numbers if all(map(math.isfinite, numbers)) else None


def whole_number(text: str) -> float | None:
    """The finite number that a whole text is, else None; with an exponent, without words such as nan."""
    found = _WHOLE_NUMBER.fullmatch(unicodedata.normalize("NFKC", text).strip())
    number = float(found[0]) if found else math.inf
    return number if math.isfinite(number) else None


def between(text: str, start: str, end: str) -> str | None:
    """What stands between the first `start` and the next `end`, stripped; None where one of them is missing."""
    _, opening, rest = text.partition(start)
    part, closing, _ = rest.partition(end)
    return part.strip() if opening and closing else None


def first_number_list(answer: str) -> list[float] | None:
    """The first square-bracketed list of digits, signs, points, commas and blanks, if it is two or four numbers.

    The published reading of a point: the list must be one in Python's syntax.
    """
    found = re.search(r"\[([-\d.,\s]+)\]", answer)
    if not found:
        return None
    parts = [_PYTHON_NUMBER.fullmatch(part.strip(" \t\n\r\f")) for part in found.group(1).split(",")]
    if len(parts) > 1 and found.group(1).rstrip().endswith(","):
        parts.pop()
    numbers = [float(part.group(1) + part.group(2)) for part in parts if part]
    return numbers if len(numbers) == len(parts) and len(numbers) in (2, 4) else None


def numbers_in(text: str) -> list[float]:
    """All plain numbers in a text, in order."""
    return [float(number) for number in re.findall(_NUMBER, text)]


def without_articles(text: str) -> str:
    """The text without the words a, an and the."""
    return _ARTICLE.sub("", text)


def holds_markup(text: str) -> bool:
    """Whether a text holds one of the response's tags or a special token."""
    return _MARKUP.search(text) is not None


def contains_phrase(text: str, phrase: str) -> bool:
    """Whether `phrase` stands in `text` between word boundaries."""
    return phrase in text and re.search(rf"\b{re.escape(phrase)}\b", text) is not None


def map_coordinates(text: str, convert: Callable[[list[float]], Sequence[float]]) -> str:
    """The text with every `[[x, y]]` and `[[x1, y1, x2, y2]]` passed through `convert`, rounded to whole numbers.

    What holds a number too large for a float stays as it is.
    """

    def replace(found: re.Match[str]) -> str:
        numbers = [float(number) for number in found.group(1).split(",")]
        if len(numbers) not in (2, 4) or not all(map(math.isfinite, numbers)):
            return found[0]
        return f"[[{', '.join(str(round(value)) for value in convert(numbers))}]]"

    return _INNER_COORDINATES.sub(replace, text)


def _point_of(numbers: list[float]) -> tuple[float, float] | None:
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    if len(numbers) == 4:
        return (numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2
    return None


def _first_part(text: str, tag: str) -> str | None:
    return between(text, f"<{tag}>", f"</{tag}>")


def _think_part(text: str) -> str | None:
    """From the first opening to the last closing tag."""
    _, opening, rest = text.partition("<think>")
    part, closing, _ = rest.rpartition("</think>")
    return part.strip() if opening and closing else None


@cache
def _any_tag(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(/?)({'|'.join(tags)})>")


def _format_reasons(body: str, tags: Sequence[str]) -> Iterator[str]:
    """Why a body is not exactly the wanted tags, each once, in order, filled, with nothing else outside them."""
    open_now: list[str] = []
    opened: list[str] = []
    last_end = 0
    for found in _any_tag(tuple(tags)).finditer(body):
        closing, tag = found.group(1) == "/", found.group(2)
        between = body[last_end : found.start()].strip()
        last_end = found.end()
        if not open_now and between:
            yield "text_outside"
        if not closing:
            if open_now:
                yield "nested_tag"
            if tag in opened:
                yield "duplicate_tag"
            opened.append(tag)
            open_now.append(tag)
        elif tag in open_now:
            while open_now.pop() != tag:
                yield "unclosed_tag"
            if not between:
                yield "empty_part"
        else:
            yield "missing_tag"
    if body[last_end:].strip() and not open_now:
        yield "text_outside"
    if open_now:
        yield "unclosed_tag"
        yield "truncated"
    if any(tag not in opened for tag in tags):
        yield "missing_tag"
    elif list(dict.fromkeys(opened)) != list(tags):
        yield "tag_order"


def _named_boxes(text: str) -> list[tuple[str, tuple[float, ...]]]:
    """(name, corners) of every box, in order.

    The name is the `label` of the JSON object the box is the `bbox_2d` of, else what stands before the box; where
    nothing stands before the first one and something after the last, it is what stands after each.
    """
    matches = list(_ANY_BOX.finditer(text))
    starts = [0, *(found.end() for found in matches)]
    ends = [*(found.start() for found in matches), len(text)]
    gaps = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    names_follow = bool(matches) and not _clean_name(gaps[0]) and bool(_clean_name(gaps[-1]))
    named = []
    for place, found in enumerate(matches):
        before, after = gaps[place], gaps[place + 1]
        in_json = _BOX_KEY.search(before)
        name = _label_of(before, after) if in_json else _clean_name(after if names_follow else before)
        named.append((name, tuple(float(value) for value in found.groups() if value is not None)))
    return named


def _label_of(before: str, after: str) -> str:
    """The label in the JSON object around a `bbox_2d`, or the key that the object stands under."""
    outside, _, inside = before.rpartition("{")
    label = _LABEL.search(inside) or _LABEL.search(re.split(r"[{}]", after, maxsplit=1)[0]) or _KEY.search(outside)
    return (label.group(1) or label.group(2) or "").strip() if label else ""


def _clean_name(gap: str) -> str:
    """The name in the text between two boxes: its last line that says something, without marks and small words."""
    said = [line for line in re.split(r"[\n\]}]", gap) if any(map(str.isalnum, line))]
    if not said:
        return ""
    name = said[-1].strip()
    leading = _BEFORE_NAME.match(name)
    name = name[leading.end() :] if leading else name
    while trimmed := _AFTER_NAME.search(name):
        name = name[: trimmed.start()]
    return name
