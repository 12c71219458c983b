"""Annotated photographs -> items: which question, which marks, which choices, where the right one stands.

The right choice's place is dealt from a shuffled deck for every task and number of choices, so that the letters come
out even. Where choices have an order of their own (regions, images) the marks are dealt instead, and the choices stay
in that order. The public project page shows what an item of each task looks like; how its authors chose pairs, regions
and wrong labels is not told there, and the rules here are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_gen.cycling.annotations import Photo
from data_gen.cycling.drafts import Dealer, Draft, Made
from data_gen.cycling.marks import draw_items
from data_gen.cycling.records import TASKS, CyclingItem
from data_gen.cycling.sign_items import recognition, recognition_with_region, referring_expressions, sign_grounding
from data_gen.cycling.space_items import lane_recognition, sign_action, spatial_understanding, temporal_ordering
from data_gen.images import open_rgb
from rewards.boxes import Size

JPEG_QUALITY = 92
_OF_ONE_PHOTO: dict[str, Callable[[Photo, Size, Dealer], Iterator[Made]]] = {
    "TSG": sign_grounding,
    "SU": spatial_understanding,
    "LR": lane_recognition,
    "RED": referring_expressions,
    "TSR+S": recognition_with_region,
    "TSR": recognition,
    "SAA": sign_action,
}


def make_drafts(photos: Sequence[Photo], sizes: dict[str, Size], dealer: Dealer) -> Iterator[Made]:
    """All items that the photographs give, task by task, and what they do not give."""
    for task in TASKS:
        if task == "TO":
            yield from temporal_ordering(photos, dealer)
            continue
        for photo in photos:
            yield from _OF_ONE_PHOTO[task](photo, sizes[photo.image], dealer)


def item_of(draft: Draft, number: int, source: str) -> CyclingItem:
    """A draft as the item it becomes; images that carry no marks are shared by the items that show them."""
    name = f"{draft.task}-{number:04d}"
    marked = draft.regions or draft.lanes
    images = (
        [f"images/{name.replace('+', '_')}.jpg"] if marked else [f"images/photos/{photo}" for photo in draft.photos]
    )
    return CyclingItem(
        name, draft.task, tuple(images), draft.question, draft.choices, draft.answer, draft.photos, source
    )


def picture_of(draft: Draft, images: Path, sizes: dict[str, Size]) -> bytes:
    """The marked photograph of a draft as JPEG. Raises RecordError when it cannot be read."""
    from io import BytesIO

    photo = draft.photos[0]
    drawn = draw_items(open_rgb(images / photo, sizes[photo]), draft.regions, draft.lanes)
    buffer = BytesIO()
    drawn.save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return buffer.getvalue()
