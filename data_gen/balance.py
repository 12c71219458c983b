"""How evenly a question file is spread: over tasks, images, options, directions, classes, cameras and depths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from data_gen.blind import RANKS, class_of, true_rank
from data_gen.compass import DIRECTIONS
from data_gen.depth_ranges import FAR_M, NEAR_M
from data_gen.floors import Unit, positions, right_among, widest_ranges
from data_gen.questions import SAME, SAME_DEPTH
from data_gen.records import Question

Counts = dict[str, int]


@dataclass(frozen=True)
class TaskBalance:
    """Numbers of one task.

    largest_image_share: share of the units that the image with most of them holds. ties: share of units whose answer
    is `Almost the same`, None where that is no option. positions: how often the truth stands at which place of the
    options, from 1, question by question (`2, then 1`); always giving that place scores just this share.
    """

    units: int
    questions: int
    images: int
    largest_image_share: float
    ties: float | None
    positions: Counts


@dataclass(frozen=True)
class DepthBand:
    """The depth questions of one band of true depths: which rank their true range has, how often it is the widest."""

    band: str
    units: int
    ranks: Counts
    widest: float


@dataclass(frozen=True)
class Balance:
    """Counts over a whole file; objects are those named, each once per image."""

    tasks: dict[str, TaskBalance]
    depth_bands: tuple[DepthBand, ...]
    headings: Counts
    classes: Counts
    cameras: Counts
    images: int
    scenes: int
    origins: dict[str, Counts]


def balance_of(questions: Sequence[Question], units: Mapping[str, Sequence[Unit]]) -> Balance:
    """All counts of a question file. units: those of each task."""
    objects = {(question.image, item.bbox): class_of(item) for question in questions for item in question.objects}
    cameras = {question.image: question.camera for question in questions}
    headings = Counter(str(unit[0].answer) for unit in units.get("yaw", ()))
    return Balance(
        tasks={task: _task_balance(column) for task, column in units.items()},
        depth_bands=depth_bands([unit[0] for unit in units.get("depth", ())]),
        headings={direction: headings[direction] for direction in DIRECTIONS} if headings else {},
        classes=_counted(objects.values()),
        cameras=_counted(filter(None, cameras.values())),
        images=len(cameras),
        scenes=len({question.scene for question in questions if question.scene}),
        origins={
            name: _counted(getattr(question, name) or "not recorded" for question in questions)
            for name in ("source", "split")
        }
        | {"depth ranges": _counted(question.depth_ranges for question in questions if question.task == "depth")},
    )


def depth_bands(questions: Sequence[Question]) -> tuple[DepthBand, ...]:
    """The bands of the published construction: nearer than 7 m, 7 to 15 m, farther than 15 m; empty ones left out."""
    bands: dict[str, list[Question]] = {f"below {NEAR_M:g} m": [], f"{NEAR_M:g} to {FAR_M:g} m": []}
    bands[f"above {FAR_M:g} m"] = []
    near, middle, far = bands
    for question in questions:
        depth_m = question.objects[0].xyz_m[2]
        bands[near if depth_m < NEAR_M else far if depth_m > FAR_M else middle].append(question)
    return tuple(_depth_band(name, members) for name, members in bands.items() if members)


def commonest_rank_of_band(bands: Sequence[DepthBand]) -> float:
    """What a model scores that knows the band of the true depth and takes the rank that is commonest there."""
    return sum(max(band.ranks.values()) for band in bands) / sum(band.units for band in bands)


def _depth_band(name: str, questions: Sequence[Question]) -> DepthBand:
    ranks = Counter(map(true_rank, questions))
    widest = sum(right_among(question, widest_ranges(question)) for question in questions) / len(questions)
    return DepthBand(name, len(questions), {rank: ranks[rank] for rank in RANKS}, widest)


def _task_balance(units: Sequence[Unit]) -> TaskBalance:
    per_image = Counter(unit[0].image for unit in units)
    choice = bool(units[0][0].options)
    tied = [unit[0].answer in (SAME, SAME_DEPTH) for unit in units]
    return TaskBalance(
        units=len(units),
        questions=sum(map(len, units)),
        images=len(per_image),
        largest_image_share=max(per_image.values()) / len(units),
        ties=sum(tied) / len(tied) if {SAME, SAME_DEPTH} & set(units[0][0].options) else None,
        positions=_counted(_told(positions(unit)) for unit in units) if choice else {},
    )


def _told(places: Sequence[int]) -> str:
    return ", then ".join(str(place + 1) for place in places)


def _counted(items: Iterable[Hashable]) -> Counts:
    """Counts by item, the commonest first."""
    return {str(item): count for item, count in Counter(items).most_common()}
