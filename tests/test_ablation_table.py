"""The table of an ablation: means over seeds, paired differences, floors, what is missing, and its page."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from small_ablation import HOSTILE, row_result, study_questions, units_in, write_study
from small_questions import perfect_output, write_small_set

from data_gen.records import question_from_row
from eval.ablation.charts import mean_curve
from eval.ablation.figures import SCORE, RowDifference, RowFigures, Table
from eval.ablation.records import RowResult, TestQuestions
from eval.ablation.table_files import comma_separated, markdown
from eval.ablation_table import main, read_table
from rewards.grading import TASKS

ROOT = Path(__file__).parents[1]
COMMITTED = sorted(ROOT.glob("results/*/table-*.md"))
ROWS = """
rows:
  first: {title: First, start: base, published: [10, 1, 2, 3, 4, 5, 45]}
  second: {title: Second, start: first, against: [first]}
  outside: {title: Outside, start: base}
  base: {title: Base, published: [5, 1, 2, 3, 4, 5, 15]}
  on-base: {title: On base, start: base, against: [base, outside]}
  below: {title: Below, start: base}
tables:
  4: {title: Two rows, rows: [first, second]}
  5: {title: Three rows, rows: [base, first, on-base, below]}
"""


@pytest.fixture(scope="module")
def questions() -> TestQuestions:
    return study_questions()


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.yaml"
    path.write_text(ROWS)
    return path


def shares(questions: TestQuestions, share: float, tasks: Sequence[str] = TASKS) -> list[float]:
    """The first so large a share of every group's units right, in the given tasks only."""
    return [
        float(place < share * len(group.names)) if group.task in tasks else 0.0
        for group in questions.units
        for place in range(len(group.names))
    ]


def table_of(
    folder: Path, rows_file: Path, questions: TestQuestions, results: Sequence[RowResult], number: int = 4
) -> Table:
    write_study(folder / "results", questions, results)
    return read_table(number, folder / "results", rows_file)[0]


def three_seeds(questions: TestQuestions, row: str, shares_of_seeds: Sequence[float]) -> list[RowResult]:
    return [row_result(questions, row, seed, shares(questions, share)) for seed, share in enumerate(shares_of_seeds)]


def greedy(table: Table) -> RowDifference:
    """The only difference under greedy decoding."""
    (found,) = [item for item in table.differences if item.mode == "greedy"]
    return found


def row_of(table: Table, name: str) -> RowFigures:
    return next(row for row in table.rows if row.name == name)


def test_means_and_differences_are_those_of_the_known_scores(
    tmp_path: Path, rows_file: Path, questions: TestQuestions
) -> None:
    assert {len(group.names) for group in questions.units} == {20}, "so that shares are exact"
    results = [*three_seeds(questions, "first", (0.2, 0.3, 0.4)), *three_seeds(questions, "second", (0.5, 0.4, 0.6))]
    table = table_of(tmp_path, rows_file, questions, results)
    first, second = (row_of(table, name).modes["sampled"] for name in ("first", "second"))
    assert first.values[SCORE].difference == pytest.approx(0.3)
    assert first.values["matched", "yaw"].difference == pytest.approx(0.3)
    assert second.seed_scores == pytest.approx({0: 0.5, 1: 0.4, 2: 0.6})
    gap = greedy(table)
    assert gap.seed_gaps == pytest.approx({0: 0.3, 1: 0.1, 2: 0.2}) and gap.agreement == "all 3 up"
    assert gap.values[SCORE].difference == pytest.approx(0.2)
    assert gap.values["official", "depth"].difference == pytest.approx(0.2)


def test_the_score_leaves_other_parts_out(tmp_path: Path, rows_file: Path, questions: TestQuestions) -> None:
    official = [float(group.part == "official") for group in questions.units for _ in group.names]
    table = table_of(tmp_path, rows_file, questions, [row_result(questions, "first", 0, official)])
    values = row_of(table, "first").modes["greedy"].values
    assert values[SCORE].difference == 0 and values["official", "depth"].difference == 1


def test_an_interval_leaves_zero_out_when_every_image_improves_and_not_when_few_do(
    tmp_path: Path, rows_file: Path, questions: TestQuestions
) -> None:
    for name, share, certain in (("all", 1.0, True), ("one", 0.05, False)):
        results = [*three_seeds(questions, "first", (0, 0, 0)), *three_seeds(questions, "second", [share] * 3)]
        value = greedy(table_of(tmp_path / name, rows_file, questions, results)).values["matched", "depth"]
        assert value.ci95 and value.difference == pytest.approx(share)
        assert (value.ci95[0] > 0) is certain, name


