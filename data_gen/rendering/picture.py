"""A camera image of bodies: shading, painter's order, clipping at a near plane, supersampling.

Everything is a polygon drawn by Pillow on a canvas a few times the size of the picture, which is then averaged down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from data_gen.rendering.footprints import convex_hull, covering_order
from data_gen.rendering.rig import PinholeCamera
from data_gen.rendering.solids import Body, painting_order

NEAR_M = 0.3


@dataclass(frozen=True)
class Placed:
    """A body standing on the ground of the world."""

    body: Body
    position_xy_m: tuple[float, float]
    yaw_rad: float

    @property
    def axes_3x3(self) -> np.ndarray:
        """The body's x, y, z axes in the world, as columns."""
        cos_yaw, sin_yaw = np.cos(self.yaw_rad), np.sin(self.yaw_rad)
        return np.array([[cos_yaw, -sin_yaw, 0.0], [sin_yaw, cos_yaw, 0.0], [0.0, 0.0, 1.0]])

    @property
    def origin_m(self) -> np.ndarray:
        """The point on the ground below the body's centre."""
        return np.array([*self.position_xy_m, 0.0])

    @property
    def half_extent_xy_m(self) -> np.ndarray:
        """Half of length and width, from the corners."""
        return np.abs(self.body.corners_m[:, :2]).max(axis=0)

    def footprint_m(self) -> np.ndarray:
        """The four ground corners (4, 3) of the bounding box, counter-clockwise."""
        signs = np.array([[1, 1, 0], [-1, 1, 0], [-1, -1, 0], [1, -1, 0]])
        local_m = signs * np.array([*self.half_extent_xy_m, 0.0])
        return local_m @ self.axes_3x3.T + self.origin_m


@dataclass(frozen=True)
class Light:
    """The sun's direction (unit vector towards it) and the colour that far things fade to."""

    to_sun: np.ndarray
    haze_rgb: np.ndarray


@dataclass(frozen=True)
class Canvas:
    """A picture under way, `scale` times larger than the one asked for."""

    image: Image.Image
    scale: int

    @staticmethod
    def blank(width_px: int, height_px: int, scale: int, rgb: tuple[int, int, int]) -> "Canvas":
        """A canvas of one colour."""
        return Canvas(Image.new("RGB", (width_px * scale, height_px * scale), rgb), scale)

    def finish(self) -> Image.Image:
        """The picture at its own size."""
        return self.image.reduce(self.scale) if self.scale > 1 else self.image


def supersampling(width_px: int) -> int:
    """Canvas pixels per picture pixel: small pictures need more, large ones cost more."""
    return 4 if width_px <= 480 else 2


def draw_polygons(canvas: Canvas, camera: PinholeCamera, polygons_m: Sequence[np.ndarray], rgb: np.ndarray) -> None:
    """Fill world polygons (each (N, 3)) in the given order with their colours (P, 3)."""
    if not len(polygons_m):
        return
    starts = np.cumsum([0, *(len(polygon) for polygon in polygons_m)])
    points_m = camera.to_camera(np.concatenate(polygons_m))
    _fill(canvas, camera, points_m, starts, range(len(polygons_m)), rgb)


def draw_body(canvas: Canvas, camera: PinholeCamera, placed: Placed, light: Light) -> None:
    """Paint one body over what is already there."""
    axes_3x3, body = placed.axes_3x3, placed.body
    eye_m = (camera.position_m - placed.origin_m) @ axes_3x3
    camera_points_m = camera.to_camera(body.corners_m @ axes_3x3.T + placed.origin_m)
    if camera_points_m[:, 2].max() <= NEAR_M:
        return
    fade = float(np.clip((camera_points_m[:, 2].mean() - 25) / 260, 0, 0.6))
    rgb = shaded_rgb(body, axes_3x3, light) * (1 - fade) + light.haze_rgb * fade
    _fill(canvas, camera, camera_points_m, body.starts, painting_order(body, eye_m), rgb)


