"""What the synthetic world's road users are: their kinds, colours, sizes, categories and descriptions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from data_gen.rendering.people import cyclist, pedestrian
from data_gen.rendering.solids import Body, Node, Rgb, build_body
from data_gen.rendering.vehicles import bus, car, truck

COLOURS: dict[str, Rgb] = {
    "red": (205, 32, 38),
    "yellow": (240, 208, 36),
    "green": (28, 148, 62),
    "blue": (36, 84, 208),
    "purple": (128, 48, 166),
    "pink": (246, 134, 182),
    "white": (240, 241, 240),
    "black": (30, 31, 35),
}


@dataclass(frozen=True)
class Kind:
    """One kind of road user; sizes are (width, length, height) as in nuScenes."""

    category: str
    noun: str
    size_wlh_m: tuple[float, float, float]
    nearest_m: float
    farthest_m: float
    speed_mps: float
    attribute_moving: str
    attribute_still: str
    shape: Callable[[Rgb], Node]


KINDS: dict[str, Kind] = {
    "car": Kind("vehicle.car", "car", (1.92, 4.6, 1.62), 6.0, 45.0, 6.0, "vehicle.moving", "vehicle.parked", car),
    "truck": Kind(
        "vehicle.truck", "truck", (2.5, 6.9, 3.0), 9.0, 45.0, 5.0, "vehicle.moving", "vehicle.stopped", truck
    ),
    "bus": Kind(
        "vehicle.bus.rigid", "bus", (2.9, 10.5, 3.35), 12.0, 45.0, 5.0, "vehicle.moving", "vehicle.stopped", bus
    ),
    "pedestrian": Kind(
        "human.pedestrian.adult",
        "adult",
        (0.66, 0.74, 1.77),
        4.0,
        25.0,
        1.3,
        "pedestrian.moving",
        "pedestrian.standing",
        pedestrian,
    ),
    "cyclist": Kind(
        "vehicle.bicycle", "bicycle", (0.66, 1.8, 1.74), 4.5, 27.0, 3.5, "cycle.with_rider", "cycle.with_rider", cyclist
    ),
}


def describe(kind: str, colour: str) -> str:
    """The standard wording of an object: "white car", "adult wearing a red shirt"."""
    if kind == "pedestrian":
        return f"adult wearing a {colour} shirt"
    return f"{colour} {KINDS[kind].noun}"


@lru_cache(maxsize=4096)
def body_of(kind: str, colour: str, brightness: float, size_wlh_m: tuple[float, float, float]) -> Body:
    """The drawn body of an object: it fills its annotated box, standing on z = 0 around the origin."""
    red, green, blue = (min(255.0, channel * brightness) for channel in COLOURS[colour])
    width_m, length_m, height_m = size_wlh_m
    return build_body(KINDS[kind].shape((red, green, blue)), (length_m, width_m, height_m))
