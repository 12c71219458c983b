"""The synthetic world's tables in the nuScenes schema: thirteen of them, lidarseg, and two of our own.

Every record is a plain dictionary, because that is what the JSON files hold. Tokens are hashes of the seed and of what
they name, so the same world always has the same tokens.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_gen.rendering.drives import ScenePlan, WorldSpec, ego_pose, split_names, timestamp_us
from data_gen.rendering.palette import KINDS, describe
from data_gen.rendering.rig import CAMERAS, LIDAR, LIDAR_MOUNT, SensorMount, intrinsic_matrix, yaw_quaternion
from data_gen.rendering.traffic import RoadUser

VERSION = "v1.0-synthetic"
LOCATION = "synthetic"
Record = dict[str, Any]

# Names in the order of the lidarseg index of nuScenes.
CATEGORIES = (
    "noise",
    "animal",
    "human.pedestrian.adult",
    "human.pedestrian.child",
    "human.pedestrian.construction_worker",
    "human.pedestrian.personal_mobility",
    "human.pedestrian.police_officer",
    "human.pedestrian.stroller",
    "human.pedestrian.wheelchair",
    "movable_object.barrier",
    "movable_object.debris",
    "movable_object.pushable_pullable",
    "movable_object.trafficcone",
    "static_object.bicycle_rack",
    "vehicle.bicycle",
    "vehicle.bus.bendy",
    "vehicle.bus.rigid",
    "vehicle.car",
    "vehicle.construction",
    "vehicle.emergency.ambulance",
    "vehicle.emergency.police",
    "vehicle.motorcycle",
    "vehicle.trailer",
    "vehicle.truck",
    "flat.driveable_surface",
    "flat.other",
    "flat.sidewalk",
    "flat.terrain",
    "static.manmade",
    "static.other",
    "static.vegetation",
    "vehicle.ego",
)
CATEGORY_INDEX = {name: index for index, name in enumerate(CATEGORIES)}
ATTRIBUTES = (
    "vehicle.moving",
    "vehicle.stopped",
    "vehicle.parked",
    "cycle.with_rider",
    "cycle.without_rider",
    "pedestrian.moving",
    "pedestrian.standing",
    "pedestrian.sitting_lying_down",
)
VISIBILITIES = (("1", "v0-40", 0.4), ("2", "v40-60", 0.6), ("3", "v60-80", 0.8), ("4", "v80-100", 1.01))


@dataclass(frozen=True)
class LidarCounts:
    """Per road user of one key frame, in the plan's order: lidar returns, and returns if nothing else stood there."""

    returned: tuple[int, ...]
    returned_alone: tuple[int, ...]


def token(seed: int, *names: object) -> str:
    """32 hexadecimal digits that stand for a record."""
    return hashlib.md5("|".join(map(str, (seed, *names))).encode(), usedforsecurity=False).hexdigest()


def sensor_file(plan: ScenePlan, frame_index: int, mount: SensorMount) -> str:
    """Path of a sensor's file relative to the data folder."""
    taken_us = timestamp_us(plan.index, frame_index, mount)
    ending = "pcd.bin" if mount.channel == LIDAR else "jpg"
    return f"samples/{mount.channel}/{plan.name}__{mount.channel}__{taken_us}.{ending}"


def lidarseg_file(seed: int, plan: ScenePlan, frame_index: int) -> str:
    """Path of a lidar sweep's labels relative to the data folder."""
    return f"lidarseg/{VERSION}/{token(seed, 'sample_data', plan.name, frame_index, LIDAR)}_lidarseg.bin"


def map_file(seed: int) -> str:
    """Path of the map mask relative to the data folder."""
    return f"maps/{token(seed, 'map mask')}.png"


def build_tables(
    spec: WorldSpec, plans: Sequence[ScenePlan], counts: Sequence[Sequence[LidarCounts]]
) -> dict[str, Any]:
    """All tables by name; `counts` holds one entry per key frame of each scene."""
    tables: dict[str, Any] = _fixed_tables(spec)
    logs = [_log(spec, plan) for plan in plans]
    mask = {"category": "semantic_prior", "token": token(spec.seed, "map"), "filename": map_file(spec.seed)}
    tables["log"] = logs
    tables["map"] = [{**mask, "log_tokens": [log["token"] for log in logs]}]
    tables["scene"] = [_scene(spec, plan) for plan in plans]
    for name in ("sample", "sample_data", "ego_pose", "instance", "sample_annotation", "lidarseg", "descriptions"):
        tables[name] = []
    for plan, scene_counts in zip(plans, counts, strict=True):
        tables["sample"] += _samples(spec, plan)
        tables["sample_data"] += _sample_data(spec, plan)
        tables["ego_pose"] += _ego_poses(spec, plan)
        tables["instance"] += _instances(spec, plan)
        tables["sample_annotation"] += _annotations(spec, plan, scene_counts)
        tables["lidarseg"] += _lidarseg(spec, plan)
        tables["descriptions"] += _descriptions(spec, plan)
    tables["splits"] = split_names(plans, spec.test_scenes)
    return tables


