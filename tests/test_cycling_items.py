"""CyclingVQA items: reading them, and making them from annotated photographs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_gen.build_cyclingvqa import main
from data_gen.cycling.annotations import Lane, Photo, Thing, read_annotations
from data_gen.cycling.catalogue import SIGN_LABELS, without
from data_gen.cycling.drafts import Dealer, Draft, Drop
from data_gen.cycling.items import make_drafts
from data_gen.cycling.marks import Region, Shaded, draw_items
from data_gen.cycling.prompts import STYLES, item_prompt
from data_gen.cycling.records import TASKS, CyclingItem, item_from_row, item_to_row, read_items
from data_gen.cycling.sample import write_sample
from data_gen.records import RecordError
from rewards.boxes import iou
from rewards.normal_form import normalise

SIZE = (640, 360)
ROW = {
    "id": "LR-1",
    "task": "LR",
    "images": ["a.png"],
    "question": "Which lane?",
    "choices": ["Lane 1", "Lane 0"],
    "answer": "B",
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cycling") / "sample"
    main(["--sample", "--out", str(out)])
    return out


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


# Records


def test_an_item_keeps_unknown_fields_and_comes_back_the_same() -> None:
    item = item_from_row({**ROW, "weather": "rain"})
    assert item.extra == {"weather": "rain"} and item.answer_text == "Lane 0" and item.letters == "AB"
    assert item_from_row(item_to_row(item)) == item


@pytest.mark.parametrize(
    ("change", "letter"),
    [({"answer": "Lane 0"}, "B"), ({"answer": "lane 0."}, "B"), ({"answer": "A"}, "A"), ({"images": "a.png"}, "B")],
)
def test_an_answer_is_a_letter_or_a_text_and_one_image_a_name(change: dict[str, Any], letter: str) -> None:
    item = item_from_row({**ROW, **change})
    assert (item.answer, item.images) == (letter, ("a.png",))


BAD_ROWS = [
    ({"task": "LRX"}, "unknown task 'LRX'; known: TSG, SU"),
    ({"images": []}, "one or two images"),
    ({"images": ["a", "b", "c"]}, "one or two images"),
    ({"choices": ["Lane 1"], "answer": "A"}, "2 to 8 choices, got 1"),
    ({"choices": [str(n) for n in range(10, 19)], "answer": "A"}, "2 to 8 choices, got 9"),
    ({"choices": ["Lane 1", "lane 1."], "answer": "A"}, "say the same"),
    ({"answer": "C"}, "neither a letter nor a text"),
    ({"answer": "Lane 2"}, "neither a letter nor a text"),
    ({"answer": 1}, "`answer` is a text"),
    ({"choices": ["B", "A"], "answer": "A"}, "means two of"),
    ({"question": " "}, "is empty"),
    ({"choices": ["<answer>", "Lane 0"]}, "tags or special tokens"),
]


@pytest.mark.parametrize(("change", "message"), BAD_ROWS)
def test_a_bad_row_is_told_with_file_and_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text("\n" + json.dumps({**ROW, **change}) + "\n")
    with pytest.raises(RecordError, match=r"items\.jsonl, line 2: ") as error:
        read_items(path)
    assert message in str(error.value)


def test_a_folder_holds_one_file_of_items_or_several(tmp_path: Path) -> None:
    anonymous = {name: value for name, value in ROW.items() if name != "id"}
    (tmp_path / "b.jsonl").write_text(json.dumps({**anonymous, "question": "second?"}) + "\n")
    (tmp_path / "a.jsonl").write_text("\ufeff" + json.dumps(anonymous) + "\n")
    assert [(item.id, item.question) for item in read_items(tmp_path)] == [("LR-0", "Which lane?"), ("LR-1", "second?")]
    (tmp_path / "items.jsonl").write_text(json.dumps(ROW) + "\n")
    assert [item.id for item in read_items(tmp_path)] == ["LR-1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(ROW) + "\n" + json.dumps(ROW) + "\n", "repeats the id"),
        (json.dumps({**ROW, "options": ROW["choices"], "choices": None}).replace(', "choices": null', ""), "benchmark"),
        ('{"task": "LR"}\n', "the field 'answer' is missing"),
        ("\n", "holds no item"),
        ("[1]\n", "an object was expected"),
    ],
)
def test_a_bad_file_is_told(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(text)
    with pytest.raises(RecordError, match=message):
        read_items(tmp_path)


def test_every_style_shows_question_and_lettered_choices() -> None:
    item = item_from_row(ROW)
    texts = {style: item_prompt(item, style) for style in STYLES}
    assert len(set(texts.values())) == 3
    assert all("Which lane?\nA. Lane 1\nB. Lane 0\n" in text for text in texts.values())
    assert "Image 2" not in texts["cot"]
    both = CyclingItem("TO-1", "TO", ("a", "b"), "Which first?", ("Image 1", "Image 2"), "A")
    assert item_prompt(both, "cot").startswith("Two images")


# Items from photographs


def test_the_sample_has_every_task_and_its_letters_are_even(sample: Path) -> None:
    manifest, items = manifest_of(sample), read_items(sample)
    assert manifest["items"] == {task: sum(item.task == task for item in items) for task in TASKS} | {
        "total": len(items)
    }
    assert all(manifest["items"][task] >= 4 for task in TASKS) and manifest["source"] == "synthetic"
    for task in TASKS:
        for count in {len(item.choices) for item in items if item.task == task}:
            letters = Counter(item.answer for item in items if item.task == task and len(item.choices) == count)
            times = [letters[letter] for letter in "ABCDEFGH"[:count]]
            assert max(times) - min(times) <= 1, (task, count, letters)


def test_two_items_in_one_show_two_images_and_the_rest_one(sample: Path) -> None:
    for item in read_items(sample):
        assert len(item.images) == (2 if item.task == "TO" else 1)
        assert all((sample / name).is_file() for name in item.images)
        if item.task == "TO":
            earlier = item.images["AB".index(item.answer)]
            assert earlier.endswith("-0.png") and {name[-6:] for name in item.images} == {"-0.png", "-1.png"}


def test_the_answers_are_those_of_the_annotations(sample: Path) -> None:
    photos = {photo.image: photo for photo in read_annotations(sample / "sample" / "annotations.jsonl")}
    for item in read_items(sample):
        photo = photos[item.photos[0]]
        labels = [sign.label for sign in photo.signs]
        if item.task == "TSR":
            assert [choice for choice in item.choices if choice in labels] == [item.answer_text]
        if item.task == "TSR+S":
            assert item.answer_text in labels
        if item.task == "SAA":
            (allowed,) = {lane.cycling_allowed for lane in photo.lanes} - {None}
            assert item.answer_text.startswith("Yes" if allowed else "No")


def photo(**changes: Any) -> Photo:
    signs = (Thing((300, 60, 340, 100), "no cycling", 2), Thing((500, 60, 530, 90), "give way", 1))
    lanes = (
        Lane(((100, 350), (250, 350), (320, 180)), "bicycle", True),
        Lane(((300, 350), (600, 350), (330, 180)), "cars", False),
    )
    return Photo(**{"image": "a.png", "signs": signs, "others": (Thing((20, 200, 90, 260), "car", 2),), "lanes": lanes,
                    **changes})  # fmt: skip


def made(*photos: Photo, seed: int = 0, choices: int = 7, labels: tuple[str, ...] = SIGN_LABELS) -> list[Draft | Drop]:
    return list(make_drafts(photos, {item.image: SIZE for item in photos}, Dealer(seed, choices, labels)))


def drafts(task: str, *photos: Photo, **settings: Any) -> list[Draft]:
    return [item for item in made(*photos, **settings) if isinstance(item, Draft) and item.task == task]


@pytest.mark.parametrize("choices", range(2, 9))
def test_wrong_choices_never_say_what_the_right_one_says(choices: int) -> None:
    labels = (*SIGN_LABELS, "No  cycling.", "The give way")
    for seed in range(20):
        for draft in made(photo(), seed=seed, choices=choices, labels=labels):
            if isinstance(draft, Draft):
                assert len({normalise(choice) for choice in draft.choices}) == len(draft.choices) <= max(choices, 3)
                if draft.task == "TSR":
                    here = {"no cycling", "give way"}
                    assert len(here & {normalise(choice) for choice in draft.choices}) == 1
                if draft.task in ("TSR", "TSR+S"):
                    assert len(draft.choices) == choices


def test_the_regions_of_a_grounding_item_hold_one_sign_and_the_rest_are_clear_of_signs() -> None:
    for seed in range(30):
        (draft,) = drafts("TSG", photo(), seed=seed)
        boxes = [region.box_xyxy_px for region in draft.regions]
        assert [region.text for region in draft.regions] == list(draft.choices)
        holds = [any(iou(box, sign.box) > 0 for sign in photo().signs) for box in boxes]
        assert holds == [place == draft.place for place in range(len(boxes))]
        assert all(0 <= x1 < x2 <= SIZE[0] and 0 <= y1 < y2 <= SIZE[1] for x1, y1, x2, y2 in boxes)


def test_a_spatial_item_is_true_of_its_boxes() -> None:
    for seed in range(30):
        for draft in drafts("SU", photo(), seed=seed):
            box = {region.text: region.box_xyxy_px for region in draft.regions}
            order = {thing.box: thing.depth_order for thing in photo().things}
            first, second = (part[:3] for part in draft.choices[draft.place].split("in ")[1::1] if part.startswith("<"))
            if "left" in draft.choices[0]:
                assert box[first][2] <= box[second][0]
            else:
                assert order[box[first]] < order[box[second]]


def test_the_described_sign_is_the_marked_one_and_a_label_of_two_signs_is_not_asked_about() -> None:
    for draft in drafts("RED", photo()):
        label = draft.question.split('"')[1]
        box = draft.regions[draft.place].box_xyxy_px
        assert [sign.box for sign in photo().signs if sign.label == label] == [box]
    twice = photo(signs=(*photo().signs, Thing((580, 60, 600, 80), "Give way.", None)))
    assert [draft.question.split('"')[1] for draft in drafts("RED", twice)] == ["no cycling"]
    reasons = [drop.reason for drop in made(twice) if isinstance(drop, Drop)]
    assert reasons.count("label_of_several_signs") == 2


def test_the_cyclists_lane_carries_the_number_of_the_right_choice() -> None:
    seen = set()
    for seed in range(20):
        (draft,) = drafts("LR", photo(), seed=seed)
        shaded = {lane.text: lane.polygon_px for lane in draft.lanes}
        assert shaded[draft.choices[draft.place]] == photo().lanes[0].polygon
        seen.add(draft.choices[draft.place])
    assert seen == {"Lane 0", "Lane 1"}


DROPS = [
    ({"signs": ()}, {"TSG": "no_sign", "RED": "fewer_than_two_signs", "TSR+S": "no_sign", "TSR": "no_sign"}),
    ({"lanes": ()}, {"LR": "fewer_than_two_lanes", "SAA": "no_lane_with_a_rule"}),
    ({"lanes": (Lane(((0, 0), (9, 0), (9, 9))), Lane(((0, 0), (9, 0), (9, 9))))}, {"LR": "not_one_cycle_lane"}),
    ({"ride": None}, {"TO": "no_frame_order"}),
    ({"ride": "r", "frame": 1}, {"TO": "only_photo_of_its_ride"}),
    ({"signs": (), "others": ()}, {"SU": "no_two_things_apart"}),
    ({"signs": (Thing((0, 0, 640, 360), "no cycling"),), "others": ()}, {"TSG": "no_room_for_another_region"}),
]


@pytest.mark.parametrize(("change", "expected"), DROPS)
def test_what_gives_no_item_is_dropped_with_a_reason(change: dict[str, Any], expected: dict[str, str]) -> None:
    found = {drop.task: drop.reason for drop in made(photo(**change)) if isinstance(drop, Drop)}
    assert {task: found.get(task) for task in expected} == expected


def test_a_catalogue_without_another_label_gives_no_recognition_item() -> None:
    signs = photo().signs[:1]
    found = {
        drop.task: drop.reason for drop in made(photo(signs=signs), labels=("no cycling",)) if isinstance(drop, Drop)
    }
    assert found["TSR"] == found["TSR+S"] == "no_other_label_in_the_catalogue"
    assert without(["a b", "A  b.", "c"], ["C"]) == ["a b"]


# Marks


def test_marks_are_drawn_where_they_belong_and_nowhere_else() -> None:
    gray = Image.new("RGB", SIZE, (90, 90, 90))
    box, lane = (300, 150, 340, 190), ((100, 350), (250, 350), (250, 250), (100, 250))
    drawn = np.asarray(draw_items(gray, [Region(box, "<1>", "#ff0000")], [Shaded(lane, "", "#0000ff")])).astype(int)
    red, blue = (drawn == (255, 0, 0)).all(-1), (drawn[..., 2] > 130) & (drawn[..., 0] < 60)
    assert red[149, 300:340].all() and red[150:190, 341].all(), "the outline stands just outside the box"
    assert (drawn[150:190, 300:340] == 90).all(), "and hides nothing inside"
    assert blue[255:345, 105:245].all() and not blue[:245].any() and not blue[:, 260:].any()
    assert (drawn[150 - 30 : 147, 300:340] == 255).any(), "the number is written above"
    assert (np.asarray(gray) == 90).all(), "on a copy"


def test_a_mark_at_the_upper_edge_has_its_number_below() -> None:
    drawn = np.asarray(draw_items(Image.new("RGB", SIZE), [Region((0, 0, 40, 30), "<8>", "#ff0000")], []))
    assert (drawn[31:60, :50] == 255).all(-1).any()


def test_the_sample_s_marked_images_differ_from_the_photograph_at_the_marks_only(sample: Path) -> None:
    item = next(item for item in read_items(sample) if item.task == "SAA")
    before = np.asarray(Image.open(sample / "sample" / "photos" / item.photos[0]).convert("RGB")).astype(int)
    after = np.asarray(Image.open(sample / item.images[0])).astype(int)
    changed = np.abs(after - before).max(-1) > 30
    assert 0.01 < changed.mean() < 0.4 and not changed[: after.shape[0] // 4].any()


# The command


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(sample: Path, tmp_path: Path) -> None:
    main(["--sample", "--out", str(tmp_path / "again")])
    assert files_of(tmp_path / "again") == files_of(sample)
    main(["--sample", "--seed", "1", "--out", str(tmp_path / "other")])
    assert files_of(tmp_path / "other")["items.jsonl"] != files_of(sample)["items.jsonl"]


def test_annotations_on_disk_go_through_the_same_code(sample: Path, tmp_path: Path) -> None:
    photos = sample / "sample" / "photos"
    given = ["--annotations", str(sample / "sample" / "annotations.jsonl"), "--images", str(photos)]
    main([*given, "--out", str(tmp_path / "out")])
    ours = [item_to_row(item) | {"source": "synthetic"} for item in read_items(tmp_path / "out")]
    assert ours == [item_to_row(item) for item in read_items(sample)]


def test_an_interrupted_build_goes_on_and_a_finished_one_is_kept(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from data_gen import build_cyclingvqa

    out = tmp_path / "out"
    draw, drawn = build_cyclingvqa.picture_of, []

    def failing(*arguments: Any) -> bytes:
        if len(drawn) == 5:
            raise OSError("the disk is full")
        drawn.append(arguments)
        return draw(*arguments)

    monkeypatch.setattr(build_cyclingvqa, "picture_of", failing)
    with pytest.raises(SystemExit) as stop:
        main(["--sample", "--out", str(out)])
    assert stop.value.code == 2 and not (out / "manifest.json").exists()
    monkeypatch.setattr(build_cyclingvqa, "picture_of", draw)
    main(["--sample", "--out", str(out), "--resume"])
    assert files_of(out) == files_of(sample)
    main(["--sample", "--out", str(out), "--resume"])
    assert "holds this build already" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--sample", "--seed", "3", "--out", str(out), "--resume"])
    assert "other settings (seed 0 -> 3)" in capsys.readouterr().err


def test_a_yaml_file_sets_options(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"sample: true\nchoices: 4\nout: {tmp_path / 'out'}\n")
    main(["--config", str(tmp_path / "c.yaml")])
    assert {len(item.choices) for item in read_items(tmp_path / "out") if item.task == "TSR"} == {4}


BAD = {
    "nothing": ([], "--annotations FILE is needed; make a small sample with"),
    "both": (["--sample", "--annotations", "a"], "leave out --annotations"),
    "choices": (["--sample", "--choices", "9"], "--choices is 2 to 8, got 9"),
    "no file": (["--annotations", "{tmp}/none.jsonl"], "no file at"),
    "no image": (["--annotations", "{tmp}/missing.jsonl"], "image gone.png is missing under"),
    "no photo": (["--annotations", "{tmp}/empty.jsonl"], "holds no photograph"),
    "bad box": (["--annotations", "{tmp}/box.jsonl"], "box.jsonl, line 1: the box [5.0, 0.0, 1.0, 9.0] is no"),
    "outside": (["--annotations", "{tmp}/outside.jsonl"], "(999, 9) lies outside the 640x360 image"),
    "escaping": (["--annotations", "{tmp}/escaping.jsonl"], "a name inside the image folder"),
    "no item": (["--annotations", "{tmp}/bare.jsonl"], "gives an item"),
    "catalogue": (["--annotations", "{tmp}/bare.jsonl", "--catalogue", "{tmp}/one.txt"], "at least two labels"),
    "full": (["--sample", "--out", "{tmp}"], "is not empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_exits_with_2_and_the_remedy(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", SIZE).save(tmp_path / "a.png")
    rows = {
        "missing": {"image": "gone.png"},
        "box": {"image": "a.png", "signs": [{"box": [5, 0, 1, 9], "label": "x"}]},
        "outside": {"image": "a.png", "signs": [{"box": [5, 0, 999, 9], "label": "x"}]},
        "escaping": {"image": "../a.png"},
        "bare": {"image": "a.png"},
    }
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "one.txt").write_text("stop\nStop.\n")
    options, message = BAD[case]
    with pytest.raises(SystemExit) as stop:
        main([option.format(tmp=tmp_path) for option in options])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_every_sign_of_the_sample_is_annotated(tmp_path: Path) -> None:
    annotations, photos = write_sample(tmp_path, seed=5)
    for item in read_annotations(annotations):
        assert item.signs and item.lanes and (photos / item.image).is_file()
        boxes = [thing.box for thing in item.things]
        assert all(iou(a, b) == 0 for place, a in enumerate(boxes) for b in boxes[:place])
