"""Cars, trucks and buses as trees of coloured solids, with faces that tell the front from the rear.

Typical sizes in metres; the builder stretches a shape to the size of its annotation. Fronts carry a sloped windscreen,
a dark grille and pale lamps; rears carry saturated red lamps, a bumper and a plate.
"""

import numpy as np

from data_gen.rendering.solids import Node, Panel, Rgb, Solid, Split, box, disc, frustum, patch, prism, solid, stacked

GLASS: Rgb = (58, 74, 96)
DARK_GLASS: Rgb = (34, 40, 50)
TYRE: Rgb = (26, 26, 28)
HUB: Rgb = (150, 152, 156)
DARK: Rgb = (34, 34, 38)
HEAD_LAMP: Rgb = (255, 250, 214)
TAIL_LAMP: Rgb = (232, 14, 24)
PLATE: Rgb = (236, 236, 226)
AMBER: Rgb = (255, 168, 30)
SILL: Rgb = (20, 20, 22)


def car(paint: Rgb) -> Node:
    """A saloon: low bonnet in front, cabin towards the rear."""
    wheels = _wheels([1.42, -1.4], radius_m=0.34, inner_m=0.68, outer_m=0.95)
    under = _between_wheels(wheels, solid(box(-2.1, 2.1, 0.8, 0.17, 0.4), SILL))
    hull = box(-2.3, 2.3, 0.95, 0.3, 0.54)
    lower = solid(
        hull,
        paint,
        Panel(patch(hull["front"], (0.12, 0.88), (0.1, 0.62)), DARK),
        Panel(patch(hull["front"], (0.4, 0.6), (0.3, 0.9)), PLATE),
        Panel(patch(hull["rear"], (0.06, 0.94), (0.0, 0.5)), DARK),
    )
    body = Split(2, 0.54, lower, Split(0, 0.8, _boot(paint), _bonnet(paint)))
    return stacked(2, under, (0.3, body), (0.95, _cabin(paint)))


def _bonnet(paint: Rgb) -> Solid:
    block = frustum((0.8, 2.3, 0.95, 0.54), (0.8, 2.12, 0.87, 0.86))
    lamps = [
        panel
        for across in ((0.04, 0.27), (0.73, 0.96))
        for panel in _framed(block["front"], across, (0.24, 0.86), HEAD_LAMP)
    ]
    corners = [
        Panel(patch(block[side], across, (0.3, 0.85)), HEAD_LAMP, True)
        for side, across in (("left", (0.0, 0.13)), ("right", (0.87, 1.0)))
    ]
    grille = Panel(patch(block["front"], (0.3, 0.7), (0.1, 0.8)), DARK)
    return solid(block, paint, grille, *lamps, *corners, *_discs(1.42, 0.34, 0.95))


def _boot(paint: Rgb) -> Solid:
    block = frustum((-2.3, 0.8, 0.95, 0.54), (-2.24, 0.8, 0.88, 0.97))
    rear = block["rear"]
    lamps = [
        panel for across in ((0.02, 0.27), (0.73, 0.98)) for panel in _framed(rear, across, (0.3, 0.86), TAIL_LAMP)
    ]
    corners = [
        Panel(patch(block[side], across, (0.35, 0.85)), TAIL_LAMP, True)
        for side, across in (("left", (0.93, 1.0)), ("right", (0.0, 0.07)))
    ]
    plate = Panel(patch(rear, (0.38, 0.62), (0.18, 0.5)), PLATE)
    seams = [Panel(patch(block[side], across, (0.0, 0.95)), _dim(paint, 0.55)) for side, across in _CAR_SEAMS]
    return solid(block, paint, plate, *lamps, *corners, *seams, *_discs(-1.4, 0.34, 0.95))


_CAR_SEAMS = (("left", (0.3, 0.31)), ("right", (0.69, 0.7)), ("left", (0.04, 0.05)), ("right", (0.95, 0.96)))


