"""What stands around the synthetic road: sky, ground, lane marks, buildings and trees, drawn from a seed."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from data_gen.rendering.picture import Canvas, Light, Placed, cast_shadows, draw_bodies, draw_body, draw_polygons
from data_gen.rendering.rig import PinholeCamera
from data_gen.rendering.solids import Node, Panel, Rgb, Split, box, build_body, ellipsoid, patch, solid

ROAD_HALF_WIDTH_M = 7.2
PAVEMENT_HALF_WIDTH_M = 10.0
CLEAR_HALF_WIDTH_M = 54.0  # nothing but road users stands nearer to the road's middle
BUILDING_CLASS, TREE_CLASS = "static.manmade", "static.vegetation"


@dataclass(frozen=True)
class Standing:
    """One building or tree with its lidar class."""

    placed: Placed
    category: str


@dataclass(frozen=True)
class Road:
    """A straight road through `origin_xy_m`."""

    origin_xy_m: tuple[float, float]
    yaw_rad: float

    def to_world(self, along_aside_m: np.ndarray) -> np.ndarray:
        """Points (N, 2) along and to the left of the road as world points (N, 3) on the ground."""
        cos_yaw, sin_yaw = np.cos(self.yaw_rad), np.sin(self.yaw_rad)
        flat = along_aside_m @ np.array([[cos_yaw, sin_yaw], [-sin_yaw, cos_yaw]]) + np.array(self.origin_xy_m)
        return np.column_stack([flat, np.zeros(len(flat))])

    def along_aside(self, points_m: np.ndarray) -> np.ndarray:
        """World points (N, 3) as (N, 2) along and to the left of the road: the inverse of `to_world`."""
        cos_yaw, sin_yaw = np.cos(self.yaw_rad), np.sin(self.yaw_rad)
        return (points_m[:, :2] - np.array(self.origin_xy_m)) @ np.array([[cos_yaw, -sin_yaw], [sin_yaw, cos_yaw]])


@dataclass(frozen=True)
class Surroundings:
    """The unmoving part of a scene: the road, colours, light, and what stands beside the road."""

    road: Road
    light: Light
    sky_top_rgb: np.ndarray
    ground_rgb: np.ndarray
    road_rgb: np.ndarray
    buildings: tuple[Standing, ...]
    trees: tuple[Standing, ...]


def make_surroundings(rng: np.random.Generator, road: Road, drive_m: float) -> Surroundings:
    """Colours, light, buildings and trees for a drive of `drive_m` from the road's origin."""
    azimuth, elevation = rng.uniform(0, 2 * np.pi), rng.uniform(0.6, 1.1)
    to_sun = np.array([np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)])
    return Surroundings(
        road=road,
        light=Light(to_sun, np.array([206.0, 216, 226]) * rng.uniform(0.93, 1.04)),
        sky_top_rgb=np.array([92.0, 142, 206]) * rng.uniform(0.85, 1.1),
        ground_rgb=_GROUNDS[rng.integers(len(_GROUNDS))] * rng.uniform(0.9, 1.1),
        road_rgb=np.array([100.0, 101, 104]) * rng.uniform(0.85, 1.12),
        buildings=_buildings_beside(rng, road, drive_m),
        trees=_trees_beside(rng, road, drive_m),
    )


_PAVEMENT, _WHITE_PAINT, _YELLOW_PAINT = np.array([[158.0, 156, 152], [222, 222, 216], [214, 176, 60]])
_GROUNDS = (np.array([124.0, 134, 92]), np.array([150.0, 142, 116]), np.array([136.0, 136, 130]))
_WALLS: tuple[Rgb, ...] = ((168, 158, 146), (186, 180, 168), (150, 128, 112), (160, 166, 172), (196, 186, 160))
_LEAVES: tuple[Rgb, ...] = ((78, 104, 60), (92, 112, 66), (70, 94, 64))


