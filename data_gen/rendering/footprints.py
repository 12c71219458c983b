"""Convex footprints on the ground: do they touch, which may hide which, and their hulls.

A footprint is an array (N, 2) of corners in metres, counter-clockwise.
"""

from collections.abc import Iterable, Sequence

import numpy as np


def disjoint(first_m: np.ndarray, second_m: np.ndarray) -> bool:
    """Whether two convex footprints have no point in common (separating axis theorem)."""
    return bool(_outside(first_m, second_m).any() or _outside(second_m, first_m).any())


def _outward(owner_m: np.ndarray) -> np.ndarray:
    edges = np.roll(owner_m, -1, axis=0) - owner_m
    return np.stack([edges[:, 1], -edges[:, 0]], axis=1)


def _outside(owner_m: np.ndarray, other_m: np.ndarray) -> np.ndarray:
    """Per edge of `owner_m`: whether the other footprint lies wholly beyond it."""
    reach = ((other_m[None] - owner_m[:, None]) * _outward(owner_m)[:, None]).sum(axis=-1)
    return (reach >= 0).all(axis=1)


def covering_order(footprints_m: Sequence[np.ndarray], eye_xy_m: np.ndarray) -> list[int]:
    """Indices of disjoint convex footprints (each (4, 2), counter-clockwise) so that each covers only earlier ones.

    Where no order exists (three long bodies in a ring, or footprints that overlap) the farthest goes first.
    """
    waiting = list(range(len(footprints_m)))
    waiting.sort(key=lambda index: -float(np.linalg.norm(footprints_m[index].mean(axis=0) - eye_xy_m)))
    order: list[int] = []
    while waiting:
        chosen = next((i for i in waiting if _spares_all(i, waiting, footprints_m, eye_xy_m)), waiting[0])
        waiting.remove(chosen)
        order.append(chosen)
    return order


def _spares_all(item: int, others: Sequence[int], footprints_m: Sequence[np.ndarray], eye_xy_m: np.ndarray) -> bool:
    return all(_spares(footprints_m[item], footprints_m[other], eye_xy_m) for other in others if other != item)


def _spares(item_m: np.ndarray, other_m: np.ndarray, eye_xy_m: np.ndarray) -> bool:
    """Whether `item_m` cannot hide `other_m`: a line separates them with the eye on the side of the other."""
    return _separates(other_m, item_m, eye_xy_m, eye_with_owner=True) or _separates(
        item_m, other_m, eye_xy_m, eye_with_owner=False
    )


def _separates(owner_m: np.ndarray, other_m: np.ndarray, eye_xy_m: np.ndarray, eye_with_owner: bool) -> bool:
    eye_outside = ((eye_xy_m - owner_m) * _outward(owner_m)).sum(axis=1) >= 0
    return bool((_outside(owner_m, other_m) & (eye_outside != eye_with_owner)).any())


def convex_hull(points_xy: np.ndarray) -> np.ndarray:
    """Counter-clockwise hull (N, 2) by Andrew's monotone chain."""
    ordered = sorted(map(tuple, points_xy.tolist()))

    def chain(points: Iterable[tuple[float, ...]]) -> list[tuple[float, ...]]:
        hull: list[tuple[float, ...]] = []
        for point in points:
            while len(hull) >= 2 and _turn(hull[-2], hull[-1], point) <= 0:
                hull.pop()
            hull.append(point)
        return hull[:-1]

    return np.array(chain(ordered) + chain(reversed(ordered)))


def _turn(a: tuple[float, ...], b: tuple[float, ...], c: tuple[float, ...]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
