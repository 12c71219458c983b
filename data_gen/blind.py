"""Strategies that answer without the image, and what each scores: whatever beats the bar, a model can exploit too.

A strategy is a score per unit in 0..1, in expectation where it draws or meets a tie. Those called `by ...` are learnt
from other images: five folds of whole scenes (of images where too few scenes are recorded), the commonest answer
among the units of the other folds with the same key, or among all of them where the key is new.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from data_gen.floors import (
    Unit,
    best_point,
    expected_centerness,
    positions,
    range_m,
    right_among,
    self_consistent,
    texts,
    true_place,
    widest_ranges,
)
from data_gen.records import Question, QuestionObject
from rewards.boxes import Size, centerness
from rewards.grading import MIRRORED_TASKS

FOLDS = 5
ENOUGH_SCENES = 20
RANKS = ("nearest", "middle", "farthest")
WIDEST = "widest range"
LEARNT = "by "  # begins the names of the strategies that are learnt
BAR = " (bar)"  # ends the name of the strategy that sets the bar
LOW_BIN_M = 3.0
LEAK_Z = 3.29  # one-sided p = 0.0005 under the normal law: some twenty strategies per task are tried
LEAK_MARGIN = 0.05
Key = Callable[[Unit], Hashable]
Scores = list[float]


@dataclass(frozen=True)
class BlindScore:
    """The score of a strategy beside the bar of its task, both means over units.

    z: the excess over the bar in standard errors, the units of one draw (scene or image) taken together, under the
    hypothesis that there is none: sum of the excesses / root of the sum of their squared sums per draw. It never
    exceeds the root of the number of draws, so that a few images prove nothing.
    """

    strategy: str
    score: float
    bar: float
    z: float

    @property
    def verdict(self) -> str:
        """`LEAK`: it beats the bar by LEAK_MARGIN and by more than chance explains; `too few`: by the former only."""
        if self.score - self.bar < LEAK_MARGIN:
            return "no leak"
        return "LEAK" if self.z > LEAK_Z else "too few"


@dataclass(frozen=True)
class Draws:
    """What is drawn independently of each other, `scenes` or `images`.

    counted: for the z values of strategies that need no learning. folded: for the folds of the learnt ones and for
    their z values, as what they learn (one car, seen for twenty seconds) may hold for a scene only.
    """

    counted: str
    folded: str


def blind_scores(task: str, units: Sequence[Unit], draws: Draws) -> list[BlindScore]:
    """All strategies of a task, best first; without the learnt ones where there are fewer draws than folds."""
    bars, strategies = _bars(task, units), _fixed(task, units)
    folds = folds_of(_draws_of(units, draws.folded))
    if len(set(folds)) == FOLDS:
        strategies |= _learnt(task, units, folds)
    fixed, folded = _draws_of(units, draws.counted), _draws_of(units, draws.folded)
    found = [
        _against(name, scores, bars, folded if name.startswith(LEARNT) else fixed)
        for name, scores in strategies.items()
    ]
    return sorted(found, key=lambda item: -item.score)


def draws_in(questions: Sequence[Question]) -> Draws:
    """Scenes where enough of them are recorded: one for each fold, and ENOUGH_SCENES for the z values."""
    scenes = {question.scene for question in questions}
    recorded = len(scenes) if all(scenes) else 0
    return Draws("scenes" if recorded >= ENOUGH_SCENES else "images", "scenes" if recorded >= FOLDS else "images")


def folds_of(draws: Sequence[str]) -> list[int]:
    """A fold for each unit, the same for all units of a draw; they are dealt out evenly, in a fixed random order."""
    names = list(dict.fromkeys(draws))
    random.Random(0).shuffle(names)
    fold_of = {name: place % FOLDS for place, name in enumerate(names)}
    return [fold_of[name] for name in draws]


def learnt_scores(labels: Sequence[Hashable], keys: Sequence[Hashable], folds: Sequence[int]) -> Scores:
    """Per unit the chance that the commonest label of its key in the other folds is its own."""
    scores = [0.0] * len(labels)
    for fold in range(FOLDS):
        counts: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
        overall: Counter[Hashable] = Counter()
        for label, key, own in zip(labels, keys, folds, strict=True):
            if own != fold:
                counts[key][label] += 1
                overall[label] += 1
        for place, (label, key, own) in enumerate(zip(labels, keys, folds, strict=True)):
            if own == fold:
                scores[place] = _chance_of(label, counts.get(key) or overall)
    return scores


def _draws_of(units: Sequence[Unit], kind: str) -> list[str]:
    return [unit[0].scene if kind == "scenes" else unit[0].image for unit in units]


def class_of(item: QuestionObject) -> str:
    """The category of an object; where none is recorded the noun of its name."""
    return item.category or (item.name.split(" wearing ")[0].split() or item.name.split())[-1]


def true_rank(question: Question) -> str:
    """Whether the true range of a depth question is the nearest, the middle or the farthest."""
    return RANKS[true_place(question)]


def _bars(task: str, units: Sequence[Unit]) -> Scores:
    """What a strategy has to beat, per unit: the floor called honest of the task."""
    if task in MIRRORED_TASKS:
        return [self_consistent(unit) for unit in units]
    if task == "depth":
        return [1 / len(unit[0].options) for unit in units]
    return _at(best_point([_box(unit) for unit in units])[0], units)


def _fixed(task: str, units: Sequence[Unit]) -> dict[str, Scores]:
    """Strategies that nothing has to be learnt for, and the best constants."""
    if task == "pixel":
        return {
            "independent guess": [expected_centerness(*_box(unit)) for unit in units],
            "centre of the image": _at((0.5, 0.5), units),
            f"best constant point{BAR}": _bars(task, units),
        }
    places = [positions(unit) for unit in units]
    best = Counter(places).most_common(1)[0][0]
    named = ", then ".join(str(place + 1) for place in best)
    text = Counter(texts(unit) for unit in units).most_common(1)[0][0]
    strategies = {
        "independent guess": [math.prod(1 / len(question.options) for question in unit) for unit in units],
        f"best constant position: {named}": [float(place == best) for place in places],
        f"commonest answer text: {', then '.join(text)}": [float(texts(unit) == text) for unit in units],
    }
    if task in MIRRORED_TASKS:
        return {**strategies, f"self-consistent guess{BAR}": _bars(task, units)}
    return strategies | _by_range(units)


def _by_range(units: Sequence[Unit]) -> dict[str, Scores]:
    """Depth: ranges chosen by their width or by their place in the order of distance."""
    questions = [question for (question,) in units]
    chosen = {
        WIDEST: widest_ranges,
        "narrowest range": _narrowest_ranges,
        **{f"{rank} range": _ranked(place) for place, rank in enumerate(RANKS)},
    }
    return {
        name: [right_among(question, choose(question)) for question in questions] for name, choose in chosen.items()
    }


def _learnt(task: str, units: Sequence[Unit], folds: Sequence[int]) -> dict[str, Scores]:
    """Strategies learnt from other images, from the question's text or, `by camera`, from where it was taken."""
    keys = {name: [key(unit) for unit in units] for name, key in _keys(task).items()}
    if not any(unit[0].camera for unit in units):
        del keys["by camera"]
    if task == "pixel":
        return {name: _learnt_points(units, column, folds) for name, column in keys.items()}
    labels = [_label(unit) for unit in units]
    return {name: learnt_scores(labels, column, folds) for name, column in keys.items()}


