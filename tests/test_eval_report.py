"""The comparison of runs: table, page, pictures, differences, and what qualifies the numbers."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_questions import perfect_output, write_small_set

from data_gen.columns import aligned
from data_gen.floors import units_of
from data_gen.records import Question, read_questions, write_rows
from eval.finished_run import read_run
from eval.metrics import Difference
from eval.report import axis_top, compare, reason_rows
from eval.report import main as report
from eval.report_files import in_words, separable
from eval.runner import told_apart
from eval.surds import main as evaluate
from rewards.grading import MIRRORED_TASKS

HOSTILE = '<script>alert("x")</script> & "quoted"'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def replayed(data: Path, label: str, outputs: dict[str, str], *options: str) -> Path:
    """The run folder of stored outputs."""
    stored = data.parent / f"{label}.jsonl"
    write_rows(stored, ({"id": name, "output": text, "tokens": 5} for name, text in outputs.items()))
    out = data.parent.parent / label
    assert evaluate(["--data", str(data), "--replay", str(stored), "--label", label, "--out", str(out), *options]) == 0
    return out


def outputs_of(questions: list[Question], text: str = "") -> dict[str, str]:
    return {question.id: text or perfect_output(question) for question in questions}


def wrong_now_and_then(questions: list[Question], every: int) -> dict[str, str]:
    """Right answers, but none to every so-manieth unit."""
    silent = set(list(units_of(questions))[::every])
    return {q.id: "no idea" if q.unit in silent else perfect_output(q) for q in questions}


def compared(folders: list[Path], out: Path) -> str:
    """The page that compares the runs."""
    assert report([*map(str, folders), "--out", str(out)]) == 0
    return out.read_text()


def test_runs_stand_side_by_side_with_the_floors(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = read_questions(data)
    folders = [replayed(data, "best", outputs_of(questions)), replayed(data, "hostile", outputs_of(questions, HOSTILE))]
    capsys.readouterr()
    assert report([*map(str, folders), "--out", str(tmp_path / "report.html")]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^best +100\.0 \[60\.7, 100\.0\]", table, re.MULTILINE), "right on all of six images"
    assert re.search(r"^hostile +0\.0 \[0\.0, 39\.3\]", table, re.MULTILINE)
    assert re.search(r"^random \(expected\) +6\.2", table, re.MULTILINE)
    assert re.search(r"^honest floor +25\.0", table, re.MULTILINE)
    assert "! synthetic world" in table and "tiny model" not in table


def test_the_page_is_one_file_with_pictures_and_escapes_model_text(data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    folder = replayed(data, "hostile", outputs_of(questions, HOSTILE))
    page = (folder / "report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert page.count('class="card"') == 24
    assert "data:image/jpeg;base64," in page
    assert not re.search(r"(src|href)=\"(?!data:image|#)", page)
    assert 'class="true"' in page and 'class="said"' not in page


def test_predicted_boxes_and_points_are_drawn_in_original_pixels(data: Path) -> None:
    output = "<location>car: [500, 250, 1000, 500]</location><think>t</think><answer>[500, 500]</answer>"
    folder = replayed(data, "boxes", outputs_of(read_questions(data), output), "--frame", "thousand")
    page = (folder / "report.html").read_text()
    assert '<rect class="said" x="80" y="24" width="80" height="24">' in page
    assert re.search(r'class="saidpoint" d="M77.1 48H82.9', page)


def test_a_picture_that_is_gone_is_named(data: Path) -> None:
    for image in data.parent.glob("*.png"):
        image.unlink()
    folder = replayed(data, "blind", outputs_of(read_questions(data)))
    assert "image cannot be shown: 0" in (folder / "report.html").read_text()


def test_a_picture_that_cannot_be_read_is_named(data: Path) -> None:
    for image in data.parent.glob("*.png"):
        image.write_bytes(image.read_bytes()[:60])
    folder = replayed(data, "cut", outputs_of(read_questions(data)))
    assert "image cannot be shown: 0" in (folder / "report.html").read_text()


def test_a_tiny_model_and_other_questions_are_pointed_out(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = outputs_of(read_questions(data))
    small, all_of_them = replayed(data, "small", outputs, "--limit", "2"), replayed(data, "all", outputs)
    summary = json.loads((all_of_them / "summary.json").read_text())
    (all_of_them / "summary.json").write_text(json.dumps({**summary, "tiny": True}))
    capsys.readouterr()
    assert report([str(small), str(all_of_them), "--out", str(tmp_path / "report.html")]) == 0
    table = capsys.readouterr().out
    assert "! tiny model" in table and "(all)" in table
    assert "did not answer the same questions" in table
    assert "did not answer the same questions" in (tmp_path / "report.html").read_text()


def test_a_task_without_questions_is_a_dash(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in data.read_text().splitlines() if '"task": "yaw"' not in line]
    data.write_text("\n".join(lines) + "\n")
    folder = replayed(data, "noyaw", outputs_of(read_questions(data)))
    capsys.readouterr()
    assert report([str(folder), "--out", str(tmp_path / "report.html")]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^noyaw +– +100\.0", table, re.MULTILINE)
    assert "No questions for yaw: the Score is the mean of the other tasks only." in table


def test_unfinished_and_foreign_folders_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = replayed(data, "run", outputs_of(read_questions(data)))
    assert report([str(data.parent)]) == 2
    assert "is no run folder" in capsys.readouterr().err
    (folder / "summary.json").write_text("{}")
    assert report([str(folder)]) == 2
    assert "evaluate again with --resume" in capsys.readouterr().err
    (folder / "summary.json").unlink()
    assert report([str(folder)]) == 2
    assert "is not finished" in capsys.readouterr().err


def test_columns_line_up() -> None:
    lines = aligned([["run", "a"], ["long name", "100.0"], ["x", "–"]])
    assert [line[-1] for line in lines if "-" * 5 not in line] == ["a", "0", "–"]
    assert len({len(line) for line in lines}) == 1


def test_a_narrow_terminal_gets_a_line_per_task(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = replayed(data, "best", outputs_of(read_questions(data)))
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "90")
    assert report([str(folder), "--out", str(tmp_path / "report.html")]) == 0
    assert re.search(r"^front_behind +100\.0", capsys.readouterr().out, re.MULTILINE)


def test_differences_are_paired_and_say_when_chance_would_do(data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    folders = [
        replayed(data, "silent", outputs_of(questions, "no")),
        replayed(data, "most", wrong_now_and_then(questions, 9)),
        replayed(data, "more", wrong_now_and_then(questions, 10)),
    ]
    runs = [read_run(folder) for folder in folders]
    comparisons = compare(questions, runs, [0, 1, 2])
    assert [(item.run, item.against) for item in comparisons] == [(1, 0), (2, 0), (2, 1)]
    for item in comparisons:
        gap = runs[item.run].summary.score - runs[item.against].summary.score
        assert item.differences["score"].difference == pytest.approx(gap)
    assert [separable(item.differences["score"]) for item in comparisons] == [True, True, False]
    page = compared(folders, tmp_path / "report.html")
    cells = re.findall(r'<td class="num (up|down|same)">(.*?)</td>', page, re.DOTALL)
    assert len(cells) == 3 * 7
    assert all(("not separable" in cell) == (kind == "same") for kind, cell in cells)
    assert {kind for kind, _ in cells[:14]} == {"up"}


@pytest.mark.parametrize(
    ("interval", "apart"),
    [
        ((0.1, 0.2), True),
        ((-0.2, -0.1), True),
        ((0.0, 0.2), False),
        ((-0.1, 0.1), False),
        ((0.0, 0.0), False),
        (None, False),
    ],
)
def test_an_interval_that_holds_zero_separates_nothing(interval: tuple[float, float] | None, apart: bool) -> None:
    difference = Difference(0.15, interval, 9)
    assert separable(difference) is apart
    assert ("not separable" in in_words(difference)) is not apart


def test_markdown_and_csv_hold_the_same_numbers(data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    folders = [replayed(data, "a|b", outputs_of(questions)), replayed(data, "none", outputs_of(questions, "no"))]
    compared(folders, tmp_path / "report.html")
    text = (tmp_path / "report.md").read_text()
    assert "| a\\|b | 100.0 [" in text and "## Floors on the questions of a|b" in text
    assert "| none minus a\\|b | -100.0 [" in text and "- synthetic world" in text
    with (tmp_path / "report.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = {(row["kind"], row["run"], row["column"]): float(row["value"]) for row in rows}
    assert values["score", "a|b", "score"] == 1.0 and values["difference", "none", "yaw"] == -1.0
    assert values["floor independent", "a|b", "yaw"] == pytest.approx(1 / 16)
    scores = [row for row in rows if row["kind"] == "score"]
    assert len(scores) == 14 and all(float(row["low"]) <= float(row["value"]) <= float(row["high"]) for row in scores)


def test_runs_on_other_questions_are_not_held_against_each_other(data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    same = [replayed(data, name, outputs_of(questions)) for name in ("one", "two")]
    other_data = write_small_set(tmp_path / "other" / "data", seed=1)
    other = replayed(other_data, "other", outputs_of(read_questions(other_data)))
    page = compared([same[0], other, same[1]], tmp_path / "report.html")
    assert "other: other questions or another scoring than one; no differences" in page
    assert (
        page.count('<td class="name"><i class="swatch" style="background:#009e73"></i>two') == 2
    )  # scores, differences
    assert page.count('<td class="name"><i class="swatch" style="background:#d55e00"></i>other') == 1  # scores alone
    assert page.count('class="runname"') == 2
    official = replayed(data, "official", outputs_of(questions), "--scoring", "official")
    assert "official: other questions or another scoring" in compared([same[0], official], tmp_path / "report.html")


def test_a_changed_question_file_gives_scores_without_pictures(data: Path, tmp_path: Path) -> None:
    folder = replayed(data, "run", outputs_of(read_questions(data)))
    write_small_set(data.parent, seed=1)
    page = compared([folder], tmp_path / "report.html")
    assert "has changed since run was asked" in page and 'class="card"' not in page and "100.0" in page
    data.unlink()
    assert "is no longer there" in compared([folder], tmp_path / "report.html")


def test_runs_of_other_benchmarks_name_their_script(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = replayed(data, "run", outputs_of(read_questions(data)))
    facts = json.loads((folder / "run.json").read_text())
    for benchmark in ("drivemllm", "cyclingvqa"):
        (folder / "run.json").write_text(json.dumps({**facts, "benchmark": benchmark}))
        assert report([str(folder)]) == 2
        assert f"python eval/{benchmark}.py" in capsys.readouterr().err


def test_the_page_must_be_a_page(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = replayed(data, "run", outputs_of(read_questions(data)))
    for out in (tmp_path, tmp_path / "report.md"):
        assert report([str(folder), "--out", str(out)]) == 2
        assert "ends in .html" in capsys.readouterr().err


def test_a_pair_is_one_card_with_both_answers(data: Path) -> None:
    folder = replayed(data, "run", outputs_of(read_questions(data)))
    page = (folder / "report.html").read_text()
    cards = re.findall(r'<article class="card" data-task="(\w+)" data-kind="(\w+)">(.*?)</article>', page, re.DOTALL)
    assert cards and {kind for _, kind, _ in cards} == {"random"}
    for task, _, body in cards:
        assert body.count('class="verdict"') == (2 if task in MIRRORED_TASKS else 1)
        assert body.count("<svg") == 1 and body.count('class="mark right"') + body.count('class="mark near"') >= 1


def test_invalidating_reasons_come_first(data: Path) -> None:
    questions = read_questions(data)
    runs = [replayed(data, "right", outputs_of(questions)), replayed(data, "mute", outputs_of(questions, "no"))]
    rows = reason_rows([read_run(folder).summary for folder in runs])
    assert rows[0] == ("no_answer", [0, len(questions)])
    assert ("missing_tag", [0, len(questions)]) in rows


def test_the_axis_covers_what_is_drawn(data: Path) -> None:
    questions = read_questions(data)
    assert axis_top([read_run(replayed(data, "right", outputs_of(questions))).summary]) == 1.0
    mute = read_run(replayed(data, "mute", outputs_of(questions, "no"))).summary
    assert axis_top([mute], intervals=False) == pytest.approx(
        math.ceil(5 * max(figures.floors["honest"] for figures in mute.tasks.values()) - 1e-9) / 5
    )


def browser(tmp_path: Path, *options: str) -> None:
    """Run headless chromium, or skip where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here")
    fixed = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
        "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}", "--hide-scrollbars", "--window-size=1300,1500",
    ]  # fmt: skip
    subprocess.run([program, *fixed, *options], capture_output=True, timeout=120, check=True)