def test_rows_that_answer_alike_differ_by_exactly_nothing(
    tmp_path: Path, rows_file: Path, questions: TestQuestions
) -> None:
    units = [(place * 7 % 10) / 9 for place in range(units_in(questions))]
    results = [row_result(questions, row, seed, units) for row in ("first", "second") for seed in range(3)]
    gap = greedy(table_of(tmp_path, rows_file, questions, results))
    assert {value.difference for value in gap.values.values()} == {0.0}
    assert all(value.ci95 and value.ci95[0] <= 0 <= value.ci95[1] for value in gap.values.values())
    assert gap.agreement == "none differs"


def test_the_same_images_are_drawn_for_both_rows(tmp_path: Path, rows_file: Path, questions: TestQuestions) -> None:
    """What makes images hard cancels out: the interval of the gap is far narrower than those of the rows."""
    results = [*three_seeds(questions, "first", [0.5] * 3), *three_seeds(questions, "second", [0.55] * 3)]
    table = table_of(tmp_path, rows_file, questions, results)

    def width(ends: tuple[float, float] | None) -> float:
        assert ends
        return ends[1] - ends[0]

    own = width(row_of(table, "first").modes["greedy"].values["matched", "yaw"].ci95)
    assert width(greedy(table).values["matched", "yaw"].ci95) < own / 1.5


