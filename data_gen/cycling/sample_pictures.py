"""A street seen from a bicycle, drawn in flat colours: lanes, signs on poles, cars, advertising boards.

World: x to the right and z ahead of the place where the ride starts, y up from the ground, in metres. A pinhole camera
1.5 m above the ground looks along z, so a second picture from further on shows the same things nearer. Pictures are
drawn at twice their size and reduced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image, ImageDraw

from rewards.boxes import Box, Size

SIZE: Size = (960, 540)
FOCAL_PX = 620.0
EYE_M = 1.5
NEAR_M, FAR_M = 2.2, 120.0
OVERSAMPLING = 2
Colour = tuple[int, int, int] | str
Canvas = ImageDraw.ImageDraw
Point = tuple[float, float]
SURFACES = {"bicycle": (168, 82, 70), "pedestrians": (176, 172, 164), "cars": (84, 86, 90)}


@dataclass(frozen=True)
class Strip:
    """A lane along the ride between two x in metres, and what it is for: a key of SURFACES."""

    left_m: float
    right_m: float
    use: str


@dataclass(frozen=True)
class Standing:
    """A thing that faces the camera: its middle (x, z), the height of its lower edge, its size, and how it looks.

    kind: `sign`, `car` or `board`. look: of a sign the label, of others a colour.
    """

    kind: str
    look: str
    x_m: float
    z_m: float
    base_m: float
    width_m: float
    height_m: float


def project(x_m: float, y_m: float, z_m: float) -> Point:
    """A point in camera axes (z from the camera) as pixels."""
    return SIZE[0] / 2 + FOCAL_PX * x_m / z_m, 0.46 * SIZE[1] + FOCAL_PX * (EYE_M - y_m) / z_m


def box_of(thing: Standing, camera_z_m: float) -> Box | None:
    """The thing's box in whole pixels, or None where it is not whole in the picture."""
    z_m = thing.z_m - camera_z_m
    if z_m < NEAR_M:
        return None
    x1, y1 = project(thing.x_m - thing.width_m / 2, thing.base_m + thing.height_m, z_m)
    x2, y2 = project(thing.x_m + thing.width_m / 2, thing.base_m, z_m)
    inside = min(x1, y1) >= 0 and x2 <= SIZE[0] and y2 <= SIZE[1]
    return (round(x1), round(y1), round(x2), round(y2)) if inside else None


def polygon_of(strip: Strip) -> tuple[Point, ...]:
    """The visible part of a lane, in whole pixels."""
    points = _on_ground(strip.left_m, strip.right_m)
    for axis, limit, side in ((0, 0, 1), (0, SIZE[0], -1), (1, 0, 1), (1, SIZE[1], -1)):
        points = _clipped(points, axis, limit, side)
    return tuple((round(x), round(y)) for x, y in points)


def _clipped(points: list[Point], axis: int, limit: float, side: int) -> list[Point]:
    """A polygon cut at one edge of the picture (Sutherland and Hodgman, 1974); side 1 keeps what is beyond `limit`."""
    kept = []
    for start, end in zip(points, [*points[1:], points[0]], strict=True):
        inside = side * (start[axis] - limit) >= 0
        if inside:
            kept.append(start)
        if inside != (side * (end[axis] - limit) >= 0):
            share = (limit - start[axis]) / (end[axis] - start[axis])
            kept.append((start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])))
    return kept


def draw_street(strips: tuple[Strip, ...], things: tuple[Standing, ...], camera_z_m: float) -> Image.Image:
    """The picture from a place along the ride."""
    size = SIZE[0] * OVERSAMPLING, SIZE[1] * OVERSAMPLING
    image = Image.new("RGB", size, (178, 204, 228))
    canvas = ImageDraw.Draw(image)
    horizon = project(0, EYE_M, 1)[1]
    _box(canvas, (0, horizon, SIZE[0], SIZE[1]), (132, 152, 104))
    for strip in strips:
        _draw_strip(canvas, strip, camera_z_m)
    for thing in sorted(things, key=lambda item: -item.z_m):
        if thing.z_m - camera_z_m >= NEAR_M:
            _draw_thing(canvas, thing, camera_z_m)
    return image.resize(SIZE, Image.Resampling.LANCZOS)


