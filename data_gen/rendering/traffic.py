"""Who is on the synthetic road: a plan per scene, key frame by key frame, that gives every camera something to see.

Random traffic leaves most pictures empty or crowded. So each camera of each key frame draws a composition (nothing, one
road user, two or three of different kinds, a repeated kind, one behind another); those who stay from the frame before
are thinned out and newcomers placed until it holds. A road user keeps its colour, size and course as long as it stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data_gen.rendering.footprints import disjoint
from data_gen.rendering.palette import COLOURS, KINDS, body_of
from data_gen.rendering.picture import NEAR_M, Placed
from data_gen.rendering.rig import REFERENCE_HEIGHT_PX, REFERENCE_WIDTH_PX, PinholeCamera

KEYFRAME_PERIOD_S = 0.5
KIND_SHARES = {"car": 0.28, "truck": 0.19, "bus": 0.13, "pedestrian": 0.21, "cyclist": 0.19}
STAY_PROBABILITY = 0.6
FORGOTTEN_BEYOND_M = 60.0
LEGIBLE_AREA_PX = 2600.0  # at 1600x900, above the usual threshold of 2,000
TRIES = 40


@dataclass(frozen=True)
class RoadUser:
    """One car, truck, bus, pedestrian or cyclist at one key frame; `number` identifies it within its scene."""

    number: int
    kind: str
    colour: str
    brightness: float
    size_wlh_m: tuple[float, float, float]
    position_xy_m: tuple[float, float]
    yaw_rad: float
    speed_mps: float

    def placed(self) -> Placed:
        """Its body where it stands."""
        body = body_of(self.kind, self.colour, self.brightness, self.size_wlh_m)
        return Placed(body, self.position_xy_m, self.yaw_rad)

    def moved(self, time_s: float) -> "RoadUser":
        """The same road user after going straight ahead for `time_s`."""
        x_m = self.position_xy_m[0] + np.cos(self.yaw_rad) * self.speed_mps * time_s
        y_m = self.position_xy_m[1] + np.sin(self.yaw_rad) * self.speed_mps * time_s
        return replace(self, position_xy_m=(float(x_m), float(y_m)))


@dataclass(frozen=True)
class Glimpse:
    """How a camera sees a road user: its clipped box, whether its centre is in the picture, and the centre's place."""

    box_xyxy_px: np.ndarray
    centre_inside: bool
    centre_x_px: float
    depth_m: float
    distance_m: float

    @property
    def area_px(self) -> float:
        """Area of the clipped box."""
        width_px, height_px = self.box_xyxy_px[2:] - self.box_xyxy_px[:2]
        return float(width_px * height_px)


@dataclass(frozen=True)
class Composition:
    """What one picture should show: how many road users, of different kinds or not, in line or apart."""

    count: int
    repeats: bool = False
    in_line: bool = False


COMPOSITIONS: tuple[tuple[float, Composition], ...] = (
    (0.05, Composition(0)),
    (0.4, Composition(1)),
    (0.25, Composition(2)),
    (0.12, Composition(3)),
    (0.05, Composition(2, in_line=True)),
    (0.07, Composition(2, repeats=True)),
    (0.03, Composition(3, repeats=True)),
)


def plan_traffic(
    rng: np.random.Generator,
    cameras_by_frame: Sequence[Sequence[PinholeCamera]],
    depths_m: tuple[float, float] | None = None,
) -> list[list[RoadUser]]:
    """The road users of every key frame, given its cameras.

    depths_m: nearest and farthest of what a camera is given to see, for all kinds alike; without it newcomers of each
    kind have their own, and those who stay may drive out of them.
    """
    users: list[RoadUser] = []
    frames: list[list[RoadUser]] = []
    born = 0
    for cameras in cameras_by_frame:
        users = _those_who_stay(rng, users, cameras)
        for index in rng.permutation(len(cameras)):
            others = [camera for other, camera in enumerate(cameras) if other != index]
            users, born = _compose(rng, users, cameras[index], others, born, depths_m)
        # Users were placed near ones first; the order of annotations must not tell who is nearer.
        frames.append([users[index] for index in rng.permutation(len(users))])
    return frames


