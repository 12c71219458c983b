"""Pictures of the rendered world as arrays, in the size that the model sees, with what is in them.

Rendered in memory by the code that writes a world's camera images, from scenes that no world on disk has by default.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from data_gen.compass import DIRECTIONS, direction_of
from data_gen.filters import overlap_shares
from data_gen.in_order import map_in_processes
from data_gen.rendering.drives import WorldSpec, cameras_at, plan_scene, surroundings_of
from data_gen.rendering.palette import COLOURS, KINDS, describe
from data_gen.rendering.rig import PinholeCamera
from data_gen.rendering.traffic import RoadUser, glimpse
from data_gen.synthetic import take_picture
from rewards.boxes import CoordinateFrame

WIDTH_PX, HEIGHT_PX = 224, 126  # as rendered
MAX_PIXELS = 224 * 112
FRAME = CoordinateFrame("resized", min_pixels=28 * 28, max_pixels=MAX_PIXELS)
SHOWN_PX = FRAME.size((WIDTH_PX, HEIGHT_PX))  # (width, height) after the model's own resizing
FRAMES_PER_SCENE, SCENES_PER_FILE = 2, 50
# Far above the seeds that people count up from: no scene here is one of a world that they make.
FIRST_SEED = 7_000_000
LEAST_AREA_PX = 2000 * WIDTH_PX * HEIGHT_PX / (1600 * 900)
MOST_OVERLAP = 0.8
KIND_NAMES, COLOUR_NAMES = tuple(KINDS), tuple(COLOURS)

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Seen:
    """One object of a picture; box in the pixels that the model sees, heading an index into DIRECTIONS."""

    kind: int
    colour: int
    heading: int
    box_xyxy_px: tuple[float, float, float, float]
    depth_m: float

    @property
    def name(self) -> str:
        """The standard wording, such as "red car"."""
        return describe(KIND_NAMES[self.kind], COLOUR_NAMES[self.colour])

    @property
    def whole_box(self) -> tuple[int, int, int, int]:
        """The box in whole pixels."""
        x1, y1, x2, y2 = (round(value) for value in self.box_xyxy_px)
        return x1, y1, x2, y2

    def mirrored(self) -> Seen:
        """The same object in the picture seen in a mirror."""
        x1, y1, x2, y2 = self.box_xyxy_px
        box = (SHOWN_PX[0] - x2, y1, SHOWN_PX[0] - x1, y2)
        return Seen(self.kind, self.colour, -self.heading % len(DIRECTIONS), box, self.depth_m)


@dataclass(frozen=True)
class Pictures:
    """N pictures and the objects of each."""

    pixels: Pixels  # (N, height, width, 3)
    objects: tuple[tuple[Seen, ...], ...]

    def __len__(self) -> int:
        return len(self.objects)


def nameable(objects: Sequence[Seen]) -> list[Seen]:
    """The objects whose name no other of the picture has."""
    names = [item.name for item in objects]
    return [item for item in objects if names.count(item.name) == 1]


def render_scenes(seed: int, scenes: range) -> Pictures:
    """All pictures of some scenes that show an object one can ask about."""
    spec = WorldSpec(scenes.stop, FRAMES_PER_SCENE, WIDTH_PX, HEIGHT_PX, FIRST_SEED + seed)
    taken = [picture for scene in scenes for picture in _scene_pictures(spec, scene)]
    return Pictures(np.stack([pixels for pixels, _ in taken]), tuple(objects for _, objects in taken))


def _scene_pictures(spec: WorldSpec, scene: int) -> Iterator[tuple[Pixels, tuple[Seen, ...]]]:
    plan, around = plan_scene(spec, scene), surroundings_of(spec, scene)
    for frame, users in enumerate(plan.traffic):
        for number, camera in enumerate(cameras_at(spec, plan.motion, frame)):
            objects = seen_by(camera, users)
            if objects:
                grain_rng = np.random.default_rng([spec.seed, scene, frame, number])
                yield shown_pixels(take_picture(around, users, camera, grain_rng)), objects


def shown_pixels(picture: Image.Image) -> Pixels:
    """A picture in the size that the image processor brings it to, by its own resampling."""
    return np.asarray(picture.resize(FRAME.size(picture.size), Image.Resampling.BICUBIC))


def seen_by(camera: PinholeCamera, users: Sequence[RoadUser]) -> tuple[Seen, ...]:
    """What a camera sees large enough, with its centre in the picture and not behind another."""
    found = [(user, seen) for user in users if (seen := glimpse(camera, user)) is not None]
    if not found:
        return ()
    hidden_NN = overlap_shares(np.array([seen.box_xyxy_px for _, seen in found])) > MOST_OVERLAP
    distances_m = np.array([seen.distance_m for _, seen in found])
    hidden = np.logical_or.reduce(hidden_NN & (distances_m[:, None] > distances_m), axis=1)
    return tuple(
        _seen(camera, user, seen.box_xyxy_px, seen.depth_m)
        for (user, seen), behind in zip(found, hidden, strict=True)
        if seen.centre_inside and seen.area_px >= LEAST_AREA_PX and not behind
    )


def _seen(camera: PinholeCamera, user: RoadUser, box_px: NDArray[np.float64], depth_m: float) -> Seen:
    forward = camera.axes_3x3.T @ np.array([math.cos(user.yaw_rad), math.sin(user.yaw_rad), 0.0])
    heading = DIRECTIONS.index(direction_of(math.atan2(forward[0], forward[2])))
    x1, y1, x2, y2 = FRAME.to_model(box_px.tolist(), (WIDTH_PX, HEIGHT_PX))
    return Seen(KIND_NAMES.index(user.kind), COLOUR_NAMES.index(user.colour), heading, (x1, y1, x2, y2), depth_m)


def write_shard(job: tuple[Path, int, range]) -> Path:
    """Render some scenes into a file, unless it is there; gives the file."""
    path, seed, scenes = job
    if not path.exists():
        pictures = render_scenes(seed, scenes)
        rows = [
            (index, item.kind, item.colour, item.heading, *item.box_xyxy_px, item.depth_m)
            for index, objects in enumerate(pictures.objects)
            for item in objects
        ]
        part = path.with_name(f"{path.stem}.part.npz")
        np.savez(part, pixels=pictures.pixels, objects=np.array(rows, dtype=np.float32))
        part.rename(path)
    return path


def read_shard(path: Path) -> Pictures:
    """What `write_shard` has written."""
    with np.load(path) as arrays:
        pixels_NHWC, rows = arrays["pixels"], arrays["objects"].tolist()
    objects: list[list[Seen]] = [[] for _ in pixels_NHWC]
    for index, kind, colour, heading, x1, y1, x2, y2, depth_m in rows:
        objects[int(index)].append(Seen(int(kind), int(colour), int(heading), (x1, y1, x2, y2), depth_m))
    return Pictures(pixels_NHWC, tuple(map(tuple, objects)))


def rendered(folder: Path, seed: int, scenes: int, workers: int = 1) -> Pictures:
    """Pictures of the first scenes of a seed, rendered into `folder` as far as they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, scenes, SCENES_PER_FILE)
    jobs = [
        (folder / f"{seed}-{start:05d}.npz", seed, range(start, min(start + SCENES_PER_FILE, scenes)))
        for start in starts
    ]
    shards = list(map(read_shard, map_in_processes(write_shard, jobs, workers)))
    pixels_NHWC = np.concatenate([shard.pixels for shard in shards])
    return Pictures(pixels_NHWC, tuple(objects for shard in shards for objects in shard.objects))
