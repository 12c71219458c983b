"""The synthetic world's bodies: they fill their boxes, cover each other rightly, and show front and rear."""

import numpy as np
import pytest
from drawn import BACKDROP, body_bounds_px, box_bounds_px, drawn, front_camera, standing

from data_gen.rendering.footprints import convex_hull, covering_order, disjoint
from data_gen.rendering.lidar_sim import ray_box_range
from data_gen.rendering.palette import COLOURS, KINDS, body_of
from data_gen.rendering.picture import Light, clip_near
from data_gen.rendering.solids import Split, box, build_body, painting_order, solid


def red_lamps(pixels: np.ndarray) -> int:
    return int(((pixels[..., 0] > 170) & (pixels[..., 1] < 70) & (pixels[..., 2] < 70)).sum())


# --- bodies and pictures


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_fills_its_annotated_box(kind: str) -> None:
    size_wlh_m = tuple(side * 1.05 for side in KINDS[kind].size_wlh_m)
    corners_m = body_of(kind, "blue", 1.0, size_wlh_m).corners_m
    width_m, length_m, height_m = size_wlh_m
    assert corners_m.min(axis=0) == pytest.approx([-length_m / 2, -width_m / 2, 0.0], abs=1e-9)
    assert corners_m.max(axis=0) == pytest.approx([length_m / 2, width_m / 2, height_m], abs=1e-9)


@pytest.mark.parametrize("heading_deg", range(0, 360, 45))
@pytest.mark.parametrize(("kind", "ahead_m"), [("car", 14), ("truck", 20), ("bus", 26)])
def test_drawn_pixels_fill_the_projected_box(kind: str, ahead_m: float, heading_deg: int) -> None:
    camera = front_camera()
    placed = standing(kind, "blue", ahead_m, np.radians(heading_deg))
    pixels_px = body_bounds_px(drawn(camera, [placed]))
    corners_px = box_bounds_px(camera, placed, KINDS[kind].size_wlh_m)
    assert np.abs(pixels_px - corners_px).max() <= 2
    assert (pixels_px[:2] >= corners_px[:2] - 1).all() and (pixels_px[2:] <= corners_px[2:] + 1).all()


@pytest.mark.parametrize("kind", ["car", "truck", "bus"])
def test_a_box_moved_by_a_tenth_of_its_size_no_longer_fits(kind: str) -> None:
    camera = front_camera(896, 504)
    placed = standing(kind, "blue", 16, 0.6)
    corners_px = box_bounds_px(camera, placed, KINDS[kind].size_wlh_m)
    width_px = corners_px[2] - corners_px[0]
    outside_px = body_bounds_px(drawn(camera, [placed]))[2] - (corners_px - 0.1 * width_px)[2]
    assert outside_px > 2


def test_lamps_tell_the_rear_from_the_front() -> None:
    away, toward = 0.0, np.pi
    for kind, ahead_m in (("car", 10), ("truck", 12), ("bus", 14), ("cyclist", 6)):
        for colour in ("white", "blue", "green", "black"):
            camera = front_camera()
            assert red_lamps(drawn(camera, [standing(kind, colour, ahead_m, away)])) >= 2, (kind, colour)
            assert red_lamps(drawn(camera, [standing(kind, colour, ahead_m, toward)])) == 0, (kind, colour)