def colours_seen(tmp_path: Path, page: Path, script: str) -> dict[str, int]:
    """Pixels of true boxes, of the models' boxes and of a paint, of the gallery alone, after a script has run."""
    copy, picture = page.with_name("changed.html"), tmp_path / "page.png"
    alone = 'for (const nav = document.querySelector("nav"); nav.previousSibling;) nav.previousSibling.remove();'
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}{alone}</script></body>"))
    browser(tmp_path, f"--screenshot={picture}", copy.as_uri())
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    wanted = {"true": (0x2B, 0xD4, 0x6B), "said": (0xFF, 0x4F, 0x9A), "paint": (0x12, 0x34, 0x56)}
    return {name: int((np.abs(pixels - np.array(rgb)).max(axis=2) < 12).sum()) for name, rgb in wanted.items()}


def test_the_browser_draws_boxes_and_hides_cards_on_request(data: Path, tmp_path: Path) -> None:
    questions = read_questions(data)
    shifted = "<location>car: [5, 5, 60, 40]</location><think>t</think><answer>[30, 20]</answer>"
    runs = {"right": outputs_of(questions), "shifted": outputs_of(questions, shifted)}
    page = tmp_path / "report.html"
    compared([replayed(data, name, outputs) for name, outputs in runs.items()], page)
    paint = """for (const card of document.querySelectorAll('.card[data-task="pixel"][data-kind="random"]'))
        card.style.background = "#123456";"""
    assert colours_seen(tmp_path, page, paint)["paint"] == 0  # the first cards are of other kinds
    press = """for (const value of ["pixel", "random"]) document.querySelector(`[data-value=${value}]`).click();"""
    assert min(colours_seen(tmp_path, page, press + paint).values()) > 200


def test_runs_with_one_label_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    assert told_apart(["random", "sft", "random"], [tmp_path / name for name in "abc"]) == [
        "random (a)", "sft", "random (c)"
    ]  # fmt: skip
