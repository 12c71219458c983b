"""Pedestrians and cyclists as trees of coloured solids.

Everyone has a face in front and hair behind; a pedestrian carries a backpack, which tells the back even where the face
is a single pixel. The rider wears the colour of the bicycle, as a bicycle seen end-on shows almost none.
"""

import numpy as np

from data_gen.rendering.solids import (
    Node,
    Panel,
    Rgb,
    Solid,
    Split,
    bar,
    box,
    disc,
    ellipsoid,
    frustum,
    patch,
    prism,
    shifted,
    solid,
    solid_by_normal,
    stacked,
)

SKIN: Rgb = (226, 178, 146)
HAIR: Rgb = (52, 36, 26)
TROUSERS: Rgb = (58, 62, 78)
SHOES: Rgb = (28, 26, 26)
PACK: Rgb = (112, 82, 52)
STRAP: Rgb = (70, 50, 32)
TYRE: Rgb = (28, 28, 30)
SPOKES: Rgb = (158, 160, 164)
HELMET: Rgb = (66, 70, 76)
HEAD_LAMP: Rgb = (255, 250, 214)
TAIL_LAMP: Rgb = (232, 14, 24)


def pedestrian(shirt: Rgb) -> Node:
    """An adult in mid-stride, 1.77 m tall."""
    legs = Split(1, 0.0, _leg(-0.12, -0.13), _leg(0.12, 0.15))
    chest = frustum((-0.13, 0.11, 0.18, 0.84), (-0.12, 0.14, 0.23, 1.45))
    straps = [Panel(patch(chest["front"], across, (0.3, 1.0)), STRAP) for across in ((0.14, 0.26), (0.74, 0.86))]
    pack = solid(frustum((-0.36, -0.13, 0.16, 0.93), (-0.31, -0.12, 0.15, 1.42)), PACK)
    trunk = Split(0, -0.12, pack, solid(chest, shirt, *straps))
    middle = stacked(1, _arm(-0.28, 0.13, shirt), (-0.225, trunk), (0.225, _arm(0.28, -0.13, shirt)))
    return stacked(2, legs, (0.84, middle), (1.45, _head((0.03, 0.0, 1.6), HAIR)))


def _leg(y_m: float, reach_m: float) -> Node:
    """Trousers and a shoe whose toe points forward; the foot stands `reach_m` ahead of the hip."""
    leg = frustum((reach_m - 0.08, reach_m + 0.08, 0.075, 0.08), (-0.11, 0.11, 0.09, 0.86))
    shoe = box(reach_m - 0.1, reach_m + 0.2, 0.075, 0.0, 0.09)
    return Split(2, 0.085, solid(shifted(shoe, y_m), SHOES), solid(shifted(leg, y_m), TROUSERS))


def _arm(y_m: float, reach_m: float, sleeve: Rgb) -> Node:
    """A sleeve and a hand that swings `reach_m` ahead of the shoulder."""
    arm = frustum((reach_m - 0.05, reach_m + 0.05, 0.045, 0.88), (-0.06, 0.07, 0.055, 1.44))
    hand = box(reach_m - 0.04, reach_m + 0.06, 0.04, 0.78, 0.88)
    return Split(2, 0.88, solid(shifted(hand, y_m), SKIN), solid(shifted(arm, y_m), sleeve))


def _head(center_m: tuple[float, float, float], crown: Rgb) -> Solid:
    """A head that looks forward, with `crown` (hair or a helmet) on top and behind."""
    x, _, z = center_m
    faces = ellipsoid(center_m, (0.125, 0.11, 0.17), rings=6, sides=12)
    front_x = x + 0.12
    features = [Panel(_upright(front_x, y, z + 0.02, 0.018, 0.014), HAIR) for y in (-0.042, 0.042)] + [
        Panel(_upright(front_x, 0.0, z - 0.07, 0.03, 0.01), (150, 70, 70))
    ]

    def colour_of(normal: np.ndarray) -> Rgb:
        behind = normal[0] < 0.2 + 0.3 * normal[2] and normal[2] > -0.75
        return crown if behind or normal[2] > 0.62 else SKIN

    return solid_by_normal(faces, colour_of, *features)


