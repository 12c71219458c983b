"""The three constructions of depth ranges: what each range must be, and what options give away without the image."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from sample_questions import projected

from data_gen.command_line import UsageError
from data_gen.depth_ranges import DepthRange, fair_ranges, matched_ranges, official_ranges, range_around
from data_gen.questions import own_units
from data_gen.scene_records import SceneImage

DEPTHS_M = [1.4, 3.0, 6.99, 7.0, 11.5, 15.0, 15.01, 30.0, 59.9]
POOL_M = [4 + 0.4 * place for place in range(140)]


def widths(ranges: tuple[DepthRange, ...]) -> list[int]:
    return [item.high_m - item.low_m for item in ranges]


def gaps(ranges: tuple[DepthRange, ...]) -> list[int]:
    ordered = sorted(ranges, key=lambda item: item.low_m)
    return [after.low_m - before.high_m for before, after in itertools.pairwise(ordered)]


@pytest.mark.parametrize("depth_m", DEPTHS_M)
def test_fair_ranges_are_alike_and_hold_the_truth(depth_m: float) -> None:
    for seed in range(50):
        ranges = fair_ranges(depth_m, random.Random(seed))
        assert ranges[0].low_m <= depth_m <= ranges[0].high_m
        assert set(widths(ranges)) <= {6, 7} and set(gaps(ranges)) <= {1, 2}
        assert min(item.low_m for item in ranges) >= 1


def test_a_far_depth_has_any_rank_among_fair_ranges() -> None:
    ranks = [sorted(ranges, key=lambda item: item.low_m).index(ranges[0])
             for ranges in (fair_ranges(40.0, random.Random(seed)) for seed in range(3000))]  # fmt: skip
    assert all(abs(ranks.count(rank) / 3000 - 1 / 3) < 0.04 for rank in range(3))


@pytest.mark.parametrize("depth_m", DEPTHS_M)
def test_official_ranges_are_on_the_published_sides(depth_m: float) -> None:
    for seed in range(50):
        truth, first, second = official_ranges(depth_m, random.Random(seed))
        assert truth.low_m <= depth_m <= truth.high_m
        sides = [item.low_m > truth.high_m for item in (first, second)]
        assert sides == ([True, True] if depth_m < 7 else [False, False] if depth_m > 15 else [False, True])


@pytest.mark.parametrize("depth_m", [*DEPTHS_M, 7.5, 12.49, 12.51])
def test_matched_ranges_are_apart_and_hold_the_truth(depth_m: float) -> None:
    for seed in range(50):
        ranges = matched_ranges(depth_m, POOL_M, random.Random(seed))
        assert ranges is not None
        assert ranges[0] == range_around(depth_m) and ranges[0].low_m <= depth_m <= ranges[0].high_m
        assert min(gaps(ranges)) >= 1 and all(2 <= width <= 7 for width in widths(ranges))
        assert {ranges[1], ranges[2]} <= {range_around(value) for value in POOL_M}


def at(category: str, depth_m: float) -> SceneImage:
    item = replace(projected("white car", 0.0, depth_m, 0.0), category=category)
    return SceneImage(f"{category}-{depth_m}.jpg", (item,))


def test_depths_that_allow_no_matched_ranges_are_told() -> None:
    assert matched_ranges(10.0, [10.0, 10.5], random.Random(0)) is None
    with pytest.raises(UsageError, match=r"the depths of 2 objects give no two ranges beside that of 10\.0 m; .* fair"):
        own_units([at("car", 10.0), at("car", 10.5)], 0, "matched")


def test_a_class_whose_depths_lie_too_close_takes_those_of_all() -> None:
    scenes = [at("child", 6 + 0.01 * place) for place in range(60)] + [at("car", 20 + place) for place in range(40)]
    depth = next(unit for unit in own_units(scenes, 0, "matched") if unit.task == "depth")
    assert max(int(option.split()[1]) for option in depth.options) > 15


def test_matched_distractors_come_from_objects_of_the_same_class() -> None:
    near = [("adult", 4 + 0.1 * place) for place in range(80)]
    far = [("car", 30 + 0.3 * place) for place in range(80)]
    scenes = [
        SceneImage(f"{name}{z_m}.jpg", (replace(projected("white car", 0.0, z_m, 0.0), category=name),))
        for name, z_m in near + far
    ]
    for unit in own_units(scenes, 0, "matched"):
        if unit.task == "depth":
            lows = [int(option.split()[1]) for option in unit.options]
            is_near = unit.scene.objects[0].category == "adult"
            assert max(lows) <= 12 if is_near else min(lows) >= 26


def test_a_range_in_words_is_in_the_singular_up_to_one_metre() -> None:
    assert str(DepthRange(1, 7)) == "Between 1 meter and 7 meters"
