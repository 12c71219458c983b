"""Colours without a model: pixels by name, what counts as paint or clothes, and how often it is right."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from drawn_objects import BLACK, BLUE, GREEN, GREY, RED, WHITE, Rgb
from PIL import Image
from shared import need

from data_gen.describers.colour import colour_of, describe_image, painted, strong_colour, worn
from data_gen.describers.colours import NAMES, name_pixels, plain_name
from data_gen.describers.regions import BESIDE, in_front, likely_own, region_of, surroundings_of
from data_gen.descriptions import Asked, AskedImage
from data_gen.filters import Thresholds, geometric_reasons
from data_gen.synthetic import WorldSpec, write_world
from data_gen.views import views_of
from data_gen.world import load_world

CAR, BUS, BICYCLE, ADULT = "vehicle.car", "vehicle.bus.rigid", "vehicle.bicycle", "human.pedestrian.adult"
ROAD, GLASS, SKIN, BAG, PINK = (120, 120, 120), (58, 74, 96), (200, 150, 120), (112, 82, 52), (246, 134, 182)


def name_of(rgb: Rgb, glass: bool = False) -> str:
    return NAMES[name_pixels(np.array([rgb], dtype=np.uint8), glass).places[0]]


@pytest.mark.parametrize(
    ("rgb", "name"),
    [
        ((205, 32, 38), "red"),
        ((105, 20, 24), "red"),
        ((120, 74, 66), "red"),  # as washed out as street cameras show it
        ((240, 208, 36), "yellow"),
        ((28, 148, 62), "green"),
        ((36, 84, 208), "blue"),
        ((25, 50, 115), "blue"),
        ((128, 48, 166), "purple"),
        ((246, 134, 182), "pink"),
        ((180, 90, 130), "pink"),  # the same in shade
        ((240, 130, 35), "orange"),
        ((95, 62, 35), "brown"),
        ((205, 185, 150), "beige"),
        ((240, 241, 240), "plain"),
        ((120, 121, 119), "plain"),
        ((30, 31, 35), "dark"),
    ],
)
def test_pixels_by_name(rgb: Rgb, name: str) -> None:
    assert name_of(rgb) == name
    assert name_of(rgb, glass=True) == name


def test_windows_are_dark_only_where_there_is_glass() -> None:
    assert (name_of(GLASS), name_of(GLASS, glass=True)) == ("blue", "dark")


@pytest.mark.parametrize(
    ("lightness", "around", "name"),
    [
        (85, 90, "white"),  # as white as the wall behind it
        (48, 34, "white"),  # in shade, and still lighter than the road
        (48, 60, "grey"),  # as light, but the road is lighter
        (40, 20, ""),  # lighter than all around it, but too dark to tell
        (50, 47, ""),  # a little lighter than the road: either
        (65, 75, ""),
    ],
)
def test_white_is_judged_against_what_is_around(lightness: float, around: float, name: str) -> None:
    assert plain_name(lightness, around) == name


# --- what paint and clothes are ---


def pixels(*shares: tuple[Rgb, int]) -> np.ndarray:
    return np.array([rgb for rgb, count in shares for _ in range(count)], dtype=np.uint8)


@pytest.mark.parametrize(
    ("shares", "colour"),
    [
        ([(RED, 40), (BLACK, 30), (GREY, 30)], "red"),
        ([(RED, 20), (BLACK, 50), (GREY, 30)], "red"),
        ([(RED, 15), (BLACK, 45), (GREY, 40)], "grey"),  # no more red than tail lamps
        ([(RED, 40), (BLUE, 40), (GREY, 20)], "red and blue"),
        ([(RED, 40), (BLUE, 20), (GREY, 40)], "red"),
        ([(RED, 45), (PINK, 40), (GREY, 15)], "red"),  # one paint in shadow and in light
        ([(RED, 40), (WHITE, 40), (BLACK, 20)], "red and white"),
        ([(RED, 40), (GREY, 40), (BLACK, 20)], "red"),  # grey is road and shadow
        ([(WHITE, 50), (BLACK, 50)], "white"),  # windows and tyres make no "white and black"
        ([(GLASS, 60), (WHITE, 40)], "white"),
        ([(BLACK, 80), (BLUE, 15), (WHITE, 5)], "black"),
        ([(RED, 14), (BLUE, 14), (GREEN, 14), (BLACK, 58)], ""),
    ],
)
def test_the_colour_of_a_vehicle(shares: list[tuple[Rgb, int]], colour: str) -> None:
    assert (
        painted(name_pixels(shown := pixels(*shares), glass=True), np.ones(len(shown)), pixels((ROAD, 100))) == colour
    )


def test_at_night_nothing_is_black() -> None:
    named, night = name_pixels(pixels((BLACK, 100)), glass=True), pixels(((15, 15, 15), 100))
    assert painted(named, np.ones(100), pixels((ROAD, 100))) == "black"
    assert painted(named, np.ones(100), night) == ""


def test_a_bus_behind_bushes_is_not_green() -> None:
    image = np.full((300, 400, 3), 120, dtype=np.uint8)
    image[100:200] = GREEN
    bus = Asked("bus", BUS, (100.0, 80.0, 300.0, 200.0))
    assert colour_of(image, bus, []) == ""
    image[100:200, :95] = image[100:200, 305:] = ROAD
    assert colour_of(image, bus, []) == "green"


@pytest.mark.parametrize(
    ("shares", "colour"),
    [
        ([(BLUE, 30), (SKIN, 50), (BAG, 20)], "blue"),
        ([(WHITE, 40), (BAG, 60)], "white"),
        ([(BAG, 90), (BLACK, 10)], "brown"),
        ([(BLACK, 60), (SKIN, 40)], "black"),
        ([(RED, 40), (WHITE, 40), (SKIN, 20)], "red"),
    ],
)
def test_skin_and_bags_are_no_clothes(shares: list[tuple[Rgb, int]], colour: str) -> None:
    of_person = pixels(*shares)
    assert worn(name_pixels(of_person, glass=False), np.ones(len(of_person)), pixels((ROAD, 100))) == colour


@pytest.mark.parametrize(
    ("shares", "colour"),
    [
        ([(RED, 5), (GREY, 95)], "red"),
        ([(RED, 2), (GREY, 98)], ""),  # a lamp
        ([(RED, 5), (BLUE, 4), (GREY, 91)], ""),
        ([((70, 80, 105), 30), (GREY, 70)], ""),  # jeans
        ([(BLACK, 60), (WHITE, 40)], ""),
    ],
)
def test_a_bicycle_needs_one_vivid_colour(shares: list[tuple[Rgb, int]], colour: str) -> None:
    shown = pixels(*shares)
    assert strong_colour(name_pixels(shown, glass=False), np.ones(len(shown))) == colour


# --- regions ---


def test_a_region_leaves_out_what_is_in_front() -> None:
    image = np.zeros((100, 200, 3), dtype=np.uint8)
    region = region_of(image, (50.0, 20.0, 150.0, 80.0), (0.0, 0.0, 1.0, 1.0), nearer=[(100.0, 0.0, 200.0, 90.0)])
    assert region.seen == pytest.approx(0.5, abs=0.02)
    assert region.across.max() < 0.5
    assert in_front((0, 0, 10, 50), [(0, 0, 10, 50), (5, 0, 9, 40), (5, 0, 9, 60)]) == [(5, 0, 9, 60)]


@pytest.mark.parametrize("box", [(0.0, 0.0, 200.0, 100.0), (199.5, 99.5, 200.0, 100.0), (0.0, 40.0, 3.0, 41.0)])
def test_boxes_at_the_edges_of_the_image_have_a_description(box: tuple[float, float, float, float]) -> None:
    image = np.full((100, 200, 3), 120, dtype=np.uint8)
    for category in (CAR, BUS, ADULT, BICYCLE):
        assert isinstance(colour_of(image, Asked("a", category, box), [box]), str)
    assert surroundings_of(image, (0.0, 0.0, 200.0, 100.0), BESIDE).shape == (0, 3)


def test_what_is_around_is_not_the_objects_own() -> None:
    own = likely_own(pixels((RED, 50), (ROAD, 50)), pixels((ROAD, 90), (GREEN, 10)))
    assert own[:50].min() == 1.0 and own[50:].max() == 0.0
    assert likely_own(pixels((RED, 2)), np.zeros((0, 3), np.uint8)).tolist() == [1.0, 1.0]


def test_a_bus_is_not_named_after_the_car_in_front() -> None:
    image = np.full((300, 400, 3), 120, dtype=np.uint8)
    bus, car = (50.0, 50.0, 350.0, 200.0), (60.0, 100.0, 250.0, 250.0)
    image[50:200, 50:350], image[100:250, 60:250] = GREEN, RED
    asked = Asked("bus", BUS, bus)
    assert colour_of(image, asked, [bus, car]) == "green"
    assert colour_of(image, asked, [bus]) != "green"


# --- how often it is right ---


def asked_about(root: Path, version: str) -> Iterator[AskedImage]:
    """The objects of a world that the filters' first step keeps, image by image."""
    world = load_world(root, version)
    for place in range(len(world)):
        frame = world[place]
        for view in views_of(frame):
            kept = np.flatnonzero(geometric_reasons(view, Thresholds(ambiguity="objects")) == "")
            objects = tuple(
                Asked(
                    frame.annotations.tokens[view.indices[i]],
                    str(view.categories[i]),
                    tuple(view.boxes_xyxy_px[i].tolist()),
                )
                for i in kept
            )
            yield AskedImage(root / frame.cameras.file_names[view.camera], view.size_px, objects)


