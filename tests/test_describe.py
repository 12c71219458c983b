"""Describers: what they see, how they say it, and what they cannot tell."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drawn_objects import BLUE, GREEN, RED, WHITE, picture

from data_gen.command_line import UsageError
from data_gen.describe import DescriberOptions, add_describer_options, describer_options, make_describer
from data_gen.descriptions import UNREADABLE, AskedImage, Description, distinct
from data_gen.nuscenes_tables import WorldError
from data_gen.records import RecordError


def texts(described: Iterator[list[Description]]) -> list[list[str]]:
    return [[item.text or item.problem for item in image] for image in described]


# --- descriptions of one image ---


def test_two_objects_of_an_image_never_share_a_description() -> None:
    shared, missing = Description(problem="duplicate_description"), Description(problem="no_description")
    given = [Description("white car"), Description("red bus"), Description("White car"), missing, missing]
    assert distinct(given) == [shared, Description("red bus"), shared, missing, missing]


def test_two_colours_in_another_order_are_the_same_description() -> None:
    given = [Description("white and black car"), Description("black and white car"), Description("white car")]
    assert [item.problem for item in distinct(given)] == ["duplicate_description", "duplicate_description", ""]


# --- options ---


def options_of(*words: str) -> DescriberOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    add_describer_options(parser.add_argument_group("descriptions"))
    return describer_options(parser.parse_args(words), Path("tables"))


def test_the_options_of_a_describer() -> None:
    assert options_of("--workers", "3") == DescriberOptions("colour", Path("tables"), workers=3)
    assert options_of().settings == {"describer": "colour"}
    endpoint = options_of("--describer", "endpoint", "--endpoint", "http://a/v1, http://b/v1", "--describer-model", "m")
    assert endpoint.endpoints == ("http://a/v1", "http://b/v1")
    assert endpoint.settings == {"describer": "endpoint", "describer_model": "m"}
    blip = options_of("--describer", "blip", "--describer-batch-size", "4")
    assert blip.batch_size == 4 and "instructblip" in blip.settings["describer_model"]


@pytest.mark.parametrize("words", [("--endpoint", "http://a"), ("--describer-model", "m"), ("--concurrency", "2")])
def test_an_option_that_the_describer_does_not_read_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=rf"{words[0]} is read by --describer .*endpoint, not by colour"):
        options_of(*words)


def test_describers_are_light_until_one_is_made() -> None:
    modules = ", ".join(f"data_gen.{name}" for name in ("describe", "describers.endpoint", "describers.blip", "chat"))
    code = f"import {modules}, sys; print([m for m in ('torch', 'transformers', 'httpx2') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --- truth ---


def test_truth_reads_the_worlds_own_descriptions(tmp_path: Path) -> None:
    options = DescriberOptions("truth", tmp_path)
    with pytest.raises(WorldError, match=r"truth needs .*descriptions\.json"):
        make_describer(options)
    rows = [{"sample_annotation_token": "a-0", "description": "white car", "colour": "white"}]
    (tmp_path / "descriptions.json").write_text(json.dumps(rows))
    image = picture(tmp_path / "a.jpg", ("vehicle.car", (0, 0, 9, 9), RED), ("vehicle.truck", (20, 0, 29, 9), RED))
    assert list(make_describer(options)([image])) == [[Description("white car"), Description(problem="no_description")]]


# --- several processes ---


@pytest.mark.parametrize("workers", [1, 2])
def test_the_colour_describer_names_what_is_in_the_pictures_in_order(tmp_path: Path, workers: int) -> None:
    first = picture(
        tmp_path / "a.jpg",
        ("vehicle.car", (10, 100, 90, 180), BLUE),
        ("human.pedestrian.adult", (200, 50, 240, 170), RED),
    )
    colours = {"green": GREEN, "red": RED, "white": WHITE}
    buses = [
        picture(tmp_path / f"{name}.jpg", ("vehicle.bus.rigid", (50, 50, 250, 200), rgb))
        for name, rgb in colours.items()
    ]
    described = make_describer(DescriberOptions("colour", tmp_path, workers))([first, *buses])
    assert texts(described) == [["blue car", "adult wearing a red shirt"], *([f"{name} bus"] for name in colours)]


# --- images that cannot be used ---


@pytest.fixture(params=["colour", "truth"])
def describer(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[list[AskedImage]], list[list[str]]]:
    (tmp_path / "descriptions.json").write_text(
        json.dumps([{"sample_annotation_token": "b-0", "description": "red car"}])
    )
    describe = make_describer(DescriberOptions(request.param, tmp_path))
    return lambda images: texts(describe(images))


def test_objects_of_an_image_that_cannot_be_read_are_counted(
    tmp_path: Path, describer: Callable[[list[AskedImage]], list[list[str]]]
) -> None:
    patch = ("vehicle.car", (10, 100, 90, 180), RED)
    broken, whole = picture(tmp_path / "a.jpg", patch, patch), picture(tmp_path / "b.jpg", patch)
    for content in (b"", b"no picture", broken.path.read_bytes()[:2000]):
        broken.path.write_bytes(content)
        assert describer([broken, whole]) == [[UNREADABLE.problem] * 2, ["red car"]]


def test_an_image_of_another_size_is_an_error(
    tmp_path: Path, describer: Callable[[list[AskedImage]], list[list[str]]]
) -> None:
    image = picture(tmp_path / "a.jpg", ("vehicle.car", (10, 100, 90, 180), RED))
    with pytest.raises(RecordError, match=r"a\.jpg is 400x300 pixels, its record says 800x450"):
        describer([AskedImage(image.path, (800, 450), image.objects)])
