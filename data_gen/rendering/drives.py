"""The synthetic world's scenes: where the car drives, what stands and moves around it, all from one seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from data_gen.rendering.picture import NEAR_M
from data_gen.rendering.rig import CAMERAS, EgoMotion, PinholeCamera, RigidPose, SensorMount, camera_in_world
from data_gen.rendering.scenery import Road, Surroundings, make_surroundings
from data_gen.rendering.traffic import FORGOTTEN_BEYOND_M, KEYFRAME_PERIOD_S, RoadUser, plan_traffic

FIRST_TIMESTAMP_US = 1_600_000_000_000_000
SCENE_PERIOD_US = 3_600_000_000
MAP_SIDE_M = 500.0
EGO_ASIDE_M = -1.75  # the middle of the right-hand lane
SMALLEST_SIDE_PX = 32


@dataclass(frozen=True)
class WorldSpec:
    """What to make: the same spec gives the same bytes.

    test_scenes: so many last scenes are for testing. depths_m: nearest and farthest newcomer of every kind; without it
    each kind has its own.
    """

    scenes: int = 12
    frames_per_scene: int = 8
    width_px: int = 224
    height_px: int = 126
    seed: int = 0
    test_scenes: int = 0
    depths_m: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.scenes < 1 or self.frames_per_scene < 1:
            raise ValueError(
                f"scenes and frames per scene must be at least 1, got {self.scenes}, {self.frames_per_scene}"
            )
        if min(self.width_px, self.height_px) < SMALLEST_SIDE_PX:
            size = f"{self.width_px}x{self.height_px}"
            raise ValueError(f"images must be at least {SMALLEST_SIDE_PX} pixels on each side, got {size}")
        if self.seed < 0:
            raise ValueError(f"the seed must not be negative, got {self.seed}")
        if not 0 <= self.test_scenes < self.scenes:
            raise ValueError(f"test scenes must be fewer than the {self.scenes} scenes, got {self.test_scenes}")
        if self.depths_m and not NEAR_M < self.depths_m[0] < self.depths_m[1] < FORGOTTEN_BEYOND_M:
            raise ValueError(
                f"depths must be a nearest and a farther one between {NEAR_M} and {FORGOTTEN_BEYOND_M} m, "
                f"got {self.depths_m[0]} and {self.depths_m[1]}"
            )


@dataclass(frozen=True)
class ScenePlan:
    """One drive: the road, how the car moves on it, and who is there at each key frame."""

    index: int
    road: Road
    motion: EgoMotion
    traffic: tuple[tuple[RoadUser, ...], ...]

    @property
    def name(self) -> str:
        """`synthetic-0001` for the first scene."""
        return f"synthetic-{self.index + 1:04d}"


def timestamp_us(scene_index: int, frame_index: int, mount: SensorMount | None = None) -> int:
    """When a key frame's lidar turn ends, or when a camera fires, shortly before."""
    lidar_us = FIRST_TIMESTAMP_US + scene_index * SCENE_PERIOD_US + round(frame_index * KEYFRAME_PERIOD_S * 1e6)
    return lidar_us - (mount.fires_before_lidar_us if mount else 0)


def ego_pose(motion: EgoMotion, frame_index: int, mount: SensorMount) -> RigidPose:
    """The car's pose at the moment a sensor fires."""
    return motion.pose_at(frame_index * KEYFRAME_PERIOD_S - mount.fires_before_lidar_us / 1e6)


def cameras_at(spec: WorldSpec, motion: EgoMotion, frame_index: int) -> list[PinholeCamera]:
    """The six cameras of one key frame, each at its own moment."""
    return [
        camera_in_world(mount, ego_pose(motion, frame_index, mount), spec.width_px, spec.height_px) for mount in CAMERAS
    ]


@lru_cache(maxsize=256)
def plan_scene(spec: WorldSpec, scene_index: int) -> ScenePlan:
    """Plan one scene from the seed alone, independently of the others."""
    rng = np.random.default_rng([spec.seed, scene_index, 0])
    middle_m = MAP_SIDE_M / 2
    origin_xy_m = (float(middle_m + rng.uniform(-60, 60)), float(middle_m + rng.uniform(-60, 60)))
    road = Road(origin_xy_m, float(rng.uniform(-math.pi, math.pi)))
    start_m = road.to_world(np.array([[0.0, EGO_ASIDE_M]]))[0]
    motion = EgoMotion(
        start_xy_m=(float(start_m[0]), float(start_m[1])),
        road_yaw_rad=road.yaw_rad,
        speed_mps=float(rng.uniform(2.0, 8.0)),
        sway_rad=float(rng.uniform(0.01, 0.04)),
        sway_rate=float(rng.uniform(0.3, 0.8)),
    )
    cameras = [cameras_at(spec, motion, frame) for frame in range(spec.frames_per_scene)]
    traffic = plan_traffic(rng, cameras, spec.depths_m)
    return ScenePlan(scene_index, road, motion, tuple(tuple(users) for users in traffic))


@lru_cache(maxsize=2)
def surroundings_of(spec: WorldSpec, scene_index: int) -> Surroundings:
    """What stands around the road of a scene, apart from its plan because only pictures and sweeps need it."""
    plan = plan_scene(spec, scene_index)
    drive_m = plan.motion.speed_mps * KEYFRAME_PERIOD_S * len(plan.traffic)
    return make_surroundings(np.random.default_rng([spec.seed, scene_index, 1]), plan.road, drive_m)


def split_names(plans: Sequence[ScenePlan], test_scenes: int = 0) -> dict[str, list[str]]:
    """Scene names by split: the last ones test, if any shall; of the others every fourth validates."""
    names = [plan.name for plan in plans]
    kept, test = names[: len(names) - test_scenes], names[len(names) - test_scenes :]
    splits = {
        "train": [name for index, name in enumerate(kept) if index % 4 != 3],
        "val": kept[3::4],
    }
    return {**splits, "test": test} if test else splits