def test_seeds_that_disagree_are_told(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [*three_seeds(questions, "first", (0.3, 0.3, 0.3)), *three_seeds(questions, "second", (0.6, 0.5, 0.2))]
    write_study(tmp_path / "results", questions, results)
    told = printed(tmp_path, rows_file, capsys)
    assert re.search(r"greedy .*\+30\.0 \+20\.0 -10\.0 +DISAGREE: 2 up, 1 down", told)
    page = (tmp_path / "table-4.html").read_text()
    assert 'class="seeds disagree"' in page and "DISAGREE: 2 up, 1 down" in page


def test_a_task_below_its_honest_floor_is_marked_and_one_above_is_not(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    units = shares(questions, 1.0, ("yaw", "pixel"))
    write_study(tmp_path / "results", questions, [row_result(questions, "first", 0, units)])
    told = printed(tmp_path, rows_file, capsys)
    assert re.search(r"^  greedy +33\.3 +33\.3 +100\.0 +100\.0 +0\.0↓ +0\.0↓ +0\.0↓ +0\.0↓ +0\.0↓", told, re.MULTILINE)
    for floor in ("honest floor", "best constant answer", "best constant rank", "widest depth range", "random guess"):
        assert re.search(rf"^  {floor} .*\d\d\.\d", told, re.MULTILINE), floor


def test_missing_seeds_and_rows_are_said(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    results = three_seeds(questions, "first", (0.2, 0.3, 0.4))
    write_study(tmp_path / "results", questions, [results[0], results[2]])
    told = printed(tmp_path, rows_file, capsys)
    assert "synthetic world" in told
    assert "Missing: First (2 of 3 seeds: 0, 2). Second (not run)." in told
    assert "Differences" not in told
    assert "| Second (not run) | – | – |" in (tmp_path / "table-4.md").read_text()
    score = row_of(read_table(4, tmp_path / "results", rows_file)[0], "first").modes["greedy"].values[SCORE]
    assert score.difference == pytest.approx(0.3)


def test_a_difference_is_over_the_seeds_that_both_rows_have(
    tmp_path: Path, rows_file: Path, questions: TestQuestions
) -> None:
    first, second = three_seeds(questions, "first", (0.2, 0.9, 0.4)), three_seeds(questions, "second", (0.5, 0.4, 0.6))
    gap = greedy(table_of(tmp_path, rows_file, questions, [first[0], first[2], *second]))
    assert gap.seed_gaps == pytest.approx({0: 0.3, 2: 0.2}) and gap.values[SCORE].difference == pytest.approx(0.25)


def test_a_table_is_of_the_seeds_that_were_asked_for(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    second = three_seeds(questions, "second", (0.5, 0.5, 0.9))[2:]
    results = [*three_seeds(questions, "first", (0.2, 0.3, 0.4)), *second]
    write_study(tmp_path / "results", questions, results)
    assert "Second (not run)" in printed(tmp_path, rows_file, capsys, "--seeds", "1")
    table = read_table(4, tmp_path / "results", rows_file, seeds=(0, 2))[0]
    assert row_of(table, "first").seeds == (0, 2) and row_of(table, "second").seeds == (2,)
    assert row_of(table, "first").modes["greedy"].values[SCORE].difference == pytest.approx(0.3)


def test_an_untrained_row_of_one_seed_is_compared_with_every_seed_and_is_not_incomplete(
    tmp_path: Path, rows_file: Path, questions: TestQuestions
) -> None:
    base = row_result(questions, "base", 0, shares(questions, 0.1))
    outside = row_result(questions, "outside", 1, shares(questions, 0.5))
    results = [base, outside, *three_seeds(questions, "on-base", (0.2, 0.3, 0.4))]
    table = table_of(tmp_path, rows_file, questions, results, 5)
    gaps = {item.against: item.seed_gaps for item in table.differences if item.mode == "greedy"}
    assert gaps["base"] == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3})
    assert gaps["outside"] == pytest.approx({1: -0.2}), "a row in the results, not in the table"
    text = markdown(table)
    assert "| On base minus Outside | greedy |" in text and "Base (" not in text


def test_a_row_that_names_none_is_compared_with_the_row_above(
    tmp_path: Path, rows_file: Path, questions: TestQuestions
) -> None:
    results = [row_result(questions, row, 0, shares(questions, 0.1)) for row in ("base", "first", "on-base", "below")]
    table = table_of(tmp_path, rows_file, questions, results, 5)
    pairs = [(item.row, item.against) for item in table.differences if item.mode == "greedy"]
    assert pairs == [("first", "base"), ("on-base", "base"), ("below", "on-base")]


def test_published_rows_stand_beneath_and_are_marked(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(tmp_path / "results", questions, three_seeds(questions, "first", (0.2, 0.3, 0.4)))
    told = printed(tmp_path, rows_file, capsys)
    assert re.search(
        r"^First\n  greedy .*\n  sampled .*\n  published, 3B +10\.00 +1\.00 +2\.00 +3\.00 +– +4\.00 +5\.00 +45\.00",
        told, re.MULTILINE,
    )  # fmt: skip
    assert "| First | published, 3B | 10.00 |" in (tmp_path / "table-4.md").read_text()


@pytest.mark.parametrize("width", [100, 200])
def test_the_table_fits_the_terminal(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str], width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(width))
    results = [*three_seeds(questions, "first", (0.2, 0.3, 0.4)), *three_seeds(questions, "second", (0.1, 0.4, 0.6))]
    write_study(tmp_path / "results", questions, results)
    tables = printed(tmp_path, rows_file, capsys).rsplit("\n\n", 1)[0]
    assert max(map(len, tables.splitlines())) <= width
    assert ("formed" in tables) is (width == 200)


def test_the_files_hold_the_same_numbers(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [*three_seeds(questions, "first", (0.2, 0.3, 0.4)), *three_seeds(questions, "second", (0.5, 0.4, 0.6))]
    write_study(tmp_path / "results", questions, results)
    printed(tmp_path, rows_file, capsys)
    with (tmp_path / "table-4.csv").open() as file:
        lines = {(line["kind"], line["row"], line["mode"], line["column"]): line for line in csv.DictReader(file)}
    assert float(lines["mean", "first", "greedy", "matched yaw"]["value"]) == pytest.approx(0.3)
    assert float(lines["difference", "second", "sampled", "score"]["value"]) == pytest.approx(0.2)
    assert float(lines["difference seed 1", "second", "greedy", "score"]["value"]) == pytest.approx(0.1)
    assert float(lines["published", "first", "", "front_behind"]["value"]) == 0.45
    text = (tmp_path / "table-4.md").read_text()
    assert "| Second minus First | greedy | +20.0 [" in text and "| +30.0 | +10.0 | +20.0 | all 3 up |" in text
    assert text == markdown(read_table(4, tmp_path / "results", rows_file)[0]), "told again, the same"
    assert str(tmp_path) not in text and "2026" not in text, "no paths, no dates"


def test_the_page_shows_curves_pictures_and_boxes_and_escapes_what_models_wrote(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = {name: [(10, 0.1), (20, 0.3)] for name in ("rewards/acc/mean", "held_out/yaw", "loss")}
    hostile = row_result(questions, "first", 0, shares(questions, 0.3), curves)
    knowing = row_result(questions, "second", 0, shares(questions, 0.4), curves)
    asked = {row["id"]: question_from_row(row) for row in questions.shown}
    perfect = tuple(replace(item, output=perfect_output(asked[item.question_id])) for item in knowing.examples)
    write_study(tmp_path / "results", questions, [hostile, replace(knowing, examples=perfect)])
    images = write_small_set(tmp_path / "images", 40).parent
    printed(tmp_path, rows_file, capsys, "--images", str(images))
    page = (tmp_path / "table-4.html").read_text()
    assert HOSTILE not in page and "&lt;script&gt;alert" in page
    assert page.count('class="card"') == len(questions.shown) == 20
    assert page.count("data:image/jpeg;base64,") == 20, "every picture once, whatever the rows"
    assert page.count('class="said"') == sum(len(item.objects) for item in asked.values())
    assert page.count("✓") == 20 and page.count("✗") == 20
    assert not re.search(r"(src|href)=\"(?!data:image|#)", page), "one file"
    assert "without pictures" not in page
    for name in ("scores", "differences-greedy", "rewards", "held-out", "training"):
        with Image.open(tmp_path / f"table-4-{name}.png") as picture:
            assert picture.width == 2320 and len(picture.getcolors(1 << 24) or []) > 10, name


def test_without_images_the_page_says_how_to_render_them(
    tmp_path: Path, rows_file: Path, questions: TestQuestions, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(tmp_path / "results", questions, three_seeds(questions, "first", (0.2, 0.3, 0.4)))
    printed(tmp_path, rows_file, capsys, "--images", str(tmp_path / "gone"))
    page = (tmp_path / "table-4.html").read_text()
    assert "python launch/ablate.py --table 4 --dry-run" in page and "data:image" not in page
    assert page.count('class="card"') == 20 and "&lt;script&gt;alert" in page


def test_a_mean_curve_ends_with_the_shortest_seed() -> None:
    assert mean_curve([((10, 1.0), (20, 2.0), (30, 3.0)), ((10, 3.0), (20, 4.0))]) == ((10, 2.0), (20, 3.0))
    assert mean_curve([((10, 1.0), (30, 3.0)), ((20, 4.0), (30, 5.0))]) == ((30, 4.0),)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "questions.json").unlink(), "launch/ablate.py"),
        (lambda folder: replace_in(folder / "first-0.json", "0123456789abcdef", "other"), "scored on other questions"),
        (lambda folder: replace_in(folder / "first-0.json", '"version": 1', '"version": 0'), "version 0"),
        (lambda folder: replace_in(folder / "first-0.json", '"cost"', '"costs"'), "no result of an ablation"),
        (lambda folder: (folder / "first-0.json").rename(folder / "first-1.json"), "row first, seed 0"),
        (lambda folder: replace_in(folder / "first-0.json", '"unit_scores":[', '"unit_scores":[1,'), "scores of"),
        (lambda folder: (folder.parent / "rows.yaml").write_text(ROWS.replace("first", "renamed")), "does not have"),
    ],
)  # fmt: skip
def test_results_that_do_not_belong_are_refused(
    tmp_path: Path,
    rows_file: Path,
    questions: TestQuestions,
    capsys: pytest.CaptureFixture[str],
    spoil: object,
    told: str,
) -> None:
    folder = write_study(tmp_path / "results", questions, [row_result(questions, "first", 0, shares(questions, 0.3))])
    spoil(folder)
    assert main(words(tmp_path, rows_file)) == 2
    assert told in capsys.readouterr().err


def test_a_table_that_does_not_exist_is_named(
    tmp_path: Path, rows_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(tmp_path, rows_file), "--table", "9"]) == 2
    assert "no table 9; known: 4, 5" in capsys.readouterr().err


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.relative_to(ROOT / "results")))
def test_committed_results_recompute_the_committed_tables(path: Path) -> None:
    table = read_table(int(path.stem.removeprefix("table-")), path.parent)[0]
    assert markdown(table) == path.read_text(encoding="utf-8")
    assert comma_separated(table) == path.with_suffix(".csv").read_text(encoding="utf-8")


def test_both_tables_of_the_mini_study_are_committed() -> None:
    assert {ROOT / "results" / "mini" / f"table-{number}.md" for number in (3, 4)} <= set(COMMITTED)


def words(folder: Path, rows_file: Path) -> list[str]:
    where = ["--results", str(folder / "results"), "--rows", str(rows_file), "--out", str(folder / "table-4.html")]
    return ["--table", "4", *where]


def printed(folder: Path, rows_file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the command prints for the results in a folder."""
    assert main([*words(folder, rows_file), *options]) == 0
    return capsys.readouterr().out


def replace_in(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
