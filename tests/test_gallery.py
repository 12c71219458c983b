"""The page of a question file: what it holds, that nothing leaves it or gets into it, and how it looks in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_questions import SIZE, make_questions, make_scenes, write_small_set

from data_gen.gallery import EMPTY_IMAGES, main
from data_gen.gallery_cards import choose_units, unit_card
from data_gen.pages import Picture
from data_gen.records import question_to_row, read_questions, write_rows
from data_gen.scene_records import DroppedObject, DroppedObjects, drops_to_row, scene_to_row
from rewards.grading import TASKS

NAMED_RGB, DROPPED_RGB = (0x2B, 0xD4, 0x6B), (0xFF, 0x4D, 0x6A)
VOID = {"meta", "input", "br", "img", "link"}
HIDDEN = DroppedObject("vehicle.truck", (10.0, 5.0, 70.0, 60.0), (-3.0, 1.0, 20.0), "too_small", "t1", 3)
CONE = DroppedObject("movable_object.barrier", (80.0, 40.0, 120.0, 70.0), (2.0, 1.0, 9.0), "other_category")
NO_PICTURE = Picture("image0", *SIZE, None, "")


@dataclass
class Page(HTMLParser):
    """The start tags of a page with their attributes; raises AssertionError when tags do not close in order."""

    text: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        assert self.open_tags == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def values(self, name: str, tag: str = "") -> list[str]:
        """Values of an attribute, of all tags or of one kind."""
        return [attrs[name] or "" for kind, attrs in self.tags if name in attrs and tag in ("", kind)]

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.tags if name in (attrs.get("class") or "").split()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small set with scenes and dropped objects beside it; the last two images have no questions."""
    path = write_small_set(tmp_path, images=14)
    scenes = make_scenes(14)
    gone = {scene.file_name for scene in scenes[12:]}
    write_rows(path, [question_to_row(item) for item in make_questions(14) if item.image not in gone])
    write_rows(tmp_path / "scenes.jsonl", map(scene_to_row, scenes[:12]))
    drops = [DroppedObjects(scene.file_name, (HIDDEN, CONE), *SIZE, camera="CAM_BACK") for scene in scenes[:13]]
    only_cone = DroppedObjects(scenes[13].file_name, (CONE,), *SIZE)
    write_rows(tmp_path / "dropped.jsonl", map(drops_to_row, [*drops, only_cone]))
    return tmp_path


def page_of(folder: Path, *options: str) -> Page:
    out = folder / "page.html"
    assert main([str(folder / "questions.jsonl"), "--out", str(out), *options]) == 0
    return Page(out.read_text(encoding="utf-8"))


def test_it_is_one_file_that_needs_nothing_else(folder: Path) -> None:
    page = page_of(folder)
    assert not re.search(r"https?://|@import|url\(", page.text)
    linked = [*page.values("src"), *page.values("href")]
    assert linked and all(link.startswith(("data:image/jpeg;base64,", "#image")) for link in linked)
    embedded = page.values("href", "image")
    assert len(embedded) == len(set(embedded)) == 13
    assert set(page.values("href", "use")) == {f"#image{place}" for place in range(13)}


def test_every_task_has_its_cards_and_a_button(folder: Path) -> None:
    page = page_of(folder, "--per-task", "4")
    cards = Counter(card["data-task"] for card in page.of_class("card"))
    assert cards == dict.fromkeys(TASKS, 4) | {"none": 1}
    assert page.values("data-show") == ["", *TASKS, "none"]
    assert set(page.values("data-toggle")) == {"named", "kept", "dropped", "heading", "label"}


def test_the_answers_are_marked_and_no_other_option(folder: Path) -> None:
    page = page_of(folder)
    questions = read_questions(folder / "questions.jsonl")
    assert len(page.of_class("answer")) == len(questions)
    marked = re.findall(r'<li class="answer">(.*?)</li>', page.text)
    assert sorted(marked) == sorted(question.answer_text for question in questions)