def shaded_rgb(body: Body, axes_3x3: np.ndarray, light: Light) -> np.ndarray:
    """Panel colours (P, 3) under sun and sky; lamps keep theirs."""
    normals = body.normals @ axes_3x3.T
    sun = np.clip(normals @ light.to_sun, 0, None)
    strength = 0.66 + 0.36 * sun + 0.09 * normals[:, 2]
    return body.rgb * np.where(body.glows, 1.0, strength)[:, None]


def draw_bodies(canvas: Canvas, camera: PinholeCamera, placed: Sequence[Placed], light: Light) -> None:
    """Paint bodies so that nearer ones cover farther ones."""
    for index in covering_order([item.footprint_m()[:, :2] for item in placed], camera.position_m[:2]):
        draw_body(canvas, camera, placed[index], light)


def cast_shadows(canvas: Canvas, camera: PinholeCamera, placed: Iterable[Placed], light: Light) -> None:
    """Darken the ground below and beside bodies, on the side away from the sun."""
    mask = Image.new("L", canvas.image.size, 0)
    shade = Canvas(mask, canvas.scale)
    for item in placed:
        base_m = item.footprint_m()
        height_m = float(item.body.corners_m[:, 2].max())
        offset_m = -light.to_sun[:2] / light.to_sun[2] * height_m * 0.5
        tip_m = base_m + np.array([*offset_m, 0.0])
        hull_m = convex_hull(np.concatenate([base_m, tip_m])[:, :2])
        _fill_mask(shade, camera, np.column_stack([hull_m, np.zeros(len(hull_m))]))
    canvas.image.paste((24, 26, 32), mask=mask)


def _fill_mask(canvas: Canvas, camera: PinholeCamera, polygon_m: np.ndarray) -> None:
    visible_m = clip_near(camera.to_camera(polygon_m))
    if len(visible_m) >= 3:
        corners = np.floor(camera.to_pixels(visible_m) * canvas.scale)
        ImageDraw.Draw(canvas.image).polygon(corners.ravel().tolist(), fill=125)


def clip_near(points_m: np.ndarray) -> np.ndarray:
    """The part of a convex polygon (N, 3), in camera coordinates, that lies beyond the near plane."""
    beyond = points_m[:, 2] > NEAR_M
    if beyond.all():
        return points_m
    kept: list[np.ndarray] = []
    for index, point in enumerate(points_m):
        previous = points_m[index - 1]
        if beyond[index] != beyond[index - 1]:
            share = (NEAR_M - previous[2]) / (point[2] - previous[2])
            kept.append(previous + share * (point - previous))
        if beyond[index]:
            kept.append(point)
    return np.array(kept).reshape(-1, 3)


def _fill(
    canvas: Canvas,
    camera: PinholeCamera,
    points_m: np.ndarray,
    starts: np.ndarray,
    order: Iterable[int],
    rgb: np.ndarray,
) -> None:
    """Fill polygons given as runs of camera points (V, 3), clipping those that cross the near plane."""
    draw = ImageDraw.Draw(canvas.image)
    beyond = points_m[:, 2] > NEAR_M
    safe_m = np.where(beyond[:, None], points_m, np.array([0.0, 0.0, 1.0]))
    pixels = np.floor(camera.to_pixels(safe_m) * canvas.scale).tolist()
    whole = np.logical_and.reduceat(beyond, starts[:-1]).tolist()
    colours = np.clip(rgb + 0.5, 0, 255).astype(int).tolist()
    for index in order:
        start, end = starts[index], starts[index + 1]
        corners = pixels[start:end] if whole[index] else _clipped_pixels(canvas, camera, points_m[start:end])
        if len(corners) >= 3:
            draw.polygon([tuple(corner) for corner in corners], fill=tuple(colours[index]))


def _clipped_pixels(canvas: Canvas, camera: PinholeCamera, points_m: np.ndarray) -> list[list[float]]:
    visible_m = clip_near(points_m)
    if len(visible_m) < 3:
        return []
    pixels: list[list[float]] = np.floor(camera.to_pixels(visible_m) * canvas.scale).tolist()
    return pixels
