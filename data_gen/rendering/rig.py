"""The synthetic car: where its sensors sit, when they fire, what each camera sees.

Frames as in nuScenes: world and ego (x forward, y left, z up), camera (x right, y down, z forward),
lidar (x right, y forward, z up). Quaternions are (w, x, y, z). Lengths in metres, angles in radians.
"""

import math
from dataclasses import dataclass

import numpy as np

LIDAR = "LIDAR_TOP"
REFERENCE_WIDTH_PX, REFERENCE_HEIGHT_PX = 1600, 900
FORWARD_CAMERA_WXYZ = (0.5, -0.5, 0.5, -0.5)  # a level camera that looks along the ego's x axis


@dataclass(frozen=True)
class RigidPose:
    """A frame's place in its parent frame."""

    rotation_wxyz: tuple[float, float, float, float]
    translation_m: tuple[float, float, float]


@dataclass(frozen=True)
class SensorMount:
    """One sensor on the car; `focal_px`, `center_x_px` and `center_y_px` are for 1600x900 and 0 for the lidar."""

    channel: str
    pose: RigidPose
    fires_before_lidar_us: int
    focal_px: float = 0.0
    center_x_px: float = 0.0
    center_y_px: float = 0.0


@dataclass(frozen=True)
class EgoMotion:
    """A car that follows a straight road and sways a little, so that no two sensors share a pose."""

    start_xy_m: tuple[float, float]
    road_yaw_rad: float
    speed_mps: float
    sway_rad: float
    sway_rate: float

    def pose_at(self, time_s: float) -> RigidPose:
        """Pose in the world at `time_s`; the height is 0 as in nuScenes."""
        angle_rad = self.sway_rate * time_s
        along_m = self.speed_mps * time_s
        aside_m = self.speed_mps * self.sway_rad / self.sway_rate * (1 - math.cos(angle_rad))
        cos_yaw, sin_yaw = math.cos(self.road_yaw_rad), math.sin(self.road_yaw_rad)
        x_m = self.start_xy_m[0] + along_m * cos_yaw - aside_m * sin_yaw
        y_m = self.start_xy_m[1] + along_m * sin_yaw + aside_m * cos_yaw
        yaw_rad = self.road_yaw_rad + self.sway_rad * math.sin(angle_rad)
        return RigidPose(yaw_quaternion(yaw_rad), (x_m, y_m, 0.0))


@dataclass(frozen=True)
class PinholeCamera:
    """A camera in the world: `axes_3x3` holds the camera's x, y, z axes as columns."""

    width_px: int
    height_px: int
    intrinsic_3x3: np.ndarray
    axes_3x3: np.ndarray
    position_m: np.ndarray

    def to_camera(self, points_m: np.ndarray) -> np.ndarray:
        """World points (N, 3) in camera coordinates."""
        return (points_m - self.position_m) @ self.axes_3x3

    def to_pixels(self, camera_points_m: np.ndarray) -> np.ndarray:
        """Camera points (N, 3), all with positive depth, as pixels (N, 2)."""
        homogeneous = camera_points_m @ self.intrinsic_3x3.T
        return homogeneous[:, :2] / homogeneous[:, 2:]


def yaw_quaternion(yaw_rad: float) -> tuple[float, float, float, float]:
    """Rotation by `yaw_rad` about the z axis."""
    return (math.cos(yaw_rad / 2), 0.0, 0.0, math.sin(yaw_rad / 2))


def multiply_quaternions(
    left: tuple[float, float, float, float], right: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """Hamilton product: the rotation `right` followed by `left`."""
    a, b, c, d = left
    e, f, g, h = right
    return (
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    )


def rotation_matrix(quaternion_wxyz: tuple[float, float, float, float]) -> np.ndarray:
    """The 3x3 matrix of a unit quaternion."""
    w, x, y, z = quaternion_wxyz
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def sensor_in_world(mount: SensorMount, ego: RigidPose) -> tuple[np.ndarray, np.ndarray]:
    """Axes as columns (3, 3) and position (3,) of a mounted sensor in the world."""
    ego_axes_3x3 = rotation_matrix(ego.rotation_wxyz)
    axes_3x3 = ego_axes_3x3 @ rotation_matrix(mount.pose.rotation_wxyz)
    position_m = ego_axes_3x3 @ np.array(mount.pose.translation_m) + np.array(ego.translation_m)
    return axes_3x3, position_m


def intrinsic_matrix(mount: SensorMount, width_px: int, height_px: int) -> np.ndarray:
    """The 3x3 camera matrix at this image size; the focal length follows the width, so pixels stay square."""
    scale = width_px / REFERENCE_WIDTH_PX
    focal_px, center_x_px = mount.focal_px * scale, mount.center_x_px * scale
    center_y_px = mount.center_y_px * height_px / REFERENCE_HEIGHT_PX
    return np.array([[focal_px, 0.0, center_x_px], [0.0, focal_px, center_y_px], [0.0, 0.0, 1.0]])


def camera_in_world(mount: SensorMount, ego: RigidPose, width_px: int, height_px: int) -> PinholeCamera:
    """The camera that `mount` becomes on a car at `ego`."""
    axes_3x3, position_m = sensor_in_world(mount, ego)
    return PinholeCamera(width_px, height_px, intrinsic_matrix(mount, width_px, height_px), axes_3x3, position_m)


def _camera(
    channel: str, yaw_deg: float, at_m: tuple[float, float, float], early_us: int, optics: tuple[float, float, float]
) -> SensorMount:
    rotation = multiply_quaternions(yaw_quaternion(math.radians(yaw_deg)), FORWARD_CAMERA_WXYZ)
    return SensorMount(channel, RigidPose(rotation, at_m), early_us, *optics)


# Places, times and optics resemble the car of nuScenes; yaw is counter-clockwise seen from above.
CAMERAS = (
    _camera("CAM_FRONT", 0, (1.70, 0.02, 1.51), 35_500, (1266.0, 816.0, 491.0)),
    _camera("CAM_FRONT_RIGHT", -55, (1.55, -0.49, 1.50), 27_600, (1261.0, 808.0, 495.0)),
    _camera("CAM_BACK_RIGHT", -110, (1.01, -0.48, 1.56), 20_100, (1260.0, 807.0, 501.0)),
    _camera("CAM_BACK", 180, (0.03, 0.00, 1.58), 10_400, (809.0, 829.0, 482.0)),
    _camera("CAM_BACK_LEFT", 110, (1.04, 0.48, 1.59), 500, (1257.0, 792.0, 493.0)),
    _camera("CAM_FRONT_LEFT", 55, (1.52, 0.49, 1.51), 43_100, (1273.0, 827.0, 480.0)),
)
LIDAR_MOUNT = SensorMount(LIDAR, RigidPose(yaw_quaternion(-math.pi / 2), (0.94, 0.0, 1.84)), 0)
