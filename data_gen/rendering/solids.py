"""Coloured convex solids, and bodies built from them that can be drawn without a depth buffer.

A body is a tree. Its leaves are convex solids, whose outward faces may be painted in any order; its inner nodes are
axis-aligned planes, of which the side away from the eye is painted first. So a body always comes out right, with a
binary space partition (Fuchs, Kedem and Naylor, 1980) that the shapes carry with them.

Local frame: x forward, y left, z up. Lengths in metres, colours (red, green, blue) from 0 to 255.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Rgb = tuple[float, float, float]
Size = tuple[float, float, float]


@dataclass(frozen=True)
class Panel:
    """One flat convex polygon (N, 3), counter-clockwise seen from outside; a glowing one ignores the light."""

    corners_m: np.ndarray
    rgb: Rgb
    glows: bool = False


@dataclass(frozen=True)
class Solid:
    """A convex solid: panels in painting order, decals after the face they lie on."""

    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Split:
    """A plane across `axis` (0, 1, 2) at `at_m`, with what lies below and above it."""

    axis: int
    at_m: float
    low: Node
    high: Node


Node = Solid | Split


@dataclass(frozen=True)
class Body:
    """A tree of solids flattened to arrays: V corners, P panels, S solids."""

    tree: Node
    corners_m: np.ndarray  # (V, 3)
    starts: np.ndarray  # (P + 1,), panel i owns corners starts[i] to starts[i + 1]
    normals: np.ndarray  # (P, 3), unit, outward
    rgb: np.ndarray  # (P, 3)
    glows: np.ndarray  # (P,), bool
    solid_starts: np.ndarray  # (S + 1,), solid i owns panels solid_starts[i] to solid_starts[i + 1]
    solid_boxes_m: np.ndarray  # (S, 2, 3), lower and upper corner


def frustum(bottom: Sequence[float], top: Sequence[float]) -> dict[str, np.ndarray]:
    """Six quadrilaterals (4, 3) between two level rectangles `(x_rear, x_front, half_width, z)`.

    Corner order of the upright faces, seen from outside: bottom left, bottom right, top right, top left.
    """
    x0, x1, w0, z0 = bottom
    x2, x3, w1, z1 = top
    faces = {
        "bottom": [(x0, w0, z0), (x1, w0, z0), (x1, -w0, z0), (x0, -w0, z0)],
        "front": [(x1, -w0, z0), (x1, w0, z0), (x3, w1, z1), (x3, -w1, z1)],
        "rear": [(x0, w0, z0), (x0, -w0, z0), (x2, -w1, z1), (x2, w1, z1)],
        "left": [(x1, w0, z0), (x0, w0, z0), (x2, w1, z1), (x3, w1, z1)],
        "right": [(x0, -w0, z0), (x1, -w0, z0), (x3, -w1, z1), (x2, -w1, z1)],
        "top": [(x2, -w1, z1), (x3, -w1, z1), (x3, w1, z1), (x2, w1, z1)],
    }
    return {name: np.array(corners) for name, corners in faces.items()}


def box(x0: float, x1: float, half_width: float, z0: float, z1: float) -> dict[str, np.ndarray]:
    """The faces of an upright box around the x axis."""
    return frustum((x0, x1, half_width, z0), (x0, x1, half_width, z1))


def shifted(faces: dict[str, np.ndarray], y_m: float) -> dict[str, np.ndarray]:
    """The same faces, moved to the left by `y_m`."""
    return {name: corners + np.array([0.0, y_m, 0.0]) for name, corners in faces.items()}


def patch(face: np.ndarray, across: tuple[float, float], up: tuple[float, float]) -> np.ndarray:
    """The part of a quadrilateral (4, 3) between two fractions of its width and two of its height."""
    bottom_left, bottom_right, top_right, top_left = face

    def at(u: float, v: float) -> np.ndarray:
        return (1 - v) * ((1 - u) * bottom_left + u * bottom_right) + v * ((1 - u) * top_left + u * top_right)

    return np.array([at(across[0], up[0]), at(across[1], up[0]), at(across[1], up[1]), at(across[0], up[1])])


def disc(center_m: Size, radius_m: float, sides: int = 14) -> np.ndarray:
    """A polygon (sides, 3) in the plane of x and z, seen from the side of y on which its centre lies."""
    angles = np.linspace(0, 2 * np.pi, sides, endpoint=False) * (-1.0 if center_m[1] >= 0 else 1.0)
    ring = np.stack([np.cos(angles), np.zeros(sides), np.sin(angles)], axis=1)
    return np.array(center_m) + radius_m * ring


def prism(outline_xz_m: Sequence[tuple[float, float]], y0: float, y1: float) -> list[np.ndarray]:
    """A convex outline in the plane of x and z, counter-clockwise seen from the right, from `y0` to `y1`."""
    outline = np.array(outline_xz_m)
    near, far = (np.insert(outline, 1, y, axis=1) for y in (y0, y1))
    sides = [
        np.array([near[i], far[i], far[(i + 1) % len(outline)], near[(i + 1) % len(outline)]])
        for i in range(len(outline))
    ]
    return [near, far[::-1], *sides]


def bar(start_xz_m: tuple[float, float], end_xz_m: tuple[float, float], thick_m: float, y_m: float) -> list[np.ndarray]:
    """A straight tube of square section in the plane y = `y_m`."""
    start, end = np.array(start_xz_m), np.array(end_xz_m)
    along = (end - start) / np.linalg.norm(end - start)
    aside = np.array([-along[1], along[0]]) * thick_m / 2
    outline = [start - aside, end - aside, end + aside, start + aside]
    return prism([(float(x), float(z)) for x, z in outline], y_m - thick_m / 2, y_m + thick_m / 2)


def ellipsoid(center_m: Size, radii_m: Size, rings: int = 4, sides: int = 10) -> list[np.ndarray]:
    """Quadrilaterals of a faceted ellipsoid; those at the poles are triangles with one corner twice."""
    heights = -np.cos(np.linspace(0, np.pi, rings + 1))
    angles = np.linspace(0, 2 * np.pi, sides, endpoint=False)
    radius = np.sqrt(np.clip(1 - heights**2, 0, None))[:, None]
    ring = np.stack(np.broadcast_arrays(radius * np.cos(angles), radius * np.sin(angles), heights[:, None]), axis=-1)
    grid = np.array(center_m) + ring * np.array(radii_m)
    return [
        np.array([grid[i, j], grid[i, (j + 1) % sides], grid[i + 1, (j + 1) % sides], grid[i + 1, j]])
        for i in range(rings)
        for j in range(sides)
    ]


def solid(faces: dict[str, np.ndarray] | Sequence[np.ndarray], rgb: Rgb, *decals: Panel) -> Solid:
    """A solid of one colour with decals on it."""
    polygons = faces.values() if isinstance(faces, dict) else faces
    return Solid((*(Panel(corners_m, rgb) for corners_m in polygons), *decals))


def solid_by_normal(faces: Sequence[np.ndarray], colour_of: Callable[[np.ndarray], Rgb], *decals: Panel) -> Solid:
    """A solid whose faces take their colour from their outward normal (3,)."""
    starts = np.cumsum([0, *(len(corners_m) for corners_m in faces)])
    normals = _normals(np.concatenate(faces), starts)
    painted = (Panel(corners_m, colour_of(normal)) for corners_m, normal in zip(faces, normals, strict=True))
    return Solid((*painted, *decals))


def stacked(axis: int, first: Node, *rest: tuple[float, Node]) -> Node:
    """`first`, then each `(plane, node)` beyond its plane along `axis`."""
    tree = first
    for at_m, node in rest:
        tree = Split(axis, at_m, tree, node)
    return tree


def build_body(tree: Node, size_lwh_m: Size | None = None) -> Body:
    """Flatten a tree; with `size_lwh_m` it is stretched to fill a box of exactly that length, width and height.

    The box is centred on x and y and stands on z = 0, so an annotation of that size bounds the body tightly.
    """
    solids = list(_leaves(tree))
    panels = [panel for leaf in solids for panel in leaf.panels]
    corners_m = np.concatenate([panel.corners_m for panel in panels]).astype(np.float64)
    starts = np.cumsum([0, *(len(panel.corners_m) for panel in panels)])
    solid_starts = np.cumsum([0, *(len(leaf.panels) for leaf in solids)])
    if size_lwh_m is not None:
        scale, offset = _stretch(corners_m, size_lwh_m)
        corners_m, tree = corners_m * scale + offset, _stretched_tree(tree, scale, offset)
    corner_starts = starts[solid_starts]
    boxes_m = [
        (corners_m[start:end].min(axis=0), corners_m[start:end].max(axis=0)) for start, end in pairwise(corner_starts)
    ]
    return Body(
        tree=tree,
        corners_m=corners_m,
        starts=starts,
        normals=_normals(corners_m, starts),
        rgb=np.array([panel.rgb for panel in panels], dtype=np.float64),
        glows=np.array([panel.glows for panel in panels]),
        solid_starts=solid_starts,
        solid_boxes_m=np.array(boxes_m),
    )


def painting_order(body: Body, eye_m: np.ndarray) -> list[int]:
    """Indices of the panels that face an eye (3,) in the body's frame, far ones first."""
    anchors_m = body.corners_m[body.starts[:-1]]
    facing = ((eye_m - anchors_m) * body.normals).sum(axis=1) > 0
    order: list[int] = []
    for index in _solid_order(body.tree, eye_m, 0)[0]:
        panels = range(body.solid_starts[index], body.solid_starts[index + 1])
        order.extend(panel for panel in panels if facing[panel])
    return order


