"""A spinning lidar by ray casting: every beam against the ground and the boxes of every solid, so occlusion is true."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from data_gen.rendering.picture import Placed

BEAMS, AZIMUTHS = 32, 1080
LOWEST_DEG, HIGHEST_DEG = -30.67, 10.67  # the HDL-32E of nuScenes
RANGE_M = 80.0
INSET_M = 0.01  # points lie this far inside a surface, so that rounding never puts one outside its box
GROUND, NOTHING = -1, -2


@dataclass(frozen=True)
class Target:
    """Something that reflects, and its lidarseg class index."""

    placed: Placed
    label: int


@dataclass(frozen=True)
class Sweep:
    """One turn of the lidar: N points, and how many beams each of T targets returned and could have returned."""

    points: np.ndarray  # (N, 5) float32: x, y, z in the lidar's frame, intensity, ring
    labels: np.ndarray  # (N,) uint8
    returned: np.ndarray  # (T,)
    returned_alone: np.ndarray  # (T,), as if no other target stood there


@dataclass(frozen=True)
class _Beams:
    """Unit directions of all beams, (BEAMS, AZIMUTHS, 3), in the world, and each column's bearing there."""

    origin_m: np.ndarray
    directions: np.ndarray
    bearing_rad: np.ndarray


def sweep(
    axes_3x3: np.ndarray,
    origin_m: np.ndarray,
    targets: Sequence[Target],
    ground_label: Callable[[np.ndarray], np.ndarray],
) -> Sweep:
    """Cast all beams of a level lidar at `origin_m` whose axes are the columns of `axes_3x3`.

    `ground_label` maps ground points (N, 3) in the world to class indices (N,). Points are in azimuth order.
    """
    local_directions = _local_directions()
    directions = local_directions @ axes_3x3.T
    beams = _Beams(origin_m, directions, np.arctan2(directions[0, :, 1], directions[0, :, 0]))
    with np.errstate(divide="ignore"):
        range_m = np.where(directions[..., 2] < 0, -origin_m[2] / directions[..., 2], np.inf)
    owner = np.where(range_m < RANGE_M, GROUND, NOTHING)
    range_m[range_m >= RANGE_M] = np.inf
    alone = np.zeros(len(targets), dtype=np.int64)
    for index, target in enumerate(targets):
        columns, hit_m = _cast(beams, target.placed)
        hit_m[hit_m >= RANGE_M] = np.inf
        alone[index] = np.isfinite(hit_m).sum()
        nearer = hit_m < range_m[:, columns]
        range_m[:, columns] = np.where(nearer, hit_m, range_m[:, columns])
        owner[:, columns] = np.where(nearer, index, owner[:, columns])
    return _collect(local_directions, beams, range_m, owner, targets, ground_label, alone)


def _local_directions() -> np.ndarray:
    elevation = np.radians(np.linspace(LOWEST_DEG, HIGHEST_DEG, BEAMS))[:, None]
    azimuth = np.linspace(-np.pi, np.pi, AZIMUTHS, endpoint=False)[None]
    parts = (np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation))
    return np.stack(np.broadcast_arrays(*parts), axis=-1)


def _cast(beams: _Beams, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
    """Columns (C,) that may hit a body and their range (BEAMS, C), infinite where they miss."""
    offset_m = placed.origin_m - beams.origin_m
    away_m, reach_m = float(np.hypot(*offset_m[:2])), float(np.linalg.norm(placed.half_extent_xy_m))
    half_rad = np.arcsin(reach_m / away_m) if away_m > reach_m else np.pi
    turn = np.abs((beams.bearing_rad - np.arctan2(offset_m[1], offset_m[0]) + np.pi) % (2 * np.pi) - np.pi)
    columns = np.flatnonzero(turn <= half_rad)
    axes_3x3 = placed.axes_3x3
    origin_m = (beams.origin_m - placed.origin_m) @ axes_3x3
    directions = (beams.directions[:, columns] @ axes_3x3).reshape(-1, 3)
    nearest_m = np.full(len(directions), np.inf)
    for low_m, high_m in placed.body.solid_boxes_m:
        inset_m = np.minimum(INSET_M, (high_m - low_m) / 4)
        nearest_m = np.minimum(nearest_m, ray_box_range(origin_m, directions, low_m + inset_m, high_m - inset_m))
    return columns, nearest_m.reshape(BEAMS, len(columns))


def ray_box_range(origin_m: np.ndarray, directions: np.ndarray, low_m: np.ndarray, high_m: np.ndarray) -> np.ndarray:
    """Range (N,) at which unit rays enter an axis-aligned box, infinite where they miss (slab method).

    An origin inside the box counts as a miss.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        to_low, to_high = (low_m - origin_m) / directions, (high_m - origin_m) / directions
    enter = np.fmin(to_low, to_high).max(axis=1)
    leave = np.fmax(to_low, to_high).min(axis=1)
    return np.where((enter <= leave) & (enter > 0), enter, np.inf)


def _collect(
    local_directions: np.ndarray,
    beams: _Beams,
    range_m: np.ndarray,
    owner: np.ndarray,
    targets: Sequence[Target],
    ground_label: Callable[[np.ndarray], np.ndarray],
    alone: np.ndarray,
) -> Sweep:
    """The returns of a finished grid, in azimuth order."""
    columns, rings = np.nonzero((owner != NOTHING).T)
    owner_n, range_n = owner[rings, columns], range_m[rings, columns, None]
    points_m = local_directions[rings, columns] * range_n
    world_m = beams.origin_m + beams.directions[rings, columns] * range_n
    of_targets = np.array([target.label for target in targets] + [0])[owner_n]
    labels = np.where(owner_n == GROUND, ground_label(world_m), of_targets)
    brightness = np.array([target.placed.body.rgb.mean() / 5 for target in targets] + [0.0])[owner_n]
    intensity = np.where(owner_n == GROUND, 9.0, brightness)
    return Sweep(
        points=np.column_stack([points_m, intensity, rings]).astype(np.float32),
        labels=labels.astype(np.uint8),
        returned=np.bincount(owner_n[owner_n >= 0], minlength=len(targets)),
        returned_alone=alone,
    )
