"""Write a small rendered world in the nuScenes format, from a seed, with exact truth.

    python data_gen/synthetic.py --out data/synthetic --scenes 12 --frames-per-scene 8

The folder holds six camera images and a lidar sweep with labels per key frame, a map mask and the tables
(`v1.0-synthetic/`), which nuscenes-devkit and data_gen/build_surds.py open as they open the real thing. Two more files
hold what nuScenes does not: `descriptions.json` (wording and colour per annotation) and `splits.json` (scene names).
Road users are drawn where their boxes are at the lidar's time. The tables come last: a folder without them is
unfinished, and `--resume` completes it.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from data_gen.command_line import parse_with_config
from data_gen.files import write_whole
from data_gen.folders import OutputFolder
from data_gen.in_order import map_in_processes
from data_gen.rendering.drives import (
    MAP_SIDE_M,
    ScenePlan,
    WorldSpec,
    cameras_at,
    ego_pose,
    plan_scene,
    surroundings_of,
)
from data_gen.rendering.lidar_sim import Sweep, Target, sweep
from data_gen.rendering.palette import KINDS
from data_gen.rendering.picture import supersampling
from data_gen.rendering.rig import CAMERAS, LIDAR_MOUNT, PinholeCamera, RigidPose, sensor_in_world
from data_gen.rendering.scenery import PAVEMENT_HALF_WIDTH_M, ROAD_HALF_WIDTH_M, Road, Surroundings, paint_scene
from data_gen.rendering.tables import (
    CATEGORY_INDEX,
    VERSION,
    LidarCounts,
    build_tables,
    lidarseg_file,
    map_file,
    sensor_file,
)
from data_gen.rendering.traffic import RoadUser

__all__ = ["WorldSpec", "main", "write_world"]

JPEG_QUALITY = 94
GRAIN = 3  # sensor noise, in grey levels to either side
MAP_METRES_PER_PX = 0.1  # the devkit's MapMask assumes it
SPEC_FILE = "world_spec.json"
Job = tuple[Path, WorldSpec, int, int]


def write_world(out: Path, spec: WorldSpec, *, resume: bool = False, overwrite: bool = False, workers: int = 1) -> None:
    """Write the world of `spec` under `out`.

    Raises FileExistsError for a folder that is not empty, unless told to resume or overwrite, and ValueError where
    `resume` meets a world of another spec.
    """
    from tqdm import tqdm

    _prepare_folder(out, spec, resume, overwrite)
    if is_finished(out):
        return
    jobs = [(out, spec, scene, frame) for scene in range(spec.scenes) for frame in range(spec.frames_per_scene)]
    counts: list[list[LidarCounts]] = [[] for _ in range(spec.scenes)]
    with tqdm(total=len(jobs) * len(CAMERAS), unit="image", desc="synthetic world") as progress:
        for job, count in zip(jobs, map_in_processes(write_keyframe, jobs, workers), strict=True):
            counts[job[2]].append(count)
            progress.update(len(CAMERAS))
    plans = [plan_scene(spec, scene) for scene in range(spec.scenes)]
    _write_map(out / map_file(spec.seed), plans)
    _write_tables(out, build_tables(spec, plans, counts))


def is_finished(out: Path) -> bool:
    """Whether a folder holds the tables and every file they name."""
    tables = [out / VERSION / f"{name}.json" for name in ("sample_data", "lidarseg", "map")]
    if not all(table.is_file() for table in tables):
        return False
    return all((out / record["filename"]).is_file() for table in tables for record in json.loads(table.read_text()))


def _prepare_folder(out: Path, spec: WorldSpec, resume: bool, overwrite: bool) -> None:
    """Refuse, clear or accept the output folder, and note in it what it is going to hold."""
    spec_path = out / SPEC_FILE
    unset = {"test_scenes": 0, "depths_m": None}
    wanted = json.dumps({name: value for name, value in asdict(spec).items() if value != unset.get(name, spec)})
    found = spec_path.read_text() if spec_path.is_file() else wanted
    if resume and found != wanted:
        raise ValueError(f"cannot resume {out}: it holds {found}, asked for {wanted}; start anew with --overwrite")
    OutputFolder(out, "world", resume, overwrite).prepare()
    spec_path.write_text(wanted)


def write_keyframe(job: Job) -> LidarCounts:
    """Write the images, the sweep and the labels of one key frame, except those that exist."""
    out, spec, scene_index, frame_index = job
    plan, around = plan_scene(spec, scene_index), surroundings_of(spec, scene_index)
    users = plan.traffic[frame_index]
    for number, camera in enumerate(cameras_at(spec, plan.motion, frame_index)):
        path = out / sensor_file(plan, frame_index, CAMERAS[number])
        if not path.exists():
            grain_rng = np.random.default_rng([spec.seed, scene_index, frame_index, number])
            write_whole(path, _as_jpeg(take_picture(around, users, camera, grain_rng)))
    turn = take_sweep(around, users, ego_pose(plan.motion, frame_index, LIDAR_MOUNT))
    for name, array in (
        (sensor_file(plan, frame_index, LIDAR_MOUNT), turn.points),
        (lidarseg_file(spec.seed, plan, frame_index), turn.labels),
    ):
        if not (out / name).exists():
            write_whole(out / name, array.tobytes())
    hits, hits_alone = turn.returned[: len(users)], turn.returned_alone[: len(users)]
    return LidarCounts(tuple(hits.tolist()), tuple(hits_alone.tolist()))


def take_picture(
    around: Surroundings, users: Sequence[RoadUser], camera: PinholeCamera, grain_rng: np.random.Generator
) -> Image.Image:
    """One camera's image of a key frame, with a little sensor noise."""
    picture = paint_scene(camera, around, [user.placed() for user in users], supersampling(camera.width_px))
    grain = grain_rng.integers(-GRAIN, GRAIN + 1, (camera.height_px, camera.width_px, 1), dtype=np.int16)
    return Image.fromarray(np.clip(np.asarray(picture) + grain, 0, 255).astype(np.uint8))