def glimpse(camera: PinholeCamera, user: RoadUser) -> Glimpse | None:
    """What `camera` sees of a road user's box, None if nothing."""
    width_m, length_m, height_m = user.size_wlh_m
    cos_yaw, sin_yaw = np.cos(user.yaw_rad), np.sin(user.yaw_rad)
    local_m = _CORNER_SIGNS * np.array([length_m, width_m, height_m]) / 2
    x_m = user.position_xy_m[0] + local_m[:, 0] * cos_yaw - local_m[:, 1] * sin_yaw
    y_m = user.position_xy_m[1] + local_m[:, 0] * sin_yaw + local_m[:, 1] * cos_yaw
    points_m = camera.to_camera(np.column_stack([x_m, y_m, local_m[:, 2] + height_m / 2]))
    centre_m = points_m[0]
    ahead_m = points_m[1:][points_m[1:, 2] > NEAR_M]
    if not len(ahead_m):
        return None
    limits_px = np.array([camera.width_px, camera.height_px])
    corners_px = camera.to_pixels(ahead_m)
    low_px, high_px = np.clip(corners_px.min(axis=0), 0, limits_px), np.clip(corners_px.max(axis=0), 0, limits_px)
    if (high_px - low_px).min() <= 0:
        return None
    centre_px = camera.to_pixels(centre_m[None])[0] if centre_m[2] > NEAR_M else np.full(2, -1.0)
    inside = bool((centre_px >= 0).all() and (centre_px < limits_px).all())
    distance_m = float(np.linalg.norm(centre_m))
    return Glimpse(np.concatenate([low_px, high_px]), inside, float(centre_px[0]), float(centre_m[2]), distance_m)


_CORNER_SIGNS = np.array([[0, 0, 0], *([x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1))])


def _those_who_stay(
    rng: np.random.Generator, users: Sequence[RoadUser], cameras: Sequence[PinholeCamera]
) -> list[RoadUser]:
    """Road users moved to the next key frame, without those who leave, drive away or would run into somebody."""
    kept: list[RoadUser] = []
    for user in users:
        moved = user.moved(KEYFRAME_PERIOD_S)
        away_m = float(np.hypot(*(np.array(moved.position_xy_m) - _car_centre(cameras))))
        if rng.random() < STAY_PROBABILITY and away_m < FORGOTTEN_BEYOND_M and _has_room(moved, kept, cameras):
            kept.append(moved)
    return kept


def _compose(
    rng: np.random.Generator,
    users: list[RoadUser],
    camera: PinholeCamera,
    others: Sequence[PinholeCamera],
    born: int,
    depths_m: tuple[float, float] | None,
) -> tuple[list[RoadUser], int]:
    """Thin out and add road users until `camera` shows the composition it draws; also the next free number."""
    shares = np.array([share for share, _ in COMPOSITIONS])
    goal = COMPOSITIONS[rng.choice(len(COMPOSITIONS), p=shares / shares.sum())][1]
    users = _thin_out(rng, users, camera, goal, depths_m)
    shown = [user for user in users if glimpse(camera, user) is not None]
    for _ in range(goal.count - len(shown)):
        newcomer = _find_place(rng, users, shown, goal, camera, others, born, depths_m)
        if newcomer is not None:
            users, shown, born = [*users, newcomer], [*shown, newcomer], born + 1
    return users, born


def _thin_out(
    rng: np.random.Generator,
    users: list[RoadUser],
    camera: PinholeCamera,
    goal: Composition,
    depths_m: tuple[float, float] | None,
) -> list[RoadUser]:
    """Take away what the picture should not show: barely visible, repeated, surplus or too near or far road users."""
    nearest_m, farthest_m = depths_m or (-np.inf, np.inf)
    kept: list[RoadUser] = []
    kinds: list[str] = []
    for user in users:
        seen = glimpse(camera, user)
        if seen is None:
            kept.append(user)
            continue
        clear = seen.centre_inside and seen.area_px > _scaled_area(camera, LEGIBLE_AREA_PX)
        unwanted = (user.kind in kinds and not goal.repeats) or not nearest_m <= seen.depth_m <= farthest_m
        if len(kinds) < goal.count and not unwanted and (clear or rng.random() < 0.2):
            kept.append(user)
            kinds.append(user.kind)
    return kept


def _find_place(
    rng: np.random.Generator,
    users: list[RoadUser],
    shown: list[RoadUser],
    goal: Composition,
    camera: PinholeCamera,
    others: Sequence[PinholeCamera],
    number: int,
    depths_m: tuple[float, float] | None,
) -> RoadUser | None:
    """A newcomer that fits the composition and collides with nobody, None after too many tries."""
    kinds = [kind for kind in KIND_SHARES if goal.repeats or kind not in {user.kind for user in shown}]
    if goal.repeats and shown:
        kinds = [shown[0].kind]
    shares = np.array([KIND_SHARES[kind] for kind in kinds])
    kind = kinds[rng.choice(len(kinds), p=shares / shares.sum())]
    glimpses = [seen for seen in (glimpse(camera, user) for user in shown) if seen is not None]
    crowded = 1.0 if goal.in_line else 0.75
    # Common depths are drawn once for all tries: else kinds, of which some fit better near, some far, would choose.
    own_m = (KINDS[kind].nearest_m, KINDS[kind].farthest_m)
    depths_m = (_draw_depth_m(rng, depths_m),) * 2 if depths_m else own_m
    for _ in range(TRIES):
        newcomer = _draw_user(rng, kind, number, camera, glimpses, goal.in_line, depths_m)
        seen = glimpse(camera, newcomer)
        if seen is None or not seen.centre_inside or seen.area_px < _scaled_area(camera, LEGIBLE_AREA_PX):
            continue
        elsewhere = any(glimpse(other, newcomer) is not None for other in others)
        if elsewhere and rng.random() > 0.1:
            continue
        overlaps = [overlap_of_smaller(seen.box_xyxy_px, other.box_xyxy_px) for other in glimpses]
        if max(overlaps, default=0.0) <= crowded and _has_room(newcomer, users, (camera, *others)):
            return newcomer
    return None


