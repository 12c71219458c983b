"""Model text -> its parts. The one reader of responses: rewards, verifier, evaluation and trace checks all call it.

The trained format is

    <location>white car: [640, 410, 812, 560]</location>
    <think>step by step</think>
    <answer>White car</answer>

Nothing here raises on model text: what is wrong with a response comes back as reason codes.
"""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rewards.boxes import Box, Size, area, clip_box, sort_corners

LOCATED_TAGS = ("location", "think", "answer")
PARSER_REASONS = (
    "missing_tag", "duplicate_tag", "nested_tag", "unclosed_tag", "tag_order", "text_outside",
    "empty_part", "no_box", "box_clipped", "box_degenerate", "duplicate_object", "truncated",
)  # fmt: skip
_HARMLESS = {"box_clipped", "box_degenerate", "duplicate_object"}

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)"
_GAP = r"\s*,\s*"
_POINT = rf"[\[(]\s*({_NUMBER}){_GAP}({_NUMBER})\s*[\])]"
_FLAT_BOX = re.compile(rf"[\[(]\s*({_NUMBER}){_GAP}({_NUMBER}){_GAP}({_NUMBER}){_GAP}({_NUMBER})\s*[\])]")
_CORNER_BOX = re.compile(rf"[\[(]?\s*{_POINT}{_GAP}{_POINT}\s*[\])]?")
_ANY_BOX = re.compile(f"{_FLAT_BOX.pattern}|{_CORNER_BOX.pattern}")
_WHOLE_LIST = re.compile(rf"[\[(]\s*({_NUMBER}(?:{_GAP}{_NUMBER})*)\s*[\])]")
_SPECIAL_TOKEN = re.compile(r"<\|[^<>|]*\|>|</?s>|<(?:pad|eos|bos|unk)>")
_OUTER_TOKENS = re.compile(rf"\A(?:\s|{_SPECIAL_TOKEN.pattern})+|(?:\s|{_SPECIAL_TOKEN.pattern})+\Z")
_CODE_FENCE = re.compile(r"```(?:json)?")
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
        return all(reason in _HARMLESS for reason in self.reasons)


def parse(text: str, size: Size | None = None, tags: Sequence[str] = LOCATED_TAGS) -> Response:
    """Read a response.

    text: the model's output. size: (width, height) of the frame; boxes are cut at it when given.
    tags: the tags that the strict format asks for, in order.
    """
    body = strip_special_tokens(text)
    location = _first_part(body, "location")
    boxes, box_reasons = read_boxes(location or "", size)
    reasons = list(_format_reasons(body, tags))
    if "location" in tags and location is not None and not boxes:
        reasons.append("no_box")
    reasons += box_reasons
    return Response(location, _think_part(body), last_answer(body), boxes, tuple(dict.fromkeys(reasons)))


def strip_special_tokens(text: str) -> str:
    """The text without white space and chat or padding tokens (`<|im_end|>`, `</s>`, ...) at its ends."""
    return _OUTER_TOKENS.sub("", text)


def last_answer(text: str) -> str | None:
    """The last complete `<answer>` after the last `</think>` (or of the whole text if none closes), or None."""
    after_think = text.rsplit("</think>", 1)[-1]
    found = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", after_think, re.DOTALL)
    return found[-1].strip() if found else None


def first_answer(text: str) -> str:
    """The first `<answer>...</answer>`, wherever it stands, or an empty string: the published extraction."""
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found.group(1).strip() if found else ""


def read_boxes(text: str, size: Size | None = None) -> tuple[tuple[NamedBox, ...], list[str]]:
    """Named boxes of a location part, and reason codes.

    Reads `name: [x1, y1, x2, y2]`, JSON objects with `bbox_2d`, and `(x1, y1), (x2, y2)`; full-width forms count as
    plain ones. Reversed corners are sorted; boxes are cut at `size` when given.
    """
    plain = _SPECIAL_TOKEN.sub(" ", _CODE_FENCE.sub("", unicodedata.normalize("NFKC", text))).strip()
    boxes, reasons = [], []
    for name, values in _json_boxes(plain) or _plain_boxes(plain):
        if not all(math.isfinite(value) for value in values):
            continue
        box = sort_corners(values)
        clipped = clip_box(box, size) if size else box
        if clipped != box:
            reasons.append("box_clipped")
        if area(clipped) <= 0:
            reasons.append("box_degenerate")
        boxes.append(NamedBox(name, clipped))
    names = [named.name for named in boxes]
    if len(set(names)) < len(names):
        reasons.append("duplicate_object")
    return tuple(boxes), reasons