def _keys(task: str) -> dict[str, Key]:
    if task == "yaw":
        return {
            "by the directions offered": _offered,
            "by class": lambda unit: (_offered(unit), _classes(unit)),
            "by camera": lambda unit: (_offered(unit), unit[0].camera),
        }
    keys: dict[str, Key] = {"by class": _classes, "by camera": lambda unit: unit[0].camera}
    if task == "depth":
        keys["by lowest number"] = _lowest
        keys["by class and lowest number"] = lambda unit: (_classes(unit), _lowest(unit))
    return keys


def _label(unit: Unit) -> Hashable:
    """What a learnt strategy predicts: texts of directions, ranks of ranges, places of objects."""
    if unit[0].task == "yaw":
        return texts(unit)
    return true_rank(unit[0]) if unit[0].task == "depth" else positions(unit)


def _learnt_points(units: Sequence[Unit], keys: Sequence[Hashable], folds: Sequence[int]) -> Scores:
    """Per unit the centerness at the best constant point of the units with its key in the other folds."""
    scores = [0.0] * len(units)
    for fold in range(FOLDS):
        others = [place for place, own in enumerate(folds) if own != fold]
        for key in {keys[place] for place, own in enumerate(folds) if own == fold}:
            alike = [place for place in others if keys[place] == key] or others
            point, _ = best_point([_box(units[place]) for place in alike])
            asked = [place for place, own in enumerate(folds) if own == fold and keys[place] == key]
            for place, score in zip(asked, _at(point, [units[place] for place in asked]), strict=True):
                scores[place] = score
    return scores


def _against(name: str, scores: Scores, bars: Scores, draws: Sequence[str]) -> BlindScore:
    """A strategy's mean beside the bar's."""
    excess: dict[str, float] = defaultdict(float)
    for score, bar, draw in zip(scores, bars, draws, strict=True):
        excess[draw] += score - bar
    spread = math.sqrt(sum(value**2 for value in excess.values()))
    z = sum(excess.values()) / spread if spread else 0.0
    return BlindScore(name, sum(scores) / len(scores), sum(bars) / len(bars), z)


def _chance_of(label: Hashable, counts: Counter[Hashable]) -> float:
    """Chance of a label when one of the commonest is taken."""
    most = max(counts.values())
    best = [item for item, count in counts.items() if count == most]
    return (label in best) / len(best)


def _classes(unit: Unit) -> tuple[str, ...]:
    return tuple(class_of(item) for item in unit[0].objects)


def _offered(unit: Unit) -> frozenset[str]:
    return frozenset(unit[0].options)


def _lowest(unit: Unit) -> float:
    return min(range_m(option)[0] for option in unit[0].options) // LOW_BIN_M


def _by_distance(question: Question) -> list[str]:
    return sorted(question.options, key=range_m)


def _ranked(place: int) -> Callable[[Question], list[str]]:
    return lambda question: [_by_distance(question)[place]]


def _narrowest_ranges(question: Question) -> list[str]:
    widths_m = {option: range_m(option)[1] - range_m(option)[0] for option in question.options}
    return [option for option, width_m in widths_m.items() if width_m == min(widths_m.values())]


def _box(unit: Unit) -> tuple[tuple[float, float, float, float], Size]:
    return unit[0].objects[0].bbox, unit[0].image_size


def _at(point: tuple[float, float], units: Sequence[Unit]) -> Scores:
    """Centerness, per unit, of a point given as shares of the image's sides."""
    return [centerness((point[0] * size[0], point[1] * size[1]), box) for box, size in (_box(unit) for unit in units)]