def _solid_order(tree: Node, eye_m: np.ndarray, first: int) -> tuple[list[int], int]:
    """Solids of a subtree, far ones first, counted from `first` in leaf order, and the index after the last."""
    if isinstance(tree, Solid):
        return [first], first + 1
    low, after_low = _solid_order(tree.low, eye_m, first)
    high, after_high = _solid_order(tree.high, eye_m, after_low)
    return (low + high if eye_m[tree.axis] > tree.at_m else high + low), after_high


def _leaves(tree: Node) -> Iterator[Solid]:
    if isinstance(tree, Solid):
        yield tree
    else:
        yield from _leaves(tree.low)
        yield from _leaves(tree.high)


def _stretch(corners_m: np.ndarray, size_lwh_m: Size) -> tuple[np.ndarray, np.ndarray]:
    low, high = corners_m.min(axis=0), corners_m.max(axis=0)
    size = np.array(size_lwh_m)
    scale = size / (high - low)
    return scale, size * np.array([-0.5, -0.5, 0.0]) - low * scale


def _stretched_tree(tree: Node, scale: np.ndarray, offset: np.ndarray) -> Node:
    if isinstance(tree, Solid):
        return tree
    at_m = float(tree.at_m * scale[tree.axis] + offset[tree.axis])
    return Split(tree.axis, at_m, _stretched_tree(tree.low, scale, offset), _stretched_tree(tree.high, scale, offset))


def _normals(corners_m: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Unit normals (P, 3) of polygons given as runs of corners, by Newell's formula, which bears repeated corners."""
    following = np.arange(1, len(corners_m) + 1)
    following[starts[1:] - 1] = starts[:-1]
    normals = np.add.reduceat(np.cross(corners_m, corners_m[following]), starts[:-1], axis=0)
    return normals / np.linalg.norm(normals, axis=1, keepdims=True)
