"""Road users drawn alone on a plain backdrop, and where a projection written apart from the code puts their boxes."""

import numpy as np

from data_gen.rendering.palette import KINDS, body_of
from data_gen.rendering.picture import Canvas, Light, Placed, draw_bodies
from data_gen.rendering.rig import CAMERAS, PinholeCamera, RigidPose, camera_in_world, yaw_quaternion

BACKDROP = (255, 0, 255)
NOON = Light(np.array([0.3, 0.2, 0.93]), np.full(3, 210.0))


def front_camera(width_px: int = 224, height_px: int = 126) -> PinholeCamera:
    """The front camera of a car at the origin that faces along x."""
    return camera_in_world(CAMERAS[0], RigidPose(yaw_quaternion(0.0), (0.0, 0.0, 0.0)), width_px, height_px)


def standing(kind: str, colour: str, ahead_m: float, yaw_rad: float, left_m: float = 0.0) -> Placed:
    """A road user in front of the front camera of `front_camera`."""
    body = body_of(kind, colour, 1.0, KINDS[kind].size_wlh_m)
    return Placed(body, (CAMERAS[0].pose.translation_m[0] + ahead_m, left_m), yaw_rad)


def drawn(camera: PinholeCamera, placed: list[Placed], scale: int = 4, light: Light = NOON) -> np.ndarray:
    """Pixels (H, W, 3) of bodies alone on a backdrop; at scale 1 none mixes body and backdrop."""
    canvas = Canvas.blank(camera.width_px, camera.height_px, scale, BACKDROP)
    draw_bodies(canvas, camera, placed, light)
    return np.asarray(canvas.finish()).astype(int)


def body_bounds_px(pixels: np.ndarray) -> np.ndarray:
    """Bounds (x1, y1, x2, y2) of what is not backdrop."""
    rows, columns = np.nonzero(np.abs(pixels - np.array(BACKDROP)).max(axis=2) > 60)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


def box_bounds_px(camera: PinholeCamera, placed: Placed, size_wlh_m: tuple[float, float, float]) -> np.ndarray:
    """Bounds (x1, y1, x2, y2) of the eight projected corners."""
    width_m, length_m, height_m = size_wlh_m
    signs = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0, 1)])
    cos_yaw, sin_yaw = np.cos(placed.yaw_rad), np.sin(placed.yaw_rad)
    turn = np.array([[cos_yaw, -sin_yaw, 0], [sin_yaw, cos_yaw, 0], [0, 0, 1]])
    offset_m = np.array([*placed.position_xy_m, 0.0]) - camera.position_m
    points = (signs * [length_m, width_m, height_m]) @ turn.T + offset_m
    x, y, z = -points[:, 1], -points[:, 2], points[:, 0]
    u = camera.intrinsic_3x3[0, 0] * x / z + camera.intrinsic_3x3[0, 2]
    v = camera.intrinsic_3x3[1, 1] * y / z + camera.intrinsic_3x3[1, 2]
    return np.array([u.min(), v.min(), u.max(), v.max()])