def _cabin(paint: Rgb) -> Solid:
    block = frustum((-1.95, 0.95, 0.87, 0.95), (-1.3, 0.1, 0.68, 1.58))
    windows = [Panel(patch(block["front"], (0.06, 0.94), (0.06, 0.93)), GLASS)]
    windows.append(Panel(patch(block["rear"], (0.1, 0.9), (0.14, 0.88)), DARK_GLASS))
    for side in ("left", "right"):
        windows += [Panel(patch(block[side], across, (0.1, 0.86)), GLASS) for across in ((0.09, 0.48), (0.52, 0.9))]
    return solid(block, paint, *windows)


def truck(paint: Rgb) -> Node:
    """A box truck: a tall load with doors behind, a lower cab with a windscreen in front."""
    wheels = _wheels([2.45, -2.2], radius_m=0.5, inner_m=0.8, outer_m=1.25)
    under = _between_wheels(wheels, solid(box(-3.4, 3.2, 0.7, 0.4, 0.8), SILL))
    load = box(-3.45, 1.3, 1.25, 0.8, 3.0)
    rear, shade = load["rear"], _dim(paint, 0.62)
    lamps = [Panel(patch(rear, across, (0.02, 0.14)), TAIL_LAMP, True) for across in ((0.02, 0.2), (0.8, 0.98))]
    doors = [
        Panel(patch(rear, (0.05, 0.95), (0.18, 0.95)), _dim(paint, 0.88)),
        Panel(patch(rear, (0.485, 0.515), (0.16, 0.97)), DARK),
        Panel(patch(rear, (0.0, 1.0), (0.0, 0.16)), DARK),
        Panel(patch(rear, (0.4, 0.6), (0.03, 0.13)), PLATE),
    ]
    ribs = [
        Panel(patch(load[side], (at, at + 0.015), (0.0, 1.0)), shade)
        for side in ("left", "right")
        for at in np.arange(0.12, 0.95, 0.19)
    ]
    cargo = solid(load, paint, *doors, *lamps, *ribs, *_discs(-2.2, 0.5, 1.25))
    return stacked(2, under, (0.8, Split(0, 1.38, cargo, _cab(paint))))


def _cab(paint: Rgb) -> Node:
    low = box(1.46, 3.45, 1.22, 0.42, 1.5)
    high = frustum((1.46, 3.45, 1.22, 1.5), (1.46, 3.1, 1.14, 2.5))
    lamps = [
        panel
        for across in ((0.04, 0.25), (0.75, 0.96))
        for panel in _framed(low["front"], across, (0.2, 0.44), HEAD_LAMP)
    ]
    front = [
        Panel(patch(low["front"], (0.0, 1.0), (0.0, 0.16)), DARK),
        Panel(patch(low["front"], (0.27, 0.73), (0.3, 0.85)), DARK),
        Panel(patch(low["front"], (0.4, 0.6), (0.03, 0.14)), PLATE),
    ]
    glass = [Panel(patch(high["front"], (0.06, 0.94), (0.06, 0.92)), GLASS)]
    glass += [Panel(patch(high["left"], (0.08, 0.62), (0.1, 0.88)), GLASS)]
    glass += [Panel(patch(high["right"], (0.38, 0.92), (0.1, 0.88)), GLASS)]
    return Split(2, 1.5, solid(low, paint, *front, *lamps, *_discs(2.45, 0.5, 1.25)), solid(high, paint, *glass))


def bus(paint: Rgb) -> Node:
    """A city bus: a full windscreen and a lit sign in front, a small window and a grille behind."""
    wheels = _wheels([3.3, -2.7], radius_m=0.5, inner_m=0.95, outer_m=1.45)
    under = _between_wheels(wheels, solid(box(-5.1, 5.1, 0.9, 0.25, 0.5), SILL))
    shell = frustum((-5.25, 5.25, 1.45, 0.34), (-5.2, 5.12, 1.42, 3.1))
    panels = [*_bus_front(shell["front"]), *_bus_rear(shell["rear"])]
    for side in ("left", "right"):
        panels += [
            Panel(patch(shell[side], (at, at + 0.105), (0.44, 0.8)), GLASS) for at in np.arange(0.035, 0.9, 0.1185)
        ]
        panels.append(Panel(patch(shell[side], (0.0, 1.0), (0.0, 0.06)), DARK))
    for at in (0.86, 0.5):
        panels.append(Panel(patch(shell["right"], (at, at + 0.1), (0.03, 0.8)), DARK))
        panels.append(Panel(patch(shell["right"], (at + 0.01, at + 0.047), (0.07, 0.77)), GLASS))
        panels.append(Panel(patch(shell["right"], (at + 0.053, at + 0.09), (0.07, 0.77)), GLASS))
    coach = solid(shell, paint, *panels, *_discs(3.3, 0.5, 1.45), *_discs(-2.7, 0.5, 1.45))
    return stacked(2, under, (0.34, coach), (3.1, solid(box(-3.8, 1.5, 0.95, 3.1, 3.3), _dim(paint, 0.85))))