@pytest.mark.parametrize(("width", "height", "scenes"), [(224, 126, 8), (640, 360, 7)])
def test_most_descriptions_of_the_rendered_world_are_its_own(
    tmp_path: Path, width: int, height: int, scenes: int
) -> None:
    """Exact words; a bicycle in black or white has none. Few are wrong: what is unclear is dropped instead."""
    write_world(tmp_path / "world", WorldSpec(scenes, 2, width, height, seed=11))
    tables = tmp_path / "world" / "v1.0-synthetic"
    rows = json.loads((tables / "descriptions.json").read_text())
    truth = {row["sample_annotation_token"]: row["description"] for row in rows}
    counts: Counter[str] = Counter()
    for image in asked_about(tmp_path / "world", "v1.0-synthetic"):
        for item, said in zip(image.objects, describe_image(image), strict=True):
            right = said.text == truth[item.annotation_token]
            counts["right" if right else said.problem or "wrong"] += 1
    assert counts.total() >= 80
    assert counts["right"] >= 0.8 * counts.total(), counts
    assert counts["wrong"] <= 0.05 * counts.total(), counts


REAL = [
    ("CAM_BACK/*1533201470437525.jpg", CAR, (843, 519, 1367, 900), "white car"),  # in shade
    ("CAM_FRONT/*1532402927612460.jpg", CAR, (713, 462, 786, 533), "white car"),  # in shade
    ("CAM_BACK/*1533201470437525.jpg", CAR, (261, 500, 563, 647), "black car"),
    ("CAM_BACK_LEFT/*1533201470447423.jpg", CAR, (450, 432, 699, 554), "black car"),
    ("CAM_FRONT/*1532402927612460.jpg", CAR, (1003, 474, 1083, 539), "black car"),
    ("CAM_BACK_LEFT/*1533201470447423.jpg", CAR, (746, 438, 915, 535), "red car"),
    ("CAM_BACK/*1532402927637525.jpg", CAR, (318, 502, 512, 585), ""),  # a taxi in three colours
    ("CAM_FRONT_RIGHT/*1533201470420339.jpg", ADULT, (156, 467, 225, 617), "adult wearing a red shirt"),
    ("CAM_BACK/*1532402927637525.jpg", ADULT, (906, 489, 982, 596), "adult wearing a white shirt"),
    ("CAM_BACK_RIGHT/*1532402927627893.jpg", ADULT, (1297, 467, 1336, 521), "adult wearing a white shirt"),
]


@pytest.mark.parametrize(("name", "category", "box", "text"), REAL)
def test_real_objects_as_people_see_them(name: str, category: str, box: tuple[int, ...], text: str) -> None:
    (path,) = (need("nuscenes_real2") / "samples").glob(name)
    with Image.open(path) as opened:
        size = opened.size
    x1, y1, x2, y2 = map(float, box)
    (said,) = describe_image(AskedImage(path, size, (Asked("a", category, (x1, y1, x2, y2)),)))
    assert (said.text, bool(said.problem)) == (text, not text)