def read_point(answer: str) -> tuple[float, float] | None:
    """The point that a whole answer is: one list of two numbers, or of four (a box: its centre); else None."""
    found = _WHOLE_LIST.fullmatch(unicodedata.normalize("NFKC", answer).strip())
    if not found:
        return None
    numbers = [float(number) for number in found.group(1).split(",")]
    return _point_of(numbers) if all(map(math.isfinite, numbers)) else None


def first_number_list(answer: str) -> list[float] | None:
    """The first square-bracketed list of digits, signs, points, commas and blanks, if it is two or four numbers.

    The published reading of a point: the list is evaluated as Python would.
    """
    found = re.search(r"\[\s*[-+\d.,\s]+\]", answer)
    if not found:
        return None
    try:
        numbers = ast.literal_eval(found.group(0))
    except (SyntaxError, ValueError):
        return None
    return numbers if len(numbers) in (2, 4) else None


def numbers_in(text: str) -> list[float]:
    """All plain numbers in a text, in order."""
    return [float(number) for number in re.findall(_NUMBER, text)]


def without_articles(text: str) -> str:
    """The text without the words a, an and the."""
    return re.sub(r"\b(?:a|an|the)\b", "", text)


def contains_phrase(text: str, phrase: str) -> bool:
    """Whether `phrase` stands in `text` between word boundaries."""
    return re.search(rf"\b{re.escape(phrase)}\b", text) is not None


def map_coordinates(text: str, convert: Callable[[list[float]], Sequence[float]]) -> str:
    """The text with every `[[x, y]]` and `[[x1, y1, x2, y2]]` passed through `convert`, rounded to whole numbers."""

    def replace(found: re.Match[str]) -> str:
        numbers = [float(number) for number in found.group(1).split(",")]
        if len(numbers) not in (2, 4):
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
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return found.group(1).strip() if found else None


def _think_part(text: str) -> str | None:
    found = re.search(r"<think>(.*)</think>", text, re.DOTALL)
    return found.group(1).strip() if found else None


def _format_reasons(body: str, tags: Sequence[str]) -> Iterator[str]:
    """Why a body is not exactly the wanted tags, each once, in order, filled, with nothing else outside them."""
    open_now: list[str] = []
    opened: list[str] = []
    last_end = 0
    for found in re.finditer(rf"<(/?)({'|'.join(tags)})>", body):
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


def _json_boxes(text: str) -> list[tuple[str, tuple[float, ...]]]:
    """(label, corners) of every JSON object with a `bbox_2d` of four numbers; nothing when the text is no JSON."""
    if "bbox_2d" not in text:
        return []
    try:
        loaded, _ = json.JSONDecoder(parse_int=float).raw_decode(text[_first_bracket(text) :])
    except (ValueError, RecursionError):
        return []
    items = loaded if isinstance(loaded, list) else [loaded]
    return [
        (str(item.get("label", "")).strip(), tuple(item["bbox_2d"]))
        for item in items
        if isinstance(item, dict) and _is_box(item.get("bbox_2d"))
    ]


def _first_bracket(text: str) -> int:
    return min((place for place in (text.find("["), text.find("{")) if place >= 0), default=0)


def _is_box(value: object) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(isinstance(number, float) for number in value)


def _plain_boxes(text: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """(name, corners) of every box; the name is what stands between the box before and this one."""
    last_end = 0
    for found in _ANY_BOX.finditer(text):
        name = text[last_end : found.start()].strip(" \t\r\n,;:*-\"'`{}[]")
        last_end = found.end()
        yield name, tuple(float(value) for value in found.groups() if value is not None)