def _draw_strip(canvas: Canvas, strip: Strip, camera_z_m: float) -> None:
    _polygon(canvas, _on_ground(strip.left_m, strip.right_m), SURFACES[strip.use])
    middle_m = (strip.left_m + strip.right_m) / 2
    if strip.use == "cars":
        starts = [z - camera_z_m % 4 for z in range(4, 60, 4)]
        for z in filter(lambda z: z > NEAR_M / 2, starts):
            dash = [(middle_m - 0.08, z), (middle_m + 0.08, z), (middle_m + 0.08, z + 1.6), (middle_m - 0.08, z + 1.6)]
            _polygon(canvas, [project(x, 0, at) for x, at in dash], "white")
    for edge_m in (strip.left_m, strip.right_m):
        line = [
            (edge_m - 0.05, NEAR_M / 2),
            (edge_m + 0.05, NEAR_M / 2),
            (edge_m + 0.05, FAR_M),
            (edge_m - 0.05, FAR_M),
        ]
        _polygon(canvas, [project(x, 0, z) for x, z in line], (222, 222, 214))


def _on_ground(left_m: float, right_m: float) -> list[Point]:
    """A strip of ground between two x, from below the picture to far away."""
    corners = [(left_m, NEAR_M / 2), (right_m, NEAR_M / 2), (right_m, FAR_M), (left_m, FAR_M)]
    return [project(x, 0, z) for x, z in corners]


def _draw_thing(canvas: Canvas, thing: Standing, camera_z_m: float) -> None:
    z_m = thing.z_m - camera_z_m
    x1, y1 = project(thing.x_m - thing.width_m / 2, thing.base_m + thing.height_m, z_m)
    x2, y2 = project(thing.x_m + thing.width_m / 2, thing.base_m, z_m)
    if thing.kind == "car":
        _draw_car(canvas, (x1, y1, x2, y2), thing.look)
        return
    pole_px = max(1.0, 0.05 * FOCAL_PX / z_m)
    middle = (x1 + x2) / 2
    _box(canvas, (middle - pole_px, y2 - 1, middle + pole_px, project(0, 0, z_m)[1]), (120, 122, 124))
    if thing.kind == "board":
        _box(canvas, (x1, y1, x2, y2), thing.look)
        for share in (0.25, 0.5, 0.75):
            y = y1 + share * (y2 - y1)
            _box(canvas, (x1 + 0.15 * (x2 - x1), y, x2 - 0.15 * (x2 - x1), y + 0.07 * (y2 - y1)), "white")
        return
    SIGN_FACES[thing.look](canvas, (x1, y1, x2, y2))


def _draw_car(canvas: Canvas, box: Box, colour: str) -> None:
    x1, y1, x2, y2 = box
    width, height = x2 - x1, y2 - y1
    _polygon(
        canvas,
        [(x1 + 0.15 * width, y1), (x2 - 0.15 * width, y1), (x2, y1 + 0.45 * height), (x1, y1 + 0.45 * height)],
        colour,
    )
    _box(canvas, (x1, y1 + 0.42 * height, x2, y2 - 0.12 * height), colour)
    glass = [(x1 + 0.2 * width, y1 + 0.06 * height), (x2 - 0.2 * width, y1 + 0.06 * height),
             (x2 - 0.1 * width, y1 + 0.4 * height), (x1 + 0.1 * width, y1 + 0.4 * height)]  # fmt: skip
    _polygon(canvas, glass, (58, 70, 82))
    for left in (x1 + 0.05 * width, x2 - 0.25 * width):
        _box(canvas, (left, y2 - 0.2 * height, left + 0.2 * width, y2), (28, 28, 30))
        _box(canvas, (left, y1 + 0.5 * height, left + 0.16 * width, y1 + 0.62 * height), (200, 30, 34))


def _blue_disc(canvas: Canvas, box: Box) -> None:
    _disc(canvas, box, "white")
    _disc(canvas, _within(box, 0.04), (0, 84, 166))


def _red_ring(canvas: Canvas, box: Box) -> None:
    _disc(canvas, box, (196, 18, 28))
    _disc(canvas, _within(box, 0.14), "white")


def _bicycle(canvas: Canvas, box: Box, colour: Colour) -> None:
    """Two wheels and a frame, in the unit square of the box."""
    for centre in (0.24, 0.76):
        _ring(canvas, box, (centre, 0.66), 0.2, colour)
    lines = [((0.24, 0.66), (0.42, 0.34)), ((0.42, 0.34), (0.66, 0.34)), ((0.66, 0.34), (0.48, 0.66)),
             ((0.48, 0.66), (0.24, 0.66)), ((0.42, 0.34), (0.48, 0.66)), ((0.62, 0.2), (0.76, 0.66)),
             ((0.56, 0.2), (0.72, 0.2)), ((0.34, 0.28), (0.48, 0.28))]  # fmt: skip
    for start, end in lines:
        _line(canvas, box, start, end, 0.06, colour)


