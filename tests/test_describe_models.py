"""Describers that ask a model: the right crop for each object, answers in order, and what a model cannot tell."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import image_of, serve, text_of
from drawn_objects import BLUE, GREEN, RED, SIZE, WHITE, Rgb, picture
from PIL import Image

from data_gen.command_line import UsageError
from data_gen.describe import DescriberOptions, make_describer
from data_gen.describers import blip
from data_gen.describers.blip import in_batches
from data_gen.describers.crops import LARGEST_SIDE_PX, LEAST_SIDE_PX, crop_of
from data_gen.descriptions import AskedImage, Description

CAR, ADULT = "vehicle.car", "human.pedestrian.adult"
NAMES = {"red": RED, "blue": BLUE, "green": GREEN, "white": WHITE}


def nearest_name(rgb: Rgb) -> str:
    return min(NAMES, key=lambda name: sum(abs(a - b) for a, b in zip(NAMES[name], rgb, strict=True)))


def what_a_model_would_say(crop: Any, question: str) -> str:
    """The colour of the crop's middle, in the form that was asked for."""
    name = nearest_name(crop.getpixel((crop.width // 2, crop.height // 2)))
    return f"A {name} shirt." if "garment" in question else f"It is {name}."


@pytest.fixture
def pictures(tmp_path: Path) -> list[AskedImage]:
    """Twelve pictures with one to three objects each, no two pictures alike; the fourth cannot be read."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(12):
        patches = [
            (
                (CAR, ADULT)[int(rng.integers(2))],
                (130 * i + 10, 80, 130 * i + 80, 80 + int(rng.integers(60, 200))),
                colour,
            )
            for i, colour in enumerate(rng.permutation(list(NAMES.values()))[: 1 + number % 3].tolist())
        ]
        made.append(picture(tmp_path / f"{number}.png", *((kind, box, tuple(rgb)) for kind, box, rgb in patches)))
    made[3].path.write_bytes(b"no picture")
    return made


@pytest.fixture
def expected(pictures: list[AskedImage]) -> list[list[str]]:
    """What the objects of the pictures are, from the pixels in the middle of their boxes."""

    def words(image: AskedImage, opened: Image.Image) -> Iterator[str]:
        for item in image.objects:
            x1, y1, x2, y2 = item.box_xyxy_px
            name = nearest_name(opened.getpixel((int(x1 + x2) // 2, int(y1 + y2) // 2)))
            yield f"{name} car" if item.category == CAR else f"adult wearing a {name} shirt"

    unreadable = {3: ["unreadable_image"] * len(pictures[3].objects)}
    return [unreadable.get(n) or list(words(image, Image.open(image.path))) for n, image in enumerate(pictures)]


def texts(described: Iterator[list[Description]]) -> list[list[str]]:
    return [[item.text or item.problem for item in image] for image in described]


# --- crops ---


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((100.0, 100.0, 300.0, 200.0), (240, 120)),  # a tenth on each side
        ((0.0, 0.0, 200.0, 300.0), (220, 315)),  # the margin ends at the image
        ((10.2, 10.2, 20.2, 30.2), (112, LEAST_SIDE_PX)),  # 12 x 24 pixels
        ((399.5, 299.5, 400.0, 300.0), (LEAST_SIDE_PX, LEAST_SIDE_PX)),
    ],
)
def test_a_crop_is_the_box_with_a_margin(tmp_path: Path, box: tuple[float, ...], size: tuple[int, int]) -> None:
    crop = crop_of(Image.new("RGB", SIZE), box)  # type: ignore[arg-type]
    assert abs(crop.width - size[0]) <= 16 and abs(crop.height - size[1]) <= 16
    assert LEAST_SIDE_PX <= max(crop.size) <= LARGEST_SIDE_PX


# --- endpoint ---


def through_endpoint(tmp_path: Path, url: str, concurrency: int = 16) -> Callable[..., Iterator[list[Description]]]:
    return make_describer(DescriberOptions("endpoint", tmp_path, model="m", endpoints=(url,), concurrency=concurrency))


def test_every_object_is_asked_about_with_its_own_crop(
    tmp_path: Path, pictures: list[AskedImage], expected: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers come late and out of turn, some after an error; the descriptions still meet their objects."""
    lock, seen = threading.Lock(), Counter[bytes]()

    def answer(request: dict[str, Any]) -> str | tuple[int, str]:
        crop = image_of(request)
        if crop is None:
            return "hello"
        with lock:
            seen[crop.tobytes()] += 1
            place, again = list(seen).index(crop.tobytes()), seen[crop.tobytes()] > 1
        time.sleep(0.02 * (place % 4))
        if place in (3, 10) and not again:
            return (500, "oops")
        assert LEAST_SIDE_PX <= max(crop.size) <= LARGEST_SIDE_PX
        return what_a_model_would_say(crop, text_of(request))

    with serve(answer) as server:
        described = list(through_endpoint(tmp_path, server.url)(pictures))
    assert texts(iter(described)) == expected
    assert described[0][0].raw.startswith(("It is", "A "))
    assert server.most_in_flight <= 16
    report = capsys.readouterr().err
    assert "descriptions: 2 requests were sent again, 2 times in all" in report


def test_images_are_only_read_when_they_are_sent(
    tmp_path: Path, pictures: list[AskedImage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two in flight the describer holds two images, and takes no more than four from a stream of many."""
    taken: list[AskedImage] = []

    def stream() -> Iterator[AskedImage]:
        for _ in range(100):
            taken.append(pictures[0])
            yield pictures[0]

    with serve(lambda request: "white") as server:
        described = through_endpoint(tmp_path, server.url, concurrency=2)(stream())
        assert len(next(described)) == 1
        assert len(taken) == 4
        assert server.most_in_flight <= 2
        described.close()  # type: ignore[attr-defined]


def test_a_model_that_does_not_know_is_a_reason_not_an_error(tmp_path: Path, pictures: list[AskedImage]) -> None:
    said = iter(["hello", "Unclear.", ""])
    with serve(lambda request: next(said)) as server:
        described = through_endpoint(tmp_path, server.url, 1)(pictures[:1] * 2)
        assert list(described) == [
            [Description(problem="vague_description", raw="Unclear.")],
            [Description(problem="no_description")],
        ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs --endpoint http"),
        ({"endpoints": ("http://127.0.0.1:9/v1",)}, "and --describer-model NAME"),
        ({"endpoints": ("http://127.0.0.1:9/v1",), "model": "m"}, "no answer from http://127.0.0.1:9/v1"),
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_refused_at_once(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_describer(DescriberOptions("endpoint", tmp_path, **options))


# --- InstructBLIP ---


@pytest.fixture(scope="module", params=["vicuna", "t5"])
def tiny_blip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from tiny_blip import write_tiny_blip

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # in a model this small threads only wait for each other
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    return write_tiny_blip(tmp_path_factory.mktemp("blip"), request.param)


def through_blip(model: Path | str, batch_size: int) -> Callable[..., Iterator[list[Description]]]:
    return make_describer(DescriberOptions("blip", Path(), model=str(model), batch_size=batch_size))


def test_random_weights_go_all_the_way_and_a_batch_changes_no_answer(
    pictures: list[AskedImage], tiny_blip: Path
) -> None:
    """Questions of two lengths are padded in a batch; greedy answers are those of one object at a time."""
    one_by_one, together = (list(through_blip(tiny_blip, size)(pictures)) for size in (1, 8))
    assert one_by_one == together
    assert [len(image) for image in together] == [len(image.objects) for image in pictures]
    raws = {item.raw for number, image in enumerate(together) for item in image if number != 3}
    assert len(raws) > 5  # the answer depends on crop and question
    assert not any("middle ?" in raw for raw in raws)  # the question itself is not part of the answer
    assert {item.problem for item in together[3]} == {"unreadable_image"}
    assert all(bool(item.text) != bool(item.problem) for image in together for item in image)


@pytest.mark.parametrize("batch_size", [1, 4, 5, 100])
def test_a_text_arrives_at_its_object_across_batches_and_images(
    pictures: list[AskedImage], expected: list[list[str]], monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    sizes = []

    def generate(crops: list[Any], questions: list[str]) -> list[str]:
        sizes.append(len(crops))
        return [what_a_model_would_say(crop, question) for crop, question in zip(crops, questions, strict=True)]

    monkeypatch.setattr(blip, "_load_processor", lambda name: None)
    monkeypatch.setattr(blip, "_load_generate", lambda name, processor: generate)
    assert texts(through_blip("any", batch_size)(pictures)) == expected
    assert max(sizes) <= batch_size and sum(sizes) == sum(len(image.objects) for image in pictures) - 1


def test_batches_take_no_more_images_than_they_need(pictures: list[AskedImage]) -> None:
    taken: list[AskedImage] = []

    def stream() -> Iterator[AskedImage]:
        for image in pictures[:1] * 100:
            taken.append(image)
            yield image

    described = in_batches(stream(), 4, lambda batch: [Description("x")] * len(batch))
    assert next(described) == [Description("x")]
    assert len(taken) <= 5


def test_a_model_that_is_none_is_refused_before_any_image(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no InstructBLIP at .*give one with --describer-model"):
        through_blip(tmp_path / "nowhere", 1)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(UsageError, match=r"needs an InstructBLIP .* is a gpt2"):
        through_blip(tmp_path, 1)