def test_dropped_objects_and_images_with_nothing_kept_are_shown_with_reasons(folder: Path) -> None:
    page = page_of(folder)
    assert {mark["data-reason"] for mark in page.of_class("dropped") if "data-reason" in mark} == {
        "too_small", "other_category",
    }  # fmt: skip
    assert "dropped, too small: vehicle.truck, 20.0 m ahead, 3 lidar points" in page.text
    nothing = [card for card in page.of_class("card") if card["data-task"] == "none"]
    assert len(nothing) == 1  # not the image that shows nothing but a barrier
    assert "2 dropped: other category 1, too small 1" in page.text


def test_only_a_few_images_with_nothing_kept_are_shown(folder: Path) -> None:
    more = [DroppedObjects(f"more{place}.png", (HIDDEN,), *SIZE) for place in range(20)]
    with (folder / "dropped.jsonl").open("a") as file:
        file.writelines(json.dumps(drops_to_row(item)) + "\n" for item in more)
    page = page_of(folder)
    assert len([card for card in page.of_class("card") if card["data-task"] == "none"]) == EMPTY_IMAGES
    assert page.text.count("image not found") > 0


def test_totals_come_from_the_manifest_and_synthetic_worlds_say_so(folder: Path) -> None:
    stages = [{"stage": "in the image", "left": 9000}, {"stage": "too_small", "dropped": 1234, "left": 7766}]
    manifest = json.loads((folder / "manifest.json").read_text()) | {"stages": stages}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = page_of(folder).text
    assert "1,234" in text and "7,766" in text and "synthetic world" in text


def test_without_files_beside_it_shows_the_questions_alone(tmp_path: Path) -> None:
    path = write_small_set(tmp_path, images=6)
    (tmp_path / "manifest.json").unlink()
    page = page_of(path.parent, "--images", str(tmp_path))
    assert len(page.of_class("card")) == 18 and not [m for m in page.of_class("dropped") if "data-reason" in m]
    assert len(page.of_class("heading")) == 2 * 9 + 9


def test_text_from_files_never_becomes_markup(folder: Path) -> None:
    bad = '<script>alert("x")</script>\'"'
    questions = [
        replace(item, camera=bad, scene=bad, question=bad + item.question, objects=tuple(
            replace(thing, name=bad + thing.name) for thing in item.objects
        ))
        for item in read_questions(folder / "questions.jsonl")
    ]  # fmt: skip
    write_rows(folder / "questions.jsonl", map(question_to_row, questions))
    dropped = DroppedObjects(questions[0].image, (replace(HIDDEN, reason=bad, category=bad),), *SIZE, camera=bad)
    write_rows(folder / "dropped.jsonl", [drops_to_row(dropped)])
    page = page_of(folder)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert "alert(" in page.text and '<script>alert("' not in page.text
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("alert") or name == "'"]


def test_units_are_drawn_by_the_seed_on_images_that_tasks_share() -> None:
    questions = make_questions(60)
    chosen = choose_units(questions, 5, seed=1)
    assert [unit[0].id for unit in chosen] == [unit[0].id for unit in choose_units(questions, 5, seed=1)]
    assert [unit[0].id for unit in chosen] != [unit[0].id for unit in choose_units(questions, 5, seed=2)]
    images = {task: {unit[0].image for unit in chosen if unit[0].task == task} for task in TASKS}
    assert all(len(names) == 5 for names in images.values())
    assert images["yaw"] == images["pixel"] == images["depth"]
    assert images["distance"] == images["left_right"] == images["front_behind"]


def test_marks_are_the_records_own_boxes_and_headings() -> None:
    questions = make_questions(12)
    scene = next(scene for scene in make_scenes(12) if len(scene.objects) == 2)
    yaw_scene = replace(scene, objects=scene.objects[:1])
    matrix = [[200.0, 0, 80], [0, 200.0, 48], [0, 0, 1]]
    pair = [item for item in questions if item.image == scene.file_name and item.task == "distance"]
    drops = DroppedObjects(scene.file_name, (HIDDEN,), *SIZE)
    card = unit_card(pair, NO_PICTURE, replace(scene, extra={"intrinsics": matrix}), drops)
    assert card.marks[0].kind == "dropped"
    boxes = {mark.kind: mark.box_xyxy_px for mark in card.marks}
    assert boxes == {
        "dropped": HIDDEN.box_xyxy_px, "first": scene.objects[0].box_xyxy_px, "second": scene.objects[1].box_xyxy_px,
    }  # fmt: skip
    first = next(mark for mark in card.marks if mark.kind == "first")
    assert first.arrow and first.arrow.start == scene.objects[0].pixel_xy
    seen_from_above = unit_card(pair, NO_PICTURE, yaw_scene, None)
    flat = next(mark for mark in seen_from_above.marks if mark.kind == "first").arrow
    assert flat and flat.end != first.arrow.end and f"faces {scene.objects[0].heading}" in card.facts[0].text