def _buildings_beside(rng: np.random.Generator, road: Road, drive_m: float) -> tuple[Standing, ...]:
    """Two rows of blocks along the road, with gaps."""
    buildings: list[Standing] = []
    for side in (-1, 1):
        along_m = -130.0
        while along_m < drive_m + 150:
            length_m, depth_m, height_m = rng.uniform(12, 26), rng.uniform(8, 14), rng.uniform(5, 13)
            aside_m = side * (CLEAR_HALF_WIDTH_M + 5 + rng.uniform(0, 6) + depth_m / 2)
            if rng.random() < 0.75:
                shape = _building(int(rng.integers(len(_WALLS))), int(height_m / 3), round(length_m / 4))
                body = build_body(shape, (length_m, depth_m, height_m))
                place = road.to_world(np.array([[along_m + length_m / 2, aside_m]]))[0]
                buildings.append(Standing(Placed(body, (place[0], place[1]), road.yaw_rad), BUILDING_CLASS))
            along_m += length_m + rng.uniform(2, 12)
    return tuple(buildings)


def _trees_beside(rng: np.random.Generator, road: Road, drive_m: float) -> tuple[Standing, ...]:
    """A row of trees in front of the buildings, and some across the open ground at both ends of the drive."""
    trees = [
        _tree_at(rng, road, along_m + rng.uniform(-6, 6), side * (CLEAR_HALF_WIDTH_M + rng.uniform(0, 2.5)))
        for side in (-1, 1)
        for along_m in np.arange(-130, drive_m + 150, 14)
    ]
    trees += [
        _tree_at(rng, road, end_m + rng.uniform(-15, 15), aside_m + rng.uniform(-3, 3))
        for end_m in (-170.0, drive_m + 190.0)
        for aside_m in range(-50, 51, 9)
        if abs(aside_m) > PAVEMENT_HALF_WIDTH_M
    ]
    return tuple(trees)


def _tree_at(rng: np.random.Generator, road: Road, along_m: float, aside_m: float) -> Standing:
    height_m, width_m = rng.uniform(5, 9), rng.uniform(3.5, 5.5)
    body = build_body(_tree(int(rng.integers(len(_LEAVES)))), (width_m, width_m, height_m))
    place = road.to_world(np.array([[along_m, aside_m]]))[0]
    return Standing(Placed(body, (place[0], place[1]), float(rng.uniform(0, 6.28))), TREE_CLASS)


@lru_cache
def _building(wall: int, floors: int, bays: int) -> Node:
    """A block of unit size with rows of windows and a flat roof."""
    block = box(-0.5, 0.5, 0.5, 0.0, 1.0)
    glass = (96.0, 108.0, 122.0)
    rows = [((floor + 0.3) / floors, (floor + 0.75) / floors) for floor in range(floors)]
    columns = [((bay + 0.2) / bays, (bay + 0.8) / bays) for bay in range(bays)]
    windows = [
        Panel(patch(block[side], column, row), glass)
        for side in ("left", "right")
        for row in rows
        for column in columns
    ]
    windows += [Panel(patch(block[side], (0.12, 0.88), row), glass) for side in ("front", "rear") for row in rows]
    return solid(block, _WALLS[wall], *windows)


@lru_cache
def _tree(leaves: int) -> Node:
    """A trunk and a round crown, 4 m wide and 7 m tall."""
    trunk = solid(box(-0.2, 0.2, 0.2, 0.0, 2.6), (92, 72, 52))
    return Split(2, 2.2, trunk, solid(ellipsoid((0.0, 0.0, 4.6), (2.0, 2.0, 2.4), rings=5, sides=9), _LEAVES[leaves]))


def paint_scene(camera: PinholeCamera, surroundings: Surroundings, road_users: list[Placed], scale: int) -> Image.Image:
    """The whole picture that a level camera takes."""
    canvas = Canvas(_sky_and_ground(camera, surroundings, scale), scale)
    _paint_road(canvas, camera, surroundings)
    _veil_ground(canvas, camera, surroundings)
    for group in (surroundings.buildings, surroundings.trees):
        for item in _far_to_near(camera, [standing.placed for standing in group]):
            draw_body(canvas, camera, item, surroundings.light)
    seen = _in_view(camera, road_users)
    cast_shadows(canvas, camera, seen, surroundings.light)
    draw_bodies(canvas, camera, seen, surroundings.light)
    return canvas.finish()