def take_sweep(around: Surroundings, users: Sequence[RoadUser], ego: RigidPose) -> Sweep:
    """The lidar's turn at a key frame; its first targets are the road users in the plan's order."""
    axes_3x3, origin_m = sensor_in_world(LIDAR_MOUNT, ego)
    targets = [Target(user.placed(), CATEGORY_INDEX[KINDS[user.kind].category]) for user in users]
    targets += [Target(item.placed, CATEGORY_INDEX[item.category]) for item in (*around.buildings, *around.trees)]
    return sweep(axes_3x3, origin_m, targets, lambda points_m: _ground_label(around.road, points_m))


def _ground_label(road: Road, points_m: np.ndarray) -> np.ndarray:
    """Class indices (N,) of ground points (N, 3): road, pavement or the open ground beside them."""
    aside_m = np.abs(road.along_aside(points_m)[:, 1])
    names = ("flat.driveable_surface", "flat.sidewalk", "flat.terrain")
    surface = np.digitize(aside_m, [ROAD_HALF_WIDTH_M, PAVEMENT_HALF_WIDTH_M])
    return np.array([CATEGORY_INDEX[name] for name in names])[surface]


def _write_map(path: Path, plans: list[ScenePlan]) -> None:
    """The mask of all roads: white where one may drive, north up."""
    side_px = round(MAP_SIDE_M / MAP_METRES_PER_PX)
    mask = Image.new("L", (side_px, side_px))
    draw = ImageDraw.Draw(mask)
    half_m = ROAD_HALF_WIDTH_M
    for plan in plans:
        ends = np.array([[-250.0, -half_m], [250.0, -half_m], [250.0, half_m], [-250.0, half_m]])
        x_px, y_px = (plan.road.to_world(ends)[:, :2] / MAP_METRES_PER_PX).T
        draw.polygon(np.column_stack([x_px, side_px - y_px]).ravel().tolist(), fill=255)
    buffer = BytesIO()
    mask.save(buffer, format="PNG")
    write_whole(path, buffer.getvalue())


def _write_tables(out: Path, tables: dict[str, object]) -> None:
    """All tables at once: the folder gets its name when the last one is complete."""
    folder, part = out / VERSION, out / f"{VERSION}.part"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name, table in tables.items():
        (part / f"{name}.json").write_text(json.dumps(table, indent=0))
    part.rename(folder)


def _as_jpeg(picture: Image.Image) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, format="JPEG", quality=JPEG_QUALITY, subsampling=0)
    return buffer.getvalue()


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    defaults = WorldSpec()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("data/world"), help="folder to write (default %(default)s)")
    parser.add_argument("--scenes", type=int, default=defaults.scenes, help="number of scenes (default %(default)s)")
    parser.add_argument(
        "--frames-per-scene", type=int, default=defaults.frames_per_scene, help="key frames each (default %(default)s)"
    )
    parser.add_argument(
        "--width", type=int, default=defaults.width_px, help="image width in pixels (default %(default)s)"
    )
    parser.add_argument(
        "--height", type=int, default=defaults.height_px, help="image height in pixels (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help="same seed, same bytes (default %(default)s)")
    parser.add_argument(
        "--test-scenes", type=int, default=defaults.test_scenes, metavar="N",
        help="the last N scenes are for testing, a split of their own (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--depths-m", type=float, nargs=2, metavar=("NEAREST", "FARTHEST"),
        help="the same depths for all kinds of road users, so that the kind does not tell who is nearer "
        "(default: each kind its own)",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=1, help="processes (default %(default)s)")
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="complete the world that is in the folder")
    existing.add_argument("--overwrite", action="store_true", help="remove the world that is in the folder first")
    return parse_with_config(parser, arguments)


def main(arguments: list[str] | None = None) -> None:
    """Entry point; exits with 2 on an output folder or a size that cannot be used."""
    options = parse_arguments(arguments)
    try:
        spec = WorldSpec(
            options.scenes,
            options.frames_per_scene,
            options.width,
            options.height,
            options.seed,
            options.test_scenes,
            tuple(options.depths_m) if options.depths_m else None,
        )
        write_world(options.out, spec, resume=options.resume, overwrite=options.overwrite, workers=options.workers)
    except (FileExistsError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"wrote {spec.scenes} scenes of {spec.frames_per_scene} key frames to {options.out} ({VERSION})")


if __name__ == "__main__":
    main()