@pytest.mark.parametrize(
    ("options", "spoil", "message"),
    [
        (["--out", "page.txt"], None, "ends in .html"),
        (["--images", "nowhere"], None, "none of the 13 images is under nowhere"),
        ([], "manifest.json", "no manifest"),
        (["--images", "."], "manifest.json", "no manifest"),
        ([], "dropped.jsonl", "dropped.jsonl, line 1"),
        ([], "scenes.jsonl", "scenes.jsonl, line 1"),
        ([], "000.png", "cannot be read"),
    ],
)
def test_bad_input_ends_with_2_and_the_remedy(
    folder: Path,
    options: list[str],
    spoil: str | None,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    if spoil:
        (folder / spoil).write_text("{broken")
    assert main(["questions.jsonl", "--out", "page.html", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "page.html").exists()


def test_a_missing_image_is_said_and_the_others_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "000.png").unlink()
    assert page_of(folder).text.count("image not found: 000.png") == 3
    assert "1 of these images" in capsys.readouterr().out


def browser(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run headless chromium, or skip where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here")
    fixed = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
        "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}", "--hide-scrollbars", "--window-size=1300,2600",
    ]  # fmt: skip
    return subprocess.run([program, *fixed, *options], capture_output=True, text=True, timeout=120, check=True)


def changed(page: Path, script: str) -> str:
    """The address of a copy of a page that runs a script once it is loaded."""
    copy = page.with_name("changed.html")
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    return copy.as_uri()


def near(pixels: np.ndarray, rgb: tuple[int, int, int]) -> int:
    return int((np.abs(pixels - np.array(rgb)).max(axis=2) < 12).sum())


def screenshot(tmp_path: Path, address: str) -> np.ndarray:
    path = tmp_path / "page.png"
    browser(tmp_path, f"--screenshot={path}", address)
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_the_browser_draws_kept_and_dropped_boxes_and_hides_them_on_request(folder: Path, tmp_path: Path) -> None:
    page_of(folder)
    address = (folder / "page.html").as_uri()
    whole = screenshot(tmp_path, address)
    assert whole.shape == (2600, 1300, 3) and len(np.unique(whole.reshape(-1, 3), axis=0)) > 500
    named, dropped = near(whole, NAMED_RGB), near(whole, DROPPED_RGB)
    assert named > 1000 and dropped > 1000
    click = "document.querySelector('[data-toggle={}]').click()"
    without_dropped = screenshot(tmp_path, changed(folder / "page.html", click.format("dropped")))
    assert near(without_dropped, DROPPED_RGB) < dropped / 3 and near(without_dropped, NAMED_RGB) > 0.9 * named
    without_named = screenshot(tmp_path, changed(folder / "page.html", click.format("named")))
    assert near(without_named, NAMED_RGB) < named / 3 and near(without_named, DROPPED_RGB) > 0.9 * dropped


def test_the_filters_leave_only_what_is_asked_for(folder: Path, tmp_path: Path) -> None:
    page_of(folder)
    address = changed(folder / "page.html", "document.querySelector('[data-show=depth]').click()")
    cards = Page(browser(tmp_path, "--dump-dom", address).stdout).of_class("card")
    shown = [card for card in cards if "hidden" not in card]
    assert {card["data-task"] for card in shown} == {"depth"} and len(shown) == 6
    script = "document.querySelector('input[data-reason=too_small]').click()"
    marks = Page(browser(tmp_path, "--dump-dom", changed(folder / "page.html", script)).stdout).of_class("dropped")
    styles = {(mark["data-reason"], mark.get("style")) for mark in marks if "data-reason" in mark}
    assert styles == {("too_small", "display: none;"), ("other_category", None)}