def _fixed_tables(spec: WorldSpec) -> dict[str, Any]:
    """What does not depend on the scenes: the vocabulary and the car."""
    return {
        "attribute": [{"token": token(spec.seed, name), "name": name, "description": name} for name in ATTRIBUTES],
        "category": [
            {"token": token(spec.seed, name), "name": name, "description": name, "index": index}
            for index, name in enumerate(CATEGORIES)
        ],
        "visibility": [
            {"token": key, "level": level, "description": f"visibility {level} percent"}
            for key, level, _ in VISIBILITIES
        ],
        "sensor": [
            {
                "token": token(spec.seed, "sensor", mount.channel),
                "channel": mount.channel,
                "modality": "lidar" if mount.channel == LIDAR else "camera",
            }
            for mount in (*CAMERAS, LIDAR_MOUNT)
        ],
        "calibrated_sensor": [_calibration(spec, mount) for mount in (*CAMERAS, LIDAR_MOUNT)],
    }


def _calibration(spec: WorldSpec, mount: SensorMount) -> Record:
    is_camera = mount.channel != LIDAR
    return {
        "token": token(spec.seed, "calibrated_sensor", mount.channel),
        "sensor_token": token(spec.seed, "sensor", mount.channel),
        "translation": list(mount.pose.translation_m),
        "rotation": list(mount.pose.rotation_wxyz),
        "camera_intrinsic": intrinsic_matrix(mount, spec.width_px, spec.height_px).tolist() if is_camera else [],
    }


def _log(spec: WorldSpec, plan: ScenePlan) -> Record:
    return {
        "token": token(spec.seed, "log", plan.name),
        "logfile": plan.name,
        "vehicle": LOCATION,
        "date_captured": "2020-09-13",
        "location": LOCATION,
    }


def _scene(spec: WorldSpec, plan: ScenePlan) -> Record:
    return {
        "token": token(spec.seed, "scene", plan.name),
        "log_token": token(spec.seed, "log", plan.name),
        "nbr_samples": len(plan.traffic),
        "first_sample_token": token(spec.seed, "sample", plan.name, 0),
        "last_sample_token": token(spec.seed, "sample", plan.name, len(plan.traffic) - 1),
        "name": plan.name,
        "description": "Rendered from a seed, not recorded.",
    }


def _neighbours(spec: WorldSpec, plan: ScenePlan, frame_index: int, kind: str, *names: object) -> dict[str, str]:
    """`prev` and `next` of a record that exists once per key frame; empty at the ends of a scene."""

    def at(frame: int) -> str:
        return token(spec.seed, kind, plan.name, frame, *names) if 0 <= frame < len(plan.traffic) else ""

    return {"prev": at(frame_index - 1), "next": at(frame_index + 1)}


def _samples(spec: WorldSpec, plan: ScenePlan) -> list[Record]:
    return [
        {
            "token": token(spec.seed, "sample", plan.name, frame),
            "timestamp": timestamp_us(plan.index, frame),
            **_neighbours(spec, plan, frame, "sample"),
            "scene_token": token(spec.seed, "scene", plan.name),
        }
        for frame in range(len(plan.traffic))
    ]


def _sample_data(spec: WorldSpec, plan: ScenePlan) -> list[Record]:
    return [
        {
            "token": token(spec.seed, "sample_data", plan.name, frame, mount.channel),
            "sample_token": token(spec.seed, "sample", plan.name, frame),
            "ego_pose_token": token(spec.seed, "ego_pose", plan.name, frame, mount.channel),
            "calibrated_sensor_token": token(spec.seed, "calibrated_sensor", mount.channel),
            "timestamp": timestamp_us(plan.index, frame, mount),
            "fileformat": "pcd" if mount.channel == LIDAR else "jpg",
            "is_key_frame": True,
            "height": 0 if mount.channel == LIDAR else spec.height_px,
            "width": 0 if mount.channel == LIDAR else spec.width_px,
            "filename": sensor_file(plan, frame, mount),
            **_neighbours(spec, plan, frame, "sample_data", mount.channel),
        }
        for frame in range(len(plan.traffic))
        for mount in (*CAMERAS, LIDAR_MOUNT)
    ]