def _draw_user(
    rng: np.random.Generator,
    kind: str,
    number: int,
    camera: PinholeCamera,
    glimpses: Sequence[Glimpse],
    in_line: bool,
    depths_m: tuple[float, float],
) -> RoadUser:
    """A random road user somewhere in the picture, at times as deep, as far or in the same column as another."""
    traits = KINDS[kind]
    depth_m = _draw_depth_m(rng, depths_m)
    column_px = rng.uniform(0.05, 0.95) * camera.width_px
    tie = rng.random()
    if glimpses and in_line:
        column_px = glimpses[0].centre_x_px + rng.uniform(-0.02, 0.02) * camera.width_px
    elif glimpses and tie < 0.15:
        column_px = glimpses[-1].centre_x_px + rng.uniform(-0.06, 0.06) * camera.width_px
    slope = (column_px - camera.intrinsic_3x3[0, 2]) / camera.intrinsic_3x3[0, 0]
    if glimpses and not in_line and 0.15 <= tie < 0.35:
        depth_m = glimpses[-1].depth_m + rng.uniform(-0.45, 0.45)
    elif glimpses and not in_line and 0.35 <= tie < 0.55:
        depth_m = (glimpses[-1].distance_m + rng.uniform(-0.9, 0.9)) / np.hypot(1, slope)
    place_m = camera.position_m + camera.axes_3x3 @ np.array([slope, 0.0, 1.0]) * depth_m
    scale = rng.uniform(0.94, 1.06)
    width_m, length_m, height_m = (round(float(side * scale), 3) for side in traits.size_wlh_m)
    return RoadUser(
        number=number,
        kind=kind,
        colour=list(COLOURS)[rng.integers(len(COLOURS))],
        brightness=round(float(rng.uniform(0.92, 1.08)), 3),
        size_wlh_m=(width_m, length_m, height_m),
        position_xy_m=(float(place_m[0]), float(place_m[1])),
        yaw_rad=float(rng.uniform(-np.pi, np.pi)),
        speed_mps=0.0 if rng.random() < 0.4 else float(traits.speed_mps * rng.uniform(0.6, 1.4)),
    )


def _draw_depth_m(rng: np.random.Generator, depths_m: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(depths_m))))


def overlap_of_smaller(first_xyxy_px: np.ndarray, second_xyxy_px: np.ndarray) -> float:
    """Area of the intersection of two boxes over the area of the smaller one."""
    low = np.maximum(first_xyxy_px[:2], second_xyxy_px[:2])
    high = np.minimum(first_xyxy_px[2:], second_xyxy_px[2:])
    sizes = [box[2:] - box[:2] for box in (first_xyxy_px, second_xyxy_px)]
    return float(np.prod(np.clip(high - low, 0, None)) / min(size.prod() for size in sizes))


def _has_room(user: RoadUser, users: Sequence[RoadUser], cameras: Sequence[PinholeCamera]) -> bool:
    """Whether a road user touches neither another nor the car that carries the cameras."""
    footprint_m = _footprint(user)
    car_m = _car_centre(cameras) + np.array([[3.2, 3.2], [-3.2, 3.2], [-3.2, -3.2], [3.2, -3.2]])
    return disjoint(footprint_m, car_m) and all(disjoint(footprint_m, _footprint(other)) for other in users)


def _footprint(user: RoadUser) -> np.ndarray:
    """Ground corners (4, 2) with a hand's breadth of air around them."""
    width_m, length_m, _ = user.size_wlh_m
    along = np.array([np.cos(user.yaw_rad), np.sin(user.yaw_rad)]) * (length_m / 2 + 0.1)
    aside = np.array([-np.sin(user.yaw_rad), np.cos(user.yaw_rad)]) * (width_m / 2 + 0.1)
    return np.array(user.position_xy_m) + np.array([along + aside, -along + aside, -along - aside, along - aside])


def _car_centre(cameras: Sequence[PinholeCamera]) -> np.ndarray:
    """The middle of the cameras (2,), which is about the middle of the car that carries them."""
    return np.mean([camera.position_m[:2] for camera in cameras], axis=0)


def _scaled_area(camera: PinholeCamera, area_px: float) -> float:
    return area_px * camera.width_px * camera.height_px / (REFERENCE_WIDTH_PX * REFERENCE_HEIGHT_PX)
