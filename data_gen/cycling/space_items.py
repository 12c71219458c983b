"""Items about space and time: where two things are, which image came first, which lane is whose, where one may ride."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from data_gen.cycling.annotations import CYCLE_LANE, Photo, Thing
from data_gen.cycling.drafts import Dealer, Draft, Drop, Made, with_truth_at
from data_gen.cycling.marks import COLOURS, Region, Shaded
from data_gen.cycling.records import MOST_CHOICES
from rewards.boxes import Size

PAIR_COLOURS = ("#1fa84a", "#ff3b30")  # the two things of a spatial question
RIDE_COLOUR = "#ff2d92"
APART = 0.05  # least difference of two centres, as a share of the image's width, for one to be further left
YES, NO = "Yes, cycling is allowed on it", "No, cycling is not allowed on it"
IN_TIME = ("Image 1", "Image 2")


def spatial_understanding(photo: Photo, size: Size, dealer: Dealer) -> Iterator[Made]:
    """Of one pair of things which is further left, and of one which is nearer."""
    rng = dealer.rng("SU", photo.image)
    pairs = list(combinations(photo.things, 2))
    rng.shuffle(pairs)
    beside = next((pair for pair in pairs if _side_by_side(pair, size)), None)
    behind = next((pair for pair in pairs if _one_nearer(pair)), None)
    if beside:
        yield _of_two("further to the left in the image than", sorted(beside, key=_centre_x), photo, dealer)
    if behind:
        nearer_first = sorted(behind, key=lambda thing: thing.depth_order or 0)
        yield _of_two("nearer to the cyclist than", nearer_first, photo, dealer)
    if not (beside or behind):
        yield Drop("SU", photo.image, "no_two_things_apart")


def _of_two(relation: str, things: Sequence[Thing], photo: Photo, dealer: Dealer) -> Draft:
    """A question whose answer is that the first thing stands in the relation to the second."""
    numbers = (2, 1) if dealer.place("SU number", 2) else (1, 2)
    boxes = [box for _, box in sorted(zip(numbers, (thing.box for thing in things), strict=True))]
    regions = tuple(Region(box, f"<{n}>", colour) for n, box, colour in zip((1, 2), boxes, PAIR_COLOURS, strict=True))
    true, false = (f"What is in <{a}> is {relation} what is in <{b}>" for a, b in (numbers, numbers[::-1]))
    question = "Region <1> is outlined in green, region <2> in red. Which of these is true, as seen by the cyclist?"
    place = dealer.place("SU", 2)
    return Draft("SU", (photo.image,), question, with_truth_at(place, true, [false]), place, regions)


def _centre_x(thing: Thing) -> float:
    return (thing.box[0] + thing.box[2]) / 2


def _side_by_side(pair: tuple[Thing, Thing], size: Size) -> bool:
    left, right = sorted(pair, key=_centre_x)
    return left.box[2] <= right.box[0] and _centre_x(right) - _centre_x(left) >= APART * size[0]


def _one_nearer(pair: tuple[Thing, Thing]) -> bool:
    orders = [thing.depth_order for thing in pair]
    return None not in orders and orders[0] != orders[1]


def temporal_ordering(photos: Sequence[Photo], dealer: Dealer) -> Iterator[Made]:
    """Of every two neighbouring photographs of a ride which was taken first."""
    rides: dict[str, list[Photo]] = defaultdict(list)
    for photo in photos:
        if photo.ride is None:
            yield Drop("TO", photo.image, "no_frame_order")
        else:
            rides[photo.ride].append(photo)
    for ride in rides.values():
        in_time = sorted(ride, key=lambda photo: photo.frame or 0)
        if len(in_time) == 1:
            yield Drop("TO", in_time[0].image, "only_photo_of_its_ride")
        for earlier, later in pairwise(in_time):
            if earlier.frame == later.frame:
                yield Drop("TO", later.image, "same_frame_number")
                continue
            place = dealer.place("TO", 2)
            shown = (later.image, earlier.image) if place else (earlier.image, later.image)
            question = "Both images were taken on one ride, riding forward. Which of them was taken first?"
            yield Draft("TO", shown, question, IN_TIME, place)


def lane_recognition(photo: Photo, size: Size, dealer: Dealer) -> Iterator[Made]:
    """Which of the shaded lanes is the cyclist's; numbers and colours are dealt at random."""
    rng = dealer.rng("LR", photo.image)
    cycle_lanes = [lane for lane in photo.lanes if lane.use == CYCLE_LANE]
    if not 2 <= len(photo.lanes) <= MOST_CHOICES or len(cycle_lanes) != 1:
        few = len(photo.lanes) < 2
        reason = "fewer_than_two_lanes" if few else "too_many_lanes" if len(cycle_lanes) == 1 else "not_one_cycle_lane"
        yield Drop("LR", photo.image, reason)
        return
    others = [lane for lane in photo.lanes if lane is not cycle_lanes[0]]
    number = dealer.place("LR number", len(photo.lanes))
    lanes = [*(shuffled := rng.sample(others, len(others)))[:number], cycle_lanes[0], *shuffled[number:]]
    names = [f"Lane {index}" for index in range(len(lanes))]
    shaded = tuple(
        Shaded(lane.polygon, name, colour) for lane, name, colour in zip(lanes, names, COLOURS, strict=False)
    )
    wrong = [name for name in names if name != names[number]]
    place = dealer.place("LR", len(names))
    choices = with_truth_at(place, names[number], rng.sample(wrong, len(wrong)))
    question = "The lanes are shaded and numbered. Which of them is the lane for the cyclist?"
    yield Draft("LR", (photo.image,), question, choices, place, lanes=shaded)


def sign_action(photo: Photo, size: Size, dealer: Dealer) -> Iterator[Made]:
    """For every lane of which a sign says so: may one cycle on it."""
    judged = [lane for lane in photo.lanes if lane.cycling_allowed is not None]
    if not judged:
        yield Drop("SAA", photo.image, "no_lane_with_a_rule")
    for lane in judged:
        truth, other = (YES, NO) if lane.cycling_allowed else (NO, YES)
        place = dealer.place("SAA", 2)
        question = "One lane has been shaded in pink. By the signs and markings in the image, may one cycle on it?"
        shaded = (Shaded(lane.polygon, "", RIDE_COLOUR),)
        yield Draft("SAA", (photo.image,), question, with_truth_at(place, truth, [other]), place, lanes=shaded)