def _upright(x: float, y: float, z: float, half_width: float, half_height: float) -> np.ndarray:
    """A small rectangle (4, 3) that faces forward."""
    return np.array(
        [
            [x, y - half_width, z - half_height],
            [x, y + half_width, z - half_height],
            [x, y + half_width, z + half_height],
            [x, y - half_width, z + half_height],
        ]
    )


def cyclist(paint: Rgb) -> Node:
    """A bicycle with its rider, 1.8 m long."""
    machine = stacked(0, _wheel(-0.56), (-0.24, _frame(paint)), (0.36, _wheel(0.56)))
    right_leg, left_leg = _pedalling(-0.13, (0.2, 0.6), (0.0, 0.16)), _pedalling(0.13, (0.3, 0.8), (0.08, 0.4))
    low = stacked(1, right_leg, (-0.07, machine), (0.07, left_leg))
    back = frustum((-0.32, -0.02, 0.17, 0.92), (0.0, 0.28, 0.21, 1.44))
    trunk = Split(2, 1.44, solid(back, paint), _head((0.26, 0.0, 1.58), HELMET))
    arms = [solid(bar((0.17, 1.38), (0.44, 1.06), 0.09, y), paint) for y in (-0.26, 0.26)]
    rider = stacked(1, arms[0], (-0.21, trunk), (0.21, arms[1]))
    lamp = Panel(_upright(0.53, 0.0, 1.0, 0.06, 0.05), HEAD_LAMP, True)
    handlebar = solid(box(0.46, 0.52, 0.32, 1.0, 1.05), SHOES, lamp)
    return Split(2, 0.92, low, Split(0, 0.45, rider, handlebar))


def _wheel(x_m: float) -> Solid:
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    outline = [(x_m + 0.34 * float(np.cos(a)), 0.34 * (1 + float(np.sin(a)))) for a in angles]
    spokes = [Panel(disc((x_m, y, 0.34), 0.27, 16), SPOKES) for y in (-0.025, 0.025)]
    return solid(prism(outline, -0.025, 0.025), TYRE, *spokes)


def _frame(paint: Rgb) -> Solid:
    """Tubes, saddle and a red rear lamp; the tubes lie in one plane and are painted in turn."""
    axle, crank, saddle, head = (-0.56, 0.34), (-0.08, 0.3), (-0.2, 0.84), (0.42, 0.86)
    fork = ((0.56, 0.34), (0.44, 1.0))
    ends = [(axle, crank), (axle, saddle), (crank, head), (saddle, head), (crank, saddle), fork]
    tubes = [face for start, end in ends for face in bar(start, end, 0.075, 0.0)]
    seat = [Panel(face, SHOES) for face in box(-0.36, -0.06, 0.09, 0.84, 0.91).values()]
    housing = box(-0.4, -0.34, 0.06, 0.72, 0.83)  # without a front face: the lamp must not show from there
    lamp = [Panel(housing[side], TAIL_LAMP, True) for side in ("rear", "left", "right")]
    return solid(tubes, paint, *seat, *lamp)


def _pedalling(y_m: float, knee_xz_m: tuple[float, float], foot_xz_m: tuple[float, float]) -> Node:
    """A leg from the hip over the knee to the pedal."""
    shin = solid(bar(foot_xz_m, knee_xz_m, 0.11, y_m), TROUSERS)
    x, z = foot_xz_m
    shoe = solid(shifted(box(x - 0.08, x + 0.18, 0.05, z - 0.07, z + 0.01), y_m), SHOES)
    thigh = solid(bar(knee_xz_m, (-0.16, 0.92), 0.14, y_m), TROUSERS)
    return Split(2, z, shoe, Split(2, knee_xz_m[1], shin, thigh))
