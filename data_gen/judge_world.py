"""All key frames of a world, judged in parts by several processes, so that an interrupted build goes on where it was.

Every part is a file of its own in a working folder, written whole or not at all. Processes are forked: they share the
arrays of the world and copy nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tqdm import tqdm

from data_gen.files import write_whole
from data_gen.filters import Thresholds
from data_gen.in_order import map_in_forks
from data_gen.scene_builder import JudgedImage, judge_frame, judged_image
from data_gen.world import World

FRAMES_PER_PART = 64


@dataclass(frozen=True)
class Judging:
    """What to judge and how; `folder` takes the parts."""

    world: World
    frames: Sequence[int]
    thresholds: Thresholds
    pixel: str
    folder: Path

    @property
    def parts(self) -> list[Sequence[int]]:
        """The key frames of every part."""
        starts = range(0, len(self.frames), FRAMES_PER_PART)
        return [self.frames[start : start + FRAMES_PER_PART] for start in starts]

    def path(self, part: int) -> Path:
        """Where a part is, or will be."""
        return self.folder / f"frames-{part:05d}.json"


def judge_world(job: Judging, workers: int = 1) -> None:
    """Judge the parts that are not there yet. Raises WorldError as reading the world does."""
    left = [part for part in range(len(job.parts)) if not job.path(part).is_file()]
    total = sum(len(job.parts[part]) for part in left)
    with tqdm(total=total, unit=" key frames", mininterval=1, desc="geometry and lidar") as bar:
        for part in map_in_forks(judge_part, job, left, max(1, min(workers, len(left)))):
            bar.update(len(job.parts[part]))


def read_judged(job: Judging) -> Iterator[JudgedImage]:
    """The judged images of all parts, in the order of the world."""
    decoder = msgspec.json.Decoder(list[JudgedImage])
    for part in range(len(job.parts)):
        yield from decoder.decode(job.path(part).read_bytes())


def judge_part(job: Judging, part: int) -> int:
    """Judge one part and write its file; returns the part."""
    images = []
    for place in job.parts[part]:
        frame = job.world[place]
        judged = judge_frame(job.world, frame, job.thresholds)
        images += [judged_image(frame, view, job.pixel) for view in judged]
    write_whole(job.path(part), msgspec.json.encode(images))
    return part
