"""The synthetic world's plan: what each camera is given to see."""

import numpy as np

from data_gen.rendering.drives import WorldSpec, cameras_at, plan_scene
from data_gen.rendering.footprints import disjoint
from data_gen.rendering.rig import PinholeCamera
from data_gen.rendering.traffic import RoadUser, glimpse, overlap_of_smaller


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
    smallest_px = 2000 * camera.width_px * camera.height_px / (1600 * 900)
    seen = [(user, look) for user in users if (look := glimpse(camera, user)) is not None]
    seen = [(user, look) for user, look in seen if look.centre_inside and look.area_px >= smallest_px]
    return [
        user.kind
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