def _ego_poses(spec: WorldSpec, plan: ScenePlan) -> list[Record]:
    records = []
    for frame in range(len(plan.traffic)):
        for mount in (*CAMERAS, LIDAR_MOUNT):
            pose = ego_pose(plan.motion, frame, mount)
            records.append(
                {
                    "token": token(spec.seed, "ego_pose", plan.name, frame, mount.channel),
                    "timestamp": timestamp_us(plan.index, frame, mount),
                    "rotation": list(pose.rotation_wxyz),
                    "translation": list(pose.translation_m),
                }
            )
    return records


def _annotation_token(spec: WorldSpec, plan: ScenePlan, frame_index: int, number: int) -> str:
    return token(spec.seed, "sample_annotation", plan.name, frame_index, number)


def _frames_of(plan: ScenePlan) -> dict[int, list[int]]:
    """Key frames in which each road user of a scene appears, by its number."""
    frames: dict[int, list[int]] = {}
    for frame, users in enumerate(plan.traffic):
        for user in users:
            frames.setdefault(user.number, []).append(frame)
    return frames


def _instances(spec: WorldSpec, plan: ScenePlan) -> list[Record]:
    kinds = {user.number: user.kind for users in plan.traffic for user in users}
    return [
        {
            "token": token(spec.seed, "instance", plan.name, number),
            "category_token": token(spec.seed, KINDS[kinds[number]].category),
            "nbr_annotations": len(frames),
            "first_annotation_token": _annotation_token(spec, plan, frames[0], number),
            "last_annotation_token": _annotation_token(spec, plan, frames[-1], number),
        }
        for number, frames in sorted(_frames_of(plan).items())
    ]


def _annotations(spec: WorldSpec, plan: ScenePlan, counts: Sequence[LidarCounts]) -> list[Record]:
    frames_of = _frames_of(plan)
    records = []
    for frame, users in enumerate(plan.traffic):
        for order, user in enumerate(users):
            ends = {"prev": frame - 1, "next": frame + 1}
            links = {
                name: _annotation_token(spec, plan, at, user.number) if at in frames_of[user.number] else ""
                for name, at in ends.items()
            }
            hits = (counts[frame].returned[order], counts[frame].returned_alone[order])
            records.append({**_annotation(spec, plan, frame, user, hits), **links})
    return records


def _annotation(spec: WorldSpec, plan: ScenePlan, frame_index: int, user: RoadUser, hits: tuple[int, int]) -> Record:
    kind = KINDS[user.kind]
    returned, alone = hits
    share = returned / alone if alone else 0.0
    return {
        "token": _annotation_token(spec, plan, frame_index, user.number),
        "sample_token": token(spec.seed, "sample", plan.name, frame_index),
        "instance_token": token(spec.seed, "instance", plan.name, user.number),
        "visibility_token": next(key for key, _, below in VISIBILITIES if share < below),
        "attribute_tokens": [token(spec.seed, kind.attribute_moving if user.speed_mps else kind.attribute_still)],
        "translation": [*user.position_xy_m, user.size_wlh_m[2] / 2],
        "size": list(user.size_wlh_m),
        "rotation": list(yaw_quaternion(user.yaw_rad)),
        "num_lidar_pts": returned,
        "num_radar_pts": 0,
    }


def _lidarseg(spec: WorldSpec, plan: ScenePlan) -> list[Record]:
    records = []
    for frame in range(len(plan.traffic)):
        key = token(spec.seed, "sample_data", plan.name, frame, LIDAR)
        filename = lidarseg_file(spec.seed, plan, frame)
        records.append({"token": key, "sample_data_token": key, "filename": filename})
    return records


def _descriptions(spec: WorldSpec, plan: ScenePlan) -> list[Record]:
    return [
        {
            "sample_annotation_token": _annotation_token(spec, plan, frame, user.number),
            "description": describe(user.kind, user.colour),
            "colour": user.colour,
        }
        for frame, users in enumerate(plan.traffic)
        for user in users
    ]
