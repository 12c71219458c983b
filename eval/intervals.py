"""95 % intervals clustered by image: images are drawn, not units, since units of one image share what is hard in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BOOTSTRAP_DRAWS = 2000
_DRAWS_AT_ONCE = 200
_MISSED = 0.05

Interval = tuple[float, float] | None


def bootstrap_intervals(
    sums_NT: np.ndarray, counts_NT: np.ndarray, seed: int, lowest: float = 0.0
) -> tuple[list[Interval], Interval]:
    """95 % percentile intervals of each task's mean and of the mean over tasks, images drawn with replacement.

    sums_NT, counts_NT: unit scores, each from `lowest` (-1 for differences of two runs) to 1, added up, and units of N
    images in T tasks. A draw without a unit of a task is left out of that task's interval and of the overall one; None
    where fewer than two images carry the task.
    Where every draw gives the same mean, the interval is `exact_bound`; overall, the mean of those of the tasks.
    A task whose units all score alike adds no width to the overall interval as long as another's do not.
    """
    carried_T = (counts_NT > 0).sum(axis=0)
    means_DT = np.concatenate(list(_drawn_means(sums_NT, counts_NT, seed)))
    scores_T = sums_NT.sum(axis=0) / counts_NT.sum(axis=0)
    columns = zip(means_DT.T, scores_T.tolist(), carried_T.tolist(), strict=True)
    per_task = [_bounded(means_D, score, images, lowest) for means_D, score, images in columns]
    known = [interval for interval in per_task if interval]
    if len(known) < len(per_task):
        return per_task, None
    overall = percentiles(means_DT.mean(axis=1))
    if overall is None or overall[1] - overall[0] > 1e-12:
        return per_task, overall
    low, high = np.mean(known, axis=0)
    return per_task, (float(low), float(high))


def exact_bound(score: float, images: int, lowest: float = 0.0) -> tuple[float, float]:
    """The interval of a mean that is `score` in all of `images` images.

    If a share q of all images were of another kind, none among n would be seen with a chance of (1 - q)^n; q is where
    that chance falls to 5 % (about 3 / n: the one-sided exact binomial bound), and those score `lowest` or 1 at worst.
    """
    share = 1 - _MISSED ** (1 / images)
    return score * (1 - share) + lowest * share, score * (1 - share) + share


def percentiles(values_D: np.ndarray) -> Interval:
    """The 2.5th and the 97.5th percentile of the values that are numbers, None without any."""
    known = values_D[~np.isnan(values_D)]
    if not known.size:
        return None
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def _drawn_means(sums_NT: np.ndarray, counts_NT: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """Means of the tasks, (draws, T), over images drawn with replacement; nan where a draw has no unit of a task."""
    images = len(sums_NT)
    rng = np.random.default_rng(seed)
    for _ in range(BOOTSTRAP_DRAWS // _DRAWS_AT_ONCE):
        drawn_DN = rng.integers(images, size=(_DRAWS_AT_ONCE, images)) + images * np.arange(_DRAWS_AT_ONCE)[:, None]
        times_D_N = np.bincount(drawn_DN.ravel(), minlength=images * _DRAWS_AT_ONCE)
        times_DN = times_D_N.reshape(_DRAWS_AT_ONCE, images).astype(float)
        with np.errstate(invalid="ignore"):
            yield (times_DN @ sums_NT) / (times_DN @ counts_NT)


def _bounded(means_D: np.ndarray, score: float, images: int, lowest: float) -> Interval:
    if images < 2:
        return None
    drawn = percentiles(means_D)
    return exact_bound(score, images, lowest) if drawn and drawn[1] - drawn[0] <= 1e-12 else drawn