def _horizon_and_rows(camera: PinholeCamera, scale: int) -> tuple[float, np.ndarray]:
    """Row of the horizon and the rows of the canvas in picture pixels; a level camera's horizon is at its centre."""
    rows_px = (np.arange(camera.height_px * scale) + 0.5) / scale
    return float(camera.intrinsic_3x3[1, 2]), rows_px


def _sky_and_ground(camera: PinholeCamera, look: Surroundings, scale: int) -> Image.Image:
    horizon_px, rows_px = _horizon_and_rows(camera, scale)
    height = np.clip(1 - rows_px / horizon_px, 0, 1)[:, None] ** 0.8
    sky = look.light.haze_rgb * (1 - height) + look.sky_top_rgb * height
    column = np.where((rows_px < horizon_px)[:, None], sky, look.ground_rgb)
    strip = Image.fromarray(np.clip(column, 0, 255).astype(np.uint8)[:, None])
    return strip.resize((camera.width_px * scale, len(rows_px)))


def _veil_ground(canvas: Canvas, camera: PinholeCamera, look: Surroundings) -> None:
    """Fade the ground into the haze with distance."""
    horizon_px, rows_px = _horizon_and_rows(camera, canvas.scale)
    below_px = np.clip(rows_px - horizon_px, 1e-3, None)
    distance_m = camera.intrinsic_3x3[0, 0] * camera.position_m[2] / below_px
    veil = np.where(rows_px > horizon_px, np.clip((distance_m - 20) / 260, 0, 0.7), 0.0)
    mask = Image.fromarray((veil * 255).astype(np.uint8)[:, None]).resize(canvas.image.size)
    canvas.image.paste(tuple(int(channel) for channel in np.clip(look.light.haze_rgb, 0, 255)), mask=mask)


def _paint_road(canvas: Canvas, camera: PinholeCamera, look: Surroundings) -> None:
    here_m = float(look.road.along_aside(camera.position_m[None])[0, 0])
    strips = [
        (-PAVEMENT_HALF_WIDTH_M, PAVEMENT_HALF_WIDTH_M, _PAVEMENT),
        (-ROAD_HALF_WIDTH_M, ROAD_HALF_WIDTH_M, look.road_rgb),
        (-6.95, -6.8, _WHITE_PAINT),
        (6.8, 6.95, _WHITE_PAINT),
        (-0.22, -0.08, _YELLOW_PAINT),
        (0.08, 0.22, _YELLOW_PAINT),
    ]
    quads = [(here_m - 240, here_m + 240, right, left, rgb) for right, left, rgb in strips]
    dashes_m = np.floor((here_m - 72) / 9) * 9 + 9 * np.arange(17)
    quads += [(at, at + 3.0, lane - 0.08, lane + 0.08, _WHITE_PAINT) for lane in (-3.5, 3.5) for at in dashes_m]
    corners = np.array([[(near, low), (far, low), (far, high), (near, high)] for near, far, low, high, _ in quads])
    polygons_m = look.road.to_world(corners.reshape(-1, 2)).reshape(-1, 4, 3)
    draw_polygons(canvas, camera, list(polygons_m), np.array([quad[4] for quad in quads]))


def _in_view(camera: PinholeCamera, placed: list[Placed]) -> list[Placed]:
    """Those that reach into the wedge of space that the camera sees."""
    slope = max(camera.intrinsic_3x3[0, 2], camera.width_px - camera.intrinsic_3x3[0, 2]) / camera.intrinsic_3x3[0, 0]
    kept = []
    for item in placed:
        x_m, _, z_m = camera.to_camera(item.origin_m[None])[0]
        reach_m = float(np.linalg.norm(item.half_extent_xy_m))
        if z_m > -reach_m and abs(x_m) <= slope * max(z_m, 0) + reach_m * np.hypot(1, slope):
            kept.append(item)
    return kept


def _far_to_near(camera: PinholeCamera, placed: list[Placed]) -> list[Placed]:
    return sorted(_in_view(camera, placed), key=lambda item: -float(np.linalg.norm(item.origin_m - camera.position_m)))