def _bus_front(front: np.ndarray) -> list[Panel]:
    return [
        Panel(patch(front, (0.05, 0.95), (0.34, 0.8)), GLASS),
        Panel(patch(front, (0.49, 0.51), (0.34, 0.8)), DARK),
        Panel(patch(front, (0.14, 0.86), (0.83, 0.96)), DARK),
        Panel(patch(front, (0.24, 0.76), (0.86, 0.93)), AMBER, True),
        Panel(patch(front, (0.0, 1.0), (0.0, 0.07)), DARK),
        Panel(patch(front, (0.4, 0.6), (0.09, 0.16)), PLATE),
        *_framed(front, (0.04, 0.24), (0.1, 0.22), HEAD_LAMP),
        *_framed(front, (0.76, 0.96), (0.1, 0.22), HEAD_LAMP),
    ]


def _bus_rear(rear: np.ndarray) -> list[Panel]:
    return [
        Panel(patch(rear, (0.2, 0.8), (0.62, 0.84)), DARK_GLASS),
        Panel(patch(rear, (0.18, 0.82), (0.2, 0.5)), DARK),
        Panel(patch(rear, (0.0, 1.0), (0.0, 0.07)), DARK),
        Panel(patch(rear, (0.4, 0.6), (0.09, 0.16)), PLATE),
        *_framed(rear, (0.03, 0.15), (0.12, 0.42), TAIL_LAMP),
        *_framed(rear, (0.85, 0.97), (0.12, 0.42), TAIL_LAMP),
    ]


def _framed(face: np.ndarray, across: tuple[float, float], up: tuple[float, float], lamp: Rgb) -> list[Panel]:
    """A lamp in a dark frame, so that a red lamp shows on a red car and a pale one on a white car."""
    wide, tall = 0.02, 0.16 * (up[1] - up[0])
    frame = patch(face, (across[0] - wide, across[1] + wide), (up[0] - tall, up[1] + tall))
    return [Panel(frame, DARK), Panel(patch(face, across, up), lamp, True)]


def _dim(rgb: Rgb, factor: float) -> Rgb:
    return (rgb[0] * factor, rgb[1] * factor, rgb[2] * factor)


def _discs(x_m: float, radius_m: float, half_width_m: float) -> list[Panel]:
    """A wheel's outer face on both sides of a vehicle."""
    return [
        Panel(disc((x_m, side * half_width_m, radius_m), radius_m * share), rgb)
        for side in (-1, 1)
        for share, rgb in ((1.0, TYRE), (0.62, HUB), (0.2, DARK))
    ]


def _wheels(at_x_m: list[float], radius_m: float, inner_m: float, outer_m: float) -> tuple[Node, Node]:
    """The right and the left pair of tyres, lower halves only: the body hides the upper ones."""
    angles = np.linspace(np.pi, 2 * np.pi, 8)
    sides: list[Node] = []
    for y0, y1 in ((-outer_m, -inner_m), (inner_m, outer_m)):
        front, rear = (
            solid(
                prism([(x_m + radius_m * float(np.cos(a)), radius_m * (1 + float(np.sin(a)))) for a in angles], y0, y1),
                TYRE,
            )
            for x_m in at_x_m
        )
        sides.append(Split(0, 0.0, rear, front))
    return sides[0], sides[1]


def _between_wheels(wheels: tuple[Node, Node], chassis: Node) -> Node:
    right, left = wheels
    edge_m = float(_first_solid(left).panels[0].corners_m[0, 1])
    return stacked(1, right, (-edge_m, chassis), (edge_m, left))


def _first_solid(tree: Node) -> Solid:
    return tree if isinstance(tree, Solid) else _first_solid(tree.low)