def _person(canvas: Canvas, box: Box, colour: Colour) -> None:
    _disc(canvas, _part(box, (0.4, 0.04, 0.6, 0.24)), colour)
    for start, end in [((0.5, 0.24), (0.5, 0.6)), ((0.5, 0.58), (0.34, 0.96)), ((0.5, 0.58), (0.66, 0.96)),
                       ((0.5, 0.32), (0.28, 0.54)), ((0.5, 0.32), (0.72, 0.54))]:  # fmt: skip
        _line(canvas, box, start, end, 0.11, colour)


def _cyclists_only(canvas: Canvas, box: Box) -> None:
    _blue_disc(canvas, box)
    _bicycle(canvas, _within(box, 0.2), "white")


def _shared(canvas: Canvas, box: Box) -> None:
    _blue_disc(canvas, box)
    _person(canvas, _part(box, (0.3, 0.1, 0.7, 0.5)), "white")
    _bicycle(canvas, _part(box, (0.24, 0.46, 0.76, 0.92)), "white")


def _pedestrians_only(canvas: Canvas, box: Box) -> None:
    _blue_disc(canvas, box)
    _person(canvas, _within(box, 0.18), "white")


def _no_cycling(canvas: Canvas, box: Box) -> None:
    _red_ring(canvas, box)
    _bicycle(canvas, _within(box, 0.24), "black")


def _no_entry(canvas: Canvas, box: Box) -> None:
    _disc(canvas, box, (196, 18, 28))
    _box(canvas, _part(box, (0.18, 0.41, 0.82, 0.59)), "white")


def _thirty(canvas: Canvas, box: Box) -> None:
    from PIL import ImageFont

    _red_ring(canvas, box)
    font = ImageFont.load_default(size=max(6, 0.5 * (box[3] - box[1]) * OVERSAMPLING))
    middle = [(box[0] + box[2]) / 2 * OVERSAMPLING, (box[1] + box[3]) / 2 * OVERSAMPLING]
    canvas.text((middle[0], middle[1]), "30", fill="black", font=font, anchor="mm", stroke_width=1)


def _give_way(canvas: Canvas, box: Box) -> None:
    for margin, colour in ((0.0, (196, 18, 28)), (0.16, "white")):
        shape = [(margin, margin * 0.7), (1 - margin, margin * 0.7), (0.5, 1 - margin * 1.4)]
        _polygon(canvas, [_at(box, point) for point in shape], colour)


def _priority(canvas: Canvas, box: Box) -> None:
    for margin, colour in ((0.0, "white"), (0.12, (250, 196, 0))):
        shape = [(0.5, margin), (1 - margin, 0.5), (0.5, 1 - margin), (margin, 0.5)]
        _polygon(canvas, [_at(box, point) for point in shape], colour)


SIGN_FACES: dict[str, Callable[[Canvas, Box], None]] = {
    "lane for cyclists only": _cyclists_only,
    "path shared by pedestrians and cyclists": _shared,
    "path for pedestrians only": _pedestrians_only,
    "no cycling": _no_cycling,
    "no entry": _no_entry,
    "speed limit 30 km/h": _thirty,
    "give way": _give_way,
    "priority road": _priority,
}


def _at(box: Box, point: Point) -> Point:
    """A point of the unit square in the box."""
    return box[0] + point[0] * (box[2] - box[0]), box[1] + point[1] * (box[3] - box[1])


def _part(box: Box, part: Box) -> Box:
    return (*_at(box, part[:2]), *_at(box, part[2:]))


def _within(box: Box, margin: float) -> Box:
    return _part(box, (margin, margin, 1 - margin, 1 - margin))


def _scaled(points: list[Point]) -> list[Point]:
    return [(x * OVERSAMPLING, y * OVERSAMPLING) for x, y in points]


def _polygon(canvas: Canvas, points: list[Point], colour: Colour) -> None:
    canvas.polygon(_scaled(points), fill=colour)


def _box(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(_scaled([box[:2], box[2:]]), fill=colour)


def _disc(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.ellipse(_scaled([box[:2], box[2:]]), fill=colour)


def _ring(canvas: Canvas, box: Box, centre: Point, radius: float, colour: Colour) -> None:
    x, y = centre
    corners = [_at(box, (x - radius, y - radius)), _at(box, (x + radius, y + radius))]
    canvas.ellipse(_scaled(corners), outline=colour, width=_width(box, 0.05))


def _line(canvas: Canvas, box: Box, start: Point, end: Point, width: float, colour: Colour) -> None:
    canvas.line(_scaled([_at(box, start), _at(box, end)]), fill=colour, width=_width(box, width))


def _width(box: Box, share: float) -> int:
    return max(1, round(share * (box[2] - box[0]) * OVERSAMPLING))
