"""The synthetic world's plan: what each camera is given to see."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from data_gen.rendering.drives import ScenePlan, WorldSpec, cameras_at, plan_scene, split_names
from data_gen.rendering.footprints import disjoint
from data_gen.rendering.rig import PinholeCamera
from data_gen.rendering.traffic import Glimpse, RoadUser, glimpse, overlap_of_smaller


def test_pictures_offer_single_objects_and_pairs_in_the_wanted_shares() -> None:
    spec = WorldSpec(scenes=8)
    shown: list[list[str]] = []
    for scene_index in range(spec.scenes):
        plan = plan_scene(spec, scene_index)
        for frame_index, users in enumerate(plan.traffic):
            for camera in cameras_at(spec, plan.motion, frame_index):
                shown.append(kept_kinds(camera, users))
    unique = [len(kinds) for kinds in shown if len(set(kinds)) == len(kinds)]
    shares = {count: unique.count(count) / len(shown) for count in range(5)}
    assert 0.33 <= shares[1] <= 0.48
    assert 0.28 <= shares[2] + shares[3] <= 0.45
    assert len(unique) < len(shown)  # some repeat a kind, for the filters to drop


def kept_kinds(camera: PinholeCamera, users: tuple[RoadUser, ...]) -> list[str]:
    """Kinds that survive the size, centre and occlusion filters, as the builder is documented to apply them."""
    return [user.kind for user, _ in kept_users(camera, users)]


def kept_users(camera: PinholeCamera, users: tuple[RoadUser, ...]) -> list[tuple[RoadUser, Glimpse]]:
    """Road users that survive these filters, as the camera sees them."""
    smallest_px = 2000 * camera.width_px * camera.height_px / (1600 * 900)
    seen = [(user, look) for user in users if (look := glimpse(camera, user)) is not None]
    seen = [(user, look) for user, look in seen if look.centre_inside and look.area_px >= smallest_px]
    return [
        (user, look)
        for user, look in seen
        if not any(
            other.distance_m < look.distance_m and overlap_of_smaller(other.box_xyxy_px, look.box_xyxy_px) > 0.8
            for _, other in seen
        )
    ]


def test_road_users_never_touch_and_face_every_way() -> None:
    spec = WorldSpec(scenes=4)
    sectors: set[int] = set()
    for scene_index in range(spec.scenes):
        for users in plan_scene(spec, scene_index).traffic:
            footprints = [user.placed().footprint_m()[:, :2] for user in users]
            sectors |= {int(np.degrees(user.yaw_rad) % 360 // 45) for user in users}
            pairs = ((a, b) for i, a in enumerate(footprints) for b in footprints[:i])
            assert all(disjoint(a, b) for a, b in pairs)
    assert sectors == set(range(8))


NEAREST_M, FARTHEST_M = 8.0, 22.0


def class_tells_nearer(spec: WorldSpec) -> tuple[float, float]:
    """Share of pairs for which always naming the nearer kind of two kinds is right, and half of those without a tie."""
    counts: dict[tuple[str, ...], list[int]] = {}
    for scene_index in range(spec.scenes):
        plan = plan_scene(spec, scene_index)
        for frame_index, users in enumerate(plan.traffic):
            for camera in cameras_at(spec, plan.motion, frame_index):
                for pair in combinations(sorted(kept_users(camera, users), key=lambda seen: seen[0].kind), 2):
                    gap_m = pair[0][1].distance_m - pair[1][1].distance_m
                    outcome = 0 if abs(gap_m) <= 1 else 1 if gap_m < 0 else 2
                    counts.setdefault(tuple(user.kind for user, _ in pair), [0, 0, 0])[outcome] += 1
    total = sum(map(sum, counts.values()))
    return sum(max(row[1:]) for row in counts.values()) / total, sum(
        sum(row[1:]) for row in counts.values()
    ) / total / 2


def test_common_depths_leave_the_class_nothing_to_tell() -> None:
    by_class, chance = class_tells_nearer(WorldSpec(scenes=24, frames_per_scene=4, depths_m=(NEAREST_M, FARTHEST_M)))
    assert by_class < chance + 0.09  # the better half of ten kinds of pairs wins a little by chance
    by_class, chance = class_tells_nearer(WorldSpec(scenes=24, frames_per_scene=4))
    assert by_class > chance + 0.15


def test_common_depths_hold_for_ties_and_for_those_who_stay() -> None:
    spec = WorldSpec(scenes=4, depths_m=(NEAREST_M, FARTHEST_M))
    depths_m = [
        look.depth_m
        for scene_index in range(spec.scenes)
        for plan in (plan_scene(spec, scene_index),)
        for frame_index, users in enumerate(plan.traffic)
        for camera in cameras_at(spec, plan.motion, frame_index)
        for _, look in kept_users(camera, users)
    ]
    assert np.mean([NEAREST_M - 1 <= depth_m <= FARTHEST_M + 1 for depth_m in depths_m]) > 0.97


@pytest.mark.parametrize("wrong", [{"depths_m": (9.0, 9.0)}, {"depths_m": (0.0, 9.0)}, {"depths_m": (9.0, 90.0)},
                                   {"test_scenes": 2}, {"test_scenes": -1}])  # fmt: skip
def test_a_world_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"depths must|test scenes must"):
        WorldSpec(scenes=2, **wrong)


def test_the_last_scenes_are_for_testing() -> None:
    plans = [ScenePlan(index, None, None, ()) for index in range(9)]  # type: ignore[arg-type]
    splits = split_names(plans, test_scenes=3)
    assert splits["test"] == [plan.name for plan in plans[6:]]
    assert splits["val"] == [plans[3].name] and len(splits["train"]) == 5
    assert split_names(plans[:6]) == {"train": splits["train"], "val": splits["val"]}
