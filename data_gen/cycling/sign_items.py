"""Items about traffic signs: grounding, recognition with and without a marked region, and referring expressions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from data_gen.cycling.annotations import Photo, Thing
from data_gen.cycling.catalogue import without
from data_gen.cycling.drafts import Dealer, Draft, Drop, Made, with_truth_at
from data_gen.cycling.marks import COLOURS, Region
from data_gen.cycling.records import MOST_CHOICES
from rewards.boxes import Box, Size
from rewards.normal_form import normalise

FREE_BOX_TRIES = 200
MARGIN = 0.02  # least gap between marked regions, as a share of the image's width


def sign_grounding(photo: Photo, size: Size, dealer: Dealer) -> Iterator[Made]:
    """One sign among regions without a sign: other annotated things, then free places of the photograph."""
    rng = dealer.rng("TSG", photo.image)
    if not photo.signs:
        yield Drop("TSG", photo.image, "no_sign")
        return
    sign = rng.choice(photo.signs)
    others = _other_boxes(photo, sign.box, size, dealer.choices - 1, rng)
    if not others:
        yield Drop("TSG", photo.image, "no_room_for_another_region")
        return
    place = dealer.place("TSG", len(others) + 1)
    boxes = [*others[:place], sign.box, *others[place:]]
    names = region_names(len(boxes))
    question = f"Seen from a bicycle: which of the marked regions {', '.join(names)} holds a traffic sign?"
    yield Draft("TSG", (photo.image,), question, names, place, numbered(boxes))


def referring_expressions(photo: Photo, size: Size, dealer: Dealer) -> Iterator[Made]:
    """For every label that one sign alone has: which of the marked signs it describes."""
    rng = dealer.rng("RED", photo.image)
    if len(photo.signs) < 2:
        yield Drop("RED", photo.image, "fewer_than_two_signs")
        return
    times = Counter(normalise(sign.label) for sign in photo.signs)
    for sign in photo.signs:
        if times[normalise(sign.label)] > 1:
            yield Drop("RED", photo.image, "label_of_several_signs")
            continue
        others = [other.box for other in photo.signs if other is not sign]
        others = rng.sample(others, min(len(others), MOST_CHOICES - 1))
        place = dealer.place("RED", len(others) + 1)
        boxes = [*others[:place], sign.box, *others[place:]]
        names = region_names(len(boxes))
        question = f'Several signs are marked: {", ".join(names)}. Which of them means "{sign.label}"?'
        yield Draft("RED", (photo.image,), question, names, place, numbered(boxes))


def recognition_with_region(photo: Photo, size: Size, dealer: Dealer) -> Iterator[Made]:
    """For every sign: what it says. The other signs of the photograph are among the wrong choices."""
    rng = dealer.rng("TSR+S", photo.image)
    if not photo.signs:
        yield Drop("TSR+S", photo.image, "no_sign")
    for sign in photo.signs:
        near = without([other.label for other in photo.signs], [sign.label])
        far = without(dealer.labels, [sign.label, *near])
        wrong = [*near, *rng.sample(far, len(far))][: dealer.choices - 1]
        question = "What does the traffic sign in region <1> mean?"
        marks = (Region(sign.box, "<1>", COLOURS[0]),)
        yield from _labelled("TSR+S", photo, question, sign.label, rng.sample(wrong, len(wrong)), dealer, marks)


def recognition(photo: Photo, size: Size, dealer: Dealer) -> Iterator[Made]:
    """Which of the described signs is in the photograph; nothing is marked, and the wrong ones are not there."""
    rng = dealer.rng("TSR", photo.image)
    if not photo.signs:
        yield Drop("TSR", photo.image, "no_sign")
        return
    present = [sign.label for sign in photo.signs]
    absent = without(dealer.labels, present)
    wrong = rng.sample(absent, min(len(absent), dealer.choices - 1))
    question = "Looking ahead from the bicycle: a traffic sign with which of these meanings is in the image?"
    yield from _labelled("TSR", photo, question, rng.choice(present), wrong, dealer)


def _labelled(
    task: str,
    photo: Photo,
    question: str,
    truth: str,
    wrong: Sequence[str],
    dealer: Dealer,
    regions: tuple[Region, ...] = (),
) -> Iterator[Made]:
    """An item whose choices are labels; a drop when there is no wrong one."""
    if not wrong:
        yield Drop(task, photo.image, "no_other_label_in_the_catalogue")
        return
    place = dealer.place(task, len(wrong) + 1)
    yield Draft(task, (photo.image,), question, with_truth_at(place, truth, wrong), place, regions)


def region_names(count: int) -> tuple[str, ...]:
    """`<1>`, `<2>`, ..."""
    return tuple(f"<{number}>" for number in range(1, count + 1))


def numbered(boxes: Sequence[Box]) -> tuple[Region, ...]:
    """The boxes as regions, numbered from 1, each in a colour of its own."""
    names = region_names(len(boxes))
    return tuple(Region(box, name, colour) for box, name, colour in zip(boxes, names, COLOURS, strict=False))


def _other_boxes(photo: Photo, sign: Box, size: Size, count: int, rng: random.Random) -> list[Box]:
    """Up to `count` boxes clear of every sign and of each other."""
    margin_px = MARGIN * size[0]
    taken = [thing.box for thing in photo.signs]
    chosen: list[Box] = []
    things: list[Thing] = rng.sample(photo.others, len(photo.others))
    free = (_free_box(sign, size, rng) for _ in range(FREE_BOX_TRIES))
    for box in [*(thing.box for thing in things), *free]:
        if len(chosen) == count:
            break
        if not any(_close(box, other, margin_px) for other in (*taken, *chosen)):
            chosen.append(box)
    return rng.sample(chosen, len(chosen))


def _free_box(sign: Box, size: Size, rng: random.Random) -> Box:
    """A box somewhere in the image, about as large as the sign's."""
    width, height = ((high - low) * rng.uniform(0.8, 1.6) for low, high in ((sign[0], sign[2]), (sign[1], sign[3])))
    width, height = min(width, size[0]), min(height, size[1])
    x, y = rng.uniform(0, size[0] - width), rng.uniform(0, size[1] - height)
    return round(x), round(y), round(x + width), round(y + height)


def _close(first: Box, second: Box, margin_px: float) -> bool:
    return (
        first[0] < second[2] + margin_px
        and second[0] < first[2] + margin_px
        and first[1] < second[3] + margin_px
        and second[1] < first[3] + margin_px
    )