def test_pedestrians_show_a_face_only_from_the_front() -> None:
    def skin_above_shoulders(yaw_rad: float) -> int:
        camera = front_camera(448, 252)
        placed = standing("pedestrian", "blue", 7, yaw_rad)
        pixels = drawn(camera, [placed])
        top_px, bottom_px = body_bounds_px(pixels)[[1, 3]]
        head = pixels[top_px : top_px + (bottom_px - top_px) // 6]
        return int(((head[..., 0] > 150) & (head[..., 1] > 110) & (head[..., 2] < 190)).sum())

    assert skin_above_shoulders(np.pi) > 20
    assert skin_above_shoulders(0.0) <= 2


@pytest.mark.parametrize("colour", COLOURS)
def test_the_named_colour_is_the_nearest_palette_colour_of_the_body(colour: str) -> None:
    sun_behind_camera = Light(np.array([-0.9, 0.0, 0.436]), np.full(3, 210.0))
    pixels = drawn(front_camera(448, 252), [standing("truck", colour, 12, np.radians(90))], light=sun_behind_camera)
    body = pixels[(np.abs(pixels - np.array(BACKDROP)).max(axis=2) > 60)]
    names = list(COLOURS)
    palette = np.array([COLOURS[name] for name in names])
    nearest = np.argmin(np.abs(body[:, None] - palette[None]).sum(axis=2), axis=1)
    counts = dict(zip(*np.unique(nearest, return_counts=True), strict=True))
    assert names[max(counts, key=lambda index: counts[index])] == colour


def test_the_nearer_body_covers_the_farther_one() -> None:
    camera = front_camera()
    near, far = standing("car", "yellow", 9, 0.4), standing("bus", "blue", 22, 1.2)
    alone, both = drawn(camera, [near], scale=1), drawn(camera, [near, far], scale=1)
    covered = (alone != np.array(BACKDROP)).any(axis=2)
    assert covered.sum() > 200
    assert (both[covered] == alone[covered]).all()
    assert (drawn(camera, [far, near], scale=1) == both).all()


def test_a_pedestrian_beside_a_long_bus_is_drawn_in_front_although_its_centre_is_farther() -> None:
    bus = standing("bus", "blue", 14, np.radians(4), left_m=2.6).footprint_m()[:, :2]
    person = standing("pedestrian", "red", 16, 0.0, left_m=0.2).footprint_m()[:, :2]
    assert covering_order([person, bus], np.array([1.7, 0.0])) == [1, 0]
    assert covering_order([bus, person], np.array([1.7, 0.0])) == [0, 1]
    beyond = standing("pedestrian", "red", 16, 0.0, left_m=5.2).footprint_m()[:, :2]
    assert covering_order([bus, beyond], np.array([1.7, 0.0])) == [1, 0]


def test_a_body_across_the_camera_plane_is_clipped_not_mirrored() -> None:
    camera = front_camera()
    beside = standing("bus", "blue", 1.0, 0.0, left_m=4.0)
    pixels = drawn(camera, [beside])
    columns = np.nonzero(np.abs(pixels - np.array(BACKDROP)).max(axis=2) > 60)[1]
    assert columns.min() == 0 and 0 < columns.max() < camera.intrinsic_3x3[0, 2]
    behind = standing("bus", "blue", -12.0, 0.0, left_m=4.0)
    assert (drawn(camera, [behind]) == np.array(BACKDROP)).all()


def test_clipping_cuts_a_polygon_at_the_near_plane() -> None:
    triangle_m = np.array([[0.0, 0, -1], [0, 0, 1], [1, 0, 1]])
    clipped_m = clip_near(triangle_m)
    assert clipped_m[:, 2].min() == pytest.approx(0.3)
    assert len(clipped_m) == 4
    assert len(clip_near(triangle_m - np.array([0, 0, 5.0]))) == 0


def test_solids_are_painted_from_far_to_near_and_only_faces_that_face_the_eye() -> None:
    left, right = solid(box(-1, 0, 1, 0, 1), (255, 0, 0)), solid(box(0, 1, 1, 0, 1), (0, 255, 0))
    body = build_body(Split(0, 0.0, left, right))
    from_front = painting_order(body, np.array([9.0, 0.2, 0.5]))
    from_rear = painting_order(body, np.array([-9.0, 0.2, 0.5]))
    assert [body.solid_starts.searchsorted(panel, "right") - 1 for panel in from_front] == [0, 1]
    assert [body.solid_starts.searchsorted(panel, "right") - 1 for panel in from_rear] == [1, 0]
    assert (body.normals[from_front] == [1, 0, 0]).all()


@pytest.mark.parametrize(
    ("shift_m", "apart"), [((2.0, 0.0), True), ((1.1, 0.0), True), ((0.9, 0.0), False), ((0.0, 0.0), False)]
)
def test_footprints_touch_or_not(shift_m: tuple[float, float], apart: bool) -> None:
    square_m = np.array([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
    assert disjoint(square_m, square_m + np.array(shift_m)) is apart
    assert len(convex_hull(np.concatenate([square_m, square_m * 0.2]))) == 4


@pytest.mark.parametrize(
    ("direction", "range_m"),
    [((1.0, 0.0, 0.0), 4.0), ((-1.0, 0.0, 0.0), np.inf), ((0.0, 1.0, 0.0), np.inf), ((0.8, 0.6, 0.0), np.inf)],
)
def test_a_ray_enters_a_box_at_its_near_face(direction: tuple[float, float, float], range_m: float) -> None:
    low_m, high_m = np.array([4.0, -1, -1]), np.array([6.0, 1, 1])
    assert ray_box_range(np.zeros(3), np.array([direction]), low_m, high_m)[0] == range_m
