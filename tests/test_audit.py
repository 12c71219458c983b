"""What answers give away without the image: each strategy against numbers counted by hand, and the two depth ranges."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sample_questions import CENTRE, CLOSER, FACING, projected
from shared import need
from small_questions import write_small_set

from data_gen.audit import Audit, audit_of, main, report
from data_gen.balance import balance_of
from data_gen.blind import BlindScore, Draws, blind_scores, class_of, folds_of, learnt_scores
from data_gen.floors import Unit, units_of
from data_gen.questions import own_units, published_units, questions_of
from data_gen.records import Question, question_to_row, read_questions, write_rows
from data_gen.scene_records import SceneImage, read_scenes

IMAGES = Draws("images", "images")
ADULT, CAR = (
    replace(item, name=name, category=category)
    for item, name, category in zip(
        CLOSER.objects, ("adult in red", "white car"), ("human.adult", "vehicle.car"), strict=True
    )
)
RANGES = ("Between 1 meter and 4 meters", "Between 5 meters and 12 meters", "Between 13 meters and 17 meters")


def closer(image: int, answers: tuple[str, str], objects: tuple = (ADULT, CAR), which: int = 0) -> list[Question]:
    """A distance pair about two objects of an image; answers from `first`, `second`, `same`."""
    names = [f"The {item.name}" for item in objects]
    texts = {"first": names[0], "second": names[1], "same": "Almost the same"}
    pair = f"distance-{image}-{which}-9"
    return [
        replace(
            CLOSER, id=f"{pair}-{variant}", pair_id=pair, variant=variant, image=f"{image}.jpg", objects=objects,
            options=(*names, "Almost the same"), answer=texts[answer],
        )
        for variant, answer in enumerate(answers)
    ]  # fmt: skip


def depth(image: int, answer: str, options: tuple[str, ...] = RANGES) -> list[Question]:
    """A depth question about an image."""
    name = f"depth-{image}-0"
    return [replace(CENTRE, id=name, task="depth", image=f"{image}.jpg", options=options, answer=answer)]


def scores(task: str, units: Sequence[Unit]) -> dict[str, BlindScore]:
    return {item.strategy: item for item in blind_scores(task, units, IMAGES)}


def depth_units(depths_m: list[float], kind: str) -> list[Unit]:
    """The depth questions of single objects at these depths."""
    cars = [projected("white car", 0.0, z_m, 0.0) for z_m in depths_m]
    images = [SceneImage(f"{place}.jpg", (car,)) for place, car in enumerate(cars)]
    questions = [question for unit in own_units(images, 1, kind) for question in questions_of(unit)]
    return [[question] for question in questions if question.task == "depth"]


def saved(path: Path, units: Sequence[Unit]) -> Path:
    write_rows(path, [question_to_row(question) for unit in units for question in unit])
    return path


def test_official_ranges_are_given_away_by_their_width() -> None:
    rng = random.Random(0)
    units = depth_units([3 + rng.expovariate(1 / 15) for _ in range(2000)], "official")
    found = scores("depth", units)
    widest = found["widest range"]
    assert widest.score > 0.98 and widest.verdict == "LEAK"
    assert widest.z > 30
    assert found["narrowest range"].score < 0.01


def test_fair_ranges_say_nothing_by_width_and_for_far_objects_nothing_by_rank() -> None:
    rng = random.Random(0)
    found = scores("depth", depth_units([rng.uniform(25, 60) for _ in range(3000)], "fair"))
    for name in ("widest range", "narrowest range", "nearest range", "middle range", "farthest range"):
        assert found[name].score == pytest.approx(1 / 3, abs=0.03), name
        assert found[name].verdict == "no leak", name


def test_near_objects_give_fair_ranges_away_by_rank_and_matched_ones_not() -> None:
    """No range of 6 m fits before an object 7 m away; distractors that are distributed as truths betray nothing."""
    rng = random.Random(0)
    depths_m = [min(5 + rng.expovariate(1 / 15), 60) for _ in range(3000)]
    assert scores("depth", depth_units(depths_m, "fair"))["nearest range"].score > 0.55
    found = scores("depth", depth_units(depths_m, "matched"))
    assert max(item.score for item in found.values()) < 1 / 3 + 0.05
    assert {item.verdict for item in found.values()} == {"no leak"}


def test_matched_ranges_of_a_class_that_is_near_together_still_leak_by_rank() -> None:
    """Ranges that must be apart leave little beside the depths where the class is densest."""
    rng = random.Random(0)
    drawn_m = (5 + rng.expovariate(1 / 6) for _ in range(3000))
    units = depth_units([depth_m for depth_m in drawn_m if depth_m < 31], "matched")
    found = scores("depth", units)["nearest range"]
    assert 0.4 < found.score < 0.5 and found.verdict == "LEAK"


def test_the_published_units_leak_their_depth() -> None:
    units = published_units(read_scenes(need("parity/metadata.jsonl")))
    questions = [question for unit in units for question in questions_of(unit)]
    columns: dict[str, list[Unit]] = {}
    for unit in units_of(questions).values():
        columns.setdefault(unit[0].task, []).append(unit)
    best = blind_scores("depth", columns["depth"], IMAGES)[0]
    assert (best.strategy, best.verdict) == ("widest range", "LEAK") and best.score > 0.97
    bands = {band.band: band for band in balance_of(questions, columns).depth_bands}
    assert [bands[name].ranks[rank] / bands[name].units for name, rank in (
        ("below 7 m", "nearest"), ("7 to 15 m", "middle"), ("above 15 m", "farthest"),
    )] == [1, 1, 1]  # fmt: skip


def test_depth_strategies_by_hand() -> None:
    units = [
        depth(0, RANGES[0]),
        depth(1, RANGES[1]),
        depth(2, RANGES[1]),
        depth(3, RANGES[2], (*RANGES[1:], RANGES[0])),
    ]
    found = {name: item.score for name, item in scores("depth", units).items()}
    assert found == {
        "independent guess": pytest.approx(1 / 3), "widest range": 0.5, "narrowest range": 0.25,
        "nearest range": 0.25, "middle range": 0.5, "farthest range": 0.25,
        "best constant position: 2": 0.75, "commonest answer text: between 5 meters and 12 meters": 0.5,
    }  # fmt: skip


def test_pair_strategies_by_hand() -> None:
    first, second, same = ("first", "second"), ("second", "first"), ("same", "same")
    truths = [first] * 5 + [second] * 3 + [same] * 2
    found = scores("distance", [closer(image, truth) for image, truth in enumerate(truths)])
    assert found["self-consistent guess (bar)"].score == pytest.approx((1 - 0.2) / 2)
    assert all(item.bar == pytest.approx(0.4) for item in found.values())
    assert found["best constant position: 1, then 2"].score == 0.5
    assert found["independent guess"].score == pytest.approx(1 / 9)


def test_a_pair_half_right_counts_nothing() -> None:
    units = [closer(image, ("first", "same")) for image in range(4)]
    found = scores("distance", units)
    assert found["best constant position: 1, then 3"].score == 1
    assert "best constant position: 1, then 2" not in found


def test_a_class_that_tells_the_answer_is_found_whatever_the_order() -> None:
    forms = [(("first", "second"), (ADULT, CAR)), (("second", "first"), (CAR, ADULT))]
    nearer = [closer(image, *forms[image % 2]) for image in range(40)]
    by_class = scores("distance", nearer)["by class"]
    assert (by_class.score, by_class.verdict) == (1, "LEAK")
    assert scores("distance", nearer)["best constant position: 1, then 2"].verdict == "no leak"


def test_what_is_learnt_is_not_learnt_from_the_image_itself() -> None:
    folds = folds_of([str(place) for place in range(50)])
    assert Counter(folds) == {0: 10, 1: 10, 2: 10, 3: 10, 4: 10}
    alone = learnt_scores(labels=list(range(50)), keys=list(range(50)), folds=folds)
    assert alone == [0] * 50
    assert learnt_scores(["a"] * 50, list(range(50)), folds) == [1] * 50


def test_units_of_one_image_stay_in_one_fold() -> None:
    draws = [f"{place // 4}.jpg" for place in range(80)]
    assert len(set(zip(draws, folds_of(draws), strict=True))) == 20


@pytest.mark.parametrize(("images", "verdict"), [(30, "LEAK"), (5, "too few")])
def test_few_images_prove_nothing_however_many_units(images: int, verdict: str) -> None:
    units = [closer(image, ("first", "second"), which=which) for image in range(images) for which in range(20)]
    best = scores("distance", units)["best constant position: 1, then 2"]
    assert (best.score, best.verdict) == (1, verdict)
    assert best.z == pytest.approx(images**0.5)


def test_fair_coins_are_no_leak() -> None:
    rng = random.Random(3)
    truths = [rng.choice([("first", "second"), ("second", "first")]) for _ in range(400)]
    found = scores("distance", [closer(image, truth) for image, truth in enumerate(truths)])
    assert {item.verdict for item in found.values()} == {"no leak"}


def test_directions_are_learnt_among_those_offered() -> None:
    cardinals, diagonals = FACING.options, ("Northeast", "Southeast", "Southwest", "Northwest")
    units = [
        [
            replace(FACING, id=f"yaw-{image}-{variant}", pair_id=f"yaw-{image}", variant=variant,
                    image=f"{image}.jpg", options=options, answer=answer)
            for variant, answer in enumerate(answers)
        ]
        for image in range(40)
        for options, answers in [
            (cardinals, ("North", "South")) if image % 2 else (diagonals, ("Northeast", "Southwest"))
        ]
    ]  # fmt: skip
    found = scores("yaw", units)
    assert found["by the directions offered"].score == 1
    assert found["commonest answer text: northeast, then southwest"].score == 0.5
    assert found["self-consistent guess (bar)"].score == 0.25


def test_points_are_learnt_by_class() -> None:
    boxes = {"car": (100.0, 300.0, 300.0, 500.0), "truck": (900.0, 300.0, 1200.0, 600.0)}
    units = [
        [replace(CENTRE, id=f"pixel-{image}-0", image=f"{image}.jpg",
                 objects=(replace(CENTRE.objects[0], bbox=boxes[kind], category=kind),))]
        for image, kind in enumerate(["car", "truck"] * 20)
    ]  # fmt: skip
    found = scores("pixel", units)
    assert found["by class"].score > 0.95 and found["by class"].verdict == "LEAK"
    assert found["best constant point (bar)"].score == pytest.approx(0.5, abs=0.03)
    assert found["centre of the image"].score == 0


def test_classes_come_from_names_where_no_category_is_recorded() -> None:
    names = {"white and black car": "car", "adult wearing a blue shirt": "adult", "construction vehicle": "vehicle"}
    assert {name: class_of(replace(CAR, name=name, category="")) for name in names} == names
    assert class_of(CAR) == "vehicle.car"


def test_balance_counts_images_objects_and_ties(tmp_path: Path) -> None:
    path = write_small_set(tmp_path, images=24)
    audit = audit_of(path)
    questions = read_questions(path)
    assert (audit.questions, audit.balance.images) == (len(questions), 24)
    assert audit.balance.classes == {"car": 12 + 2 * 12}
    assert audit.balance.tasks["depth"].units == audit.balance.tasks["distance"].units == 12
    answers = [question.answer for question in questions if question.task == "left_right" and question.variant == 0]
    assert audit.balance.tasks["left_right"].ties == answers.count("Almost the same") / 12
    assert audit.balance.tasks["yaw"].ties is None
    assert sum(audit.balance.headings.values()) == 12
    assert audit.balance.tasks["distance"].largest_image_share == 1 / 12


def test_the_positions_listed_are_what_constant_positions_score(tmp_path: Path) -> None:
    audit = audit_of(write_small_set(tmp_path, images=24))
    for task, numbers in audit.balance.tasks.items():
        if task != "pixel":
            best = max(numbers.positions.values()) / numbers.units
            assert best == next(s.score for s in audit.strategies[task] if s.strategy.startswith("best constant pos"))


@pytest.mark.parametrize(
    ("scenes", "draws"), [(4, ("images", "images")), (8, ("images", "scenes")), (20, ("scenes", "scenes"))]
)
def test_scenes_are_the_draws_where_there_are_enough(tmp_path: Path, scenes: int, draws: tuple[str, str]) -> None:
    units = [closer(image, ("first", "second")) for image in range(40)]
    named = [[replace(q, scene=f"scene-{image % scenes}") for q in unit] for image, unit in enumerate(units)]
    assert audit_of(saved(tmp_path / "q.jsonl", named)).draws == Draws(*draws)


def text_of(audit: Audit) -> str:
    return "\n".join(report(audit))


def test_the_report_names_the_leak_and_clears_what_is_fair(tmp_path: Path) -> None:
    rng = random.Random(1)
    official = saved(tmp_path / "o.jsonl", depth_units([rng.uniform(5, 50) for _ in range(300)], "official"))
    fair = saved(tmp_path / "f.jsonl", depth_units([rng.uniform(25, 60) for _ in range(300)], "fair"))
    assert "depth: 'widest range' is right on 100.0 % of 300 units: LEAK (bar 33.3" in text_of(audit_of(official))
    told = text_of(audit_of(fair)).splitlines()
    assert "no leak (bar 33.3" in next(line for line in told if "'widest range'" in line)


def test_the_command_prints_tables_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_small_set(tmp_path, images=24)
    assert main([str(path), "--json", str(tmp_path / "audit.json")]) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 120 for line in printed.splitlines()[1:])
    assert "true range of depth, by depth" in printed and "source: synthetic" in printed
    found = json.loads((tmp_path / "audit.json").read_text())
    assert set(found["strategies"]) == set(found["balance"]["tasks"]) and found["questions"] == 120
    assert {"strategy", "score", "bar", "z", "verdict"} == set(found["strategies"]["depth"][0])


def test_input_that_cannot_be_used_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.jsonl")]) == 2
    assert "no file at" in capsys.readouterr().err
    (tmp_path / "bad.jsonl").write_text('{"id": 3}\n')
    assert main([str(tmp_path / "bad.jsonl")]) == 2
    assert "bad.jsonl, line 1" in capsys.readouterr().err
    two = saved(tmp_path / "two.jsonl", [depth(0, RANGES[0], RANGES[:2])])
    assert main([str(two)]) == 2
    assert "has 2 ranges, not three" in capsys.readouterr().err
