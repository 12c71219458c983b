"""The DriveMLLM evaluation command: true answers, shots, replay, resume, pictures, bad input."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from eval_runs import check_resumed_after_a_cut, rows_of, summary_of
from PIL import Image
from small_drivemllm import small_set
from small_questions import write_small_set

from data_gen.build_drivemllm import main as build
from data_gen.drivemllm.prompts import marked
from data_gen.drivemllm.questions import published_questions
from data_gen.drivemllm.records import TASKS, DriveMLLMImage, question_to_row, read_questions
from data_gen.records import QuestionObject, write_rows
from data_gen.synthetic import WorldSpec, write_world
from eval.drivemllm import main
from eval.drivemllm_random import RandomAnswers


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


def replay_truths(data: Path, out: Path, *options: object) -> dict[str, Any]:
    truths = out.with_suffix(".jsonl")
    write_rows(truths, ({"id": q.id, "output": marked(q.answer_text), "tokens": 4} for q in read_questions(data)))
    assert evaluate("--data", data, "--replay", truths, "--out", out, *options) == 0
    return summary_of(out)


# --- scores ---


def test_true_answers_score_100_in_every_task_on_a_synthetic_world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_world(tmp_path / "world", WorldSpec(scenes=4, frames_per_scene=3))
    world = ["--nuscenes", str(tmp_path / "world"), "--version", "v1.0-synthetic", "--describer", "truth"]
    build([*world, "--split", "all", "--out", str(tmp_path / "built")])
    capsys.readouterr()
    summary = replay_truths(tmp_path / "built" / "questions.jsonl", tmp_path / "run")
    assert list(summary["tasks"]) == list(TASKS)
    for figures in (summary, summary["other_scorings"]["paper"]):
        assert (figures["score"], figures["acc_s"], figures["eff_s"]) == (1, 1, 1)
        assert all(task["score"] == 1 and task["valid"] == task["asked"] > 0 for task in figures["tasks"].values())
        assert all(task["floors"]["honest"] < 1 for task in figures["tasks"].values())
    assert (summary["benchmark"], summary["source"], summary["scoring"]) == ("drivemllm", "synthetic", "official")
    told = capsys.readouterr().out
    assert "synthetic world" in told and "GPT-4o (published)" in told
    assert "own prompts, not comparable; other questions, not comparable" in told
    page = (tmp_path / "run" / "report.html").read_text()
    assert "GPT-4o (published)" in page and "data:image/jpeg" in page and "http" not in page


def test_the_main_scoring_is_chosen_and_both_are_there(data: Path, tmp_path: Path) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    official = summary_of(tmp_path / "run")
    assert evaluate(*options, "--resume", "--scoring", "paper") == 0
    paper = summary_of(tmp_path / "run")
    assert (paper["score"], official["score"]) == (
        official["other_scorings"]["paper"]["score"],
        paper["other_scorings"]["official"]["score"],
    )
    assert paper["score"] != official["score"]
    assert paper["tasks"]["left_right"]["score"] == official["tasks"]["left_right"]["score"]
    assert paper["fingerprint"] == official["fingerprint"]


def test_boxes_and_points_are_kept_in_original_pixels_and_a_replay_keeps_frame_and_shots(
    data: Path, tmp_path: Path
) -> None:
    write_rows(
        tmp_path / "outputs.jsonl",
        [
            {"id": "box-0", "output": marked("[100, 500, 200, 1000]")},
            {"id": "xy-0", "output": marked("[500, 500]")},
            {"id": "dz-0", "output": marked("8")},
        ],
    )
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--data", data, "--out"]
    replay = ["--replay", tmp_path / "outputs.jsonl", "--frame", "thousand", "--shots", "5", "--data", data]
    assert evaluate(*replay, "--out", tmp_path / "five") == 2, "five examples need more images with two objects"
    assert evaluate(*replay, "--out", first, "--shots", "0") == 0
    assert evaluate("--replay", first, *options, second) == 0
    rows = {row["id"]: row for row in rows_of(second)}
    assert rows["box-0"]["boxes"] == [{"name": "red car", "bbox": [32, 90, 64, 179]}]
    assert rows["xy-0"]["point"] == [160, 90]
    assert rows["dz-0"]["error"] == 0 and rows["dA-0"]["valid"] is False
    assert (first / "predictions.jsonl").read_bytes() == (second / "predictions.jsonl").read_bytes()
    assert summary_of(second)["prompt_style"] == "0-shot"


def test_token_counts_that_are_not_known_are_no_zeros(data: Path, tmp_path: Path) -> None:
    assert evaluate("--data", data, "--engine", "random", "--out", tmp_path / "run") == 0
    assert summary_of(tmp_path / "run")["mean_tokens"] is None
    assert "– tokens per answer" in (tmp_path / "run" / "report.html").read_text()
    assert replay_truths(data, tmp_path / "counted")["mean_tokens"] == 4
    assert "4.0 tokens per answer" in (tmp_path / "counted" / "report.html").read_text()


def test_model_text_is_escaped_in_the_page(data: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "o.jsonl", ({"id": q.id, "output": "<script>x</script>"} for q in read_questions(data)))
    assert evaluate("--data", data, "--replay", tmp_path / "o.jsonl", "--out", tmp_path / "run") == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script>x" not in page and "&lt;script&gt;x" in page
    assert summary_of(tmp_path / "run")["score"] == 0


def test_a_page_without_images_says_so(data: Path, tmp_path: Path) -> None:
    for image in data.parent.glob("*.png"):
        image.unlink()
    assert evaluate("--data", data, "--engine", "random", "--out", tmp_path / "run") == 0
    assert "image not found: 0" in (tmp_path / "run" / "report.html").read_text()


def test_shots_change_the_prompts_and_are_not_mixed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    assert summary_of(tmp_path / "run")["prompt_style"] == "1-shot"
    assert evaluate(*options, "--resume", "--shots", "0") == 2
    assert "prompts: 1-shot" in capsys.readouterr().err


# --- resume ---


@pytest.mark.parametrize("cut", [1, 300, 2000])
def test_a_killed_run_resumes_to_the_same_files_and_asks_nothing_twice(
    cut: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--data", data, "--engine", "random"]
    check_resumed_after_a_cut(main, options, tmp_path / "run", RandomAnswers, cut, monkeypatch)


def test_a_limit_counts_units_of_every_task(data: Path, tmp_path: Path) -> None:
    assert evaluate("--data", data, "--engine", "random", "--limit", "2", "--out", tmp_path / "run") == 0
    asked = {task: figures["asked"] for task, figures in summary_of(tmp_path / "run")["tasks"].items()}
    assert asked == dict.fromkeys(TASKS, 2) | {"left_right": 4, "front_behind": 4}


def test_the_tiny_model_is_scored_from_the_command_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--ckpt", "tiny", "--limit", "1", "--max-new-tokens", "8", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    assert "! tiny model" in capsys.readouterr().out
    summary = summary_of(tmp_path / "run")
    assert (summary["questions"], summary["tiny"], len(rows_of(tmp_path / "run"))) == (10, True, 10)


@pytest.mark.parametrize("broken", [False, True], ids=["missing", "unreadable"])
def test_questions_about_a_skipped_image_stay_in_the_denominator(
    broken: bool, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = replay_truths(data, tmp_path / "all")
    lost = data.parent / "001.png"
    lost.write_text("no picture") if broken else lost.unlink()
    options = ["--data", data, "--ckpt", "tiny", "--shots", 0, "--max-new-tokens", 4, "--out", tmp_path / "run"]
    assert evaluate(*options) == 2 and "001.png" in capsys.readouterr().err, "found before anything is asked"
    assert not (tmp_path / "run").exists()
    assert evaluate(*options, "--on-missing", "skip") == 0
    assert "1 of 8 images cannot be shown" in capsys.readouterr().err
    about_lost = {question.id for question in read_questions(data) if question.image == lost.name}
    rows = {row["id"]: row for row in rows_of(tmp_path / "run")}
    assert {name for name, row in rows.items() if row["output"] == ""} == about_lost
    assert all(rows[name]["reasons"] == ["no_answer"] for name in about_lost)
    asked = {task: figures["asked"] for task, figures in summary_of(tmp_path / "run")["tasks"].items()}
    assert asked == {task: figures["asked"] for task, figures in everything["tasks"].items()}
    assert "image not found" in (tmp_path / "run" / "report.html").read_text()


# --- bad input ---


def test_an_image_of_extreme_shape_is_found_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strip = QuestionObject("red car", (5, 1, 20, 9), (12, 5), (0.0, 1.0, 8.0))
    for folder, width in (("fits", 2000), ("strip", 2010)):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (width, 10)).save(tmp_path / folder / "0.png")
        rows = published_questions([DriveMLLMImage("0.png", (strip,), width, 10)])
        write_rows(tmp_path / folder / "questions.jsonl", map(question_to_row, rows))
        options = ["--data", tmp_path / folder, "--images", tmp_path / folder, "--ckpt", "not/loaded"]
        assert evaluate(*options, "--shots", 0, "--out", tmp_path / "run") == 2
        told = capsys.readouterr().err
        assert ("0.png is 2010x10 pixels, longer than 200 times its width; crop it" in told) == (width == 2010), told
        assert ("the checkpoint not/loaded cannot be loaded" in told) == (width == 2000), told


BAD_INPUT: dict[str, tuple[Sequence[str], str]] = {
    "no data": ([], "python data_gen/build_drivemllm.py"),
    "no model": (["--data", "{data}"], "give --ckpt"),
    "SURDS questions": (
        ["--data", "{surds}", "--engine", "random"],
        "a question of SURDS, not of DriveMLLM; score it with: python eval/surds.py --data",
    ),
    "a folder of SURDS": (["--data", "{surds.parent}", "--engine", "random"], "python eval/surds.py --data"),
    "a style of SURDS": (["--data", "{data}", "--engine", "random", "--prompt-style", "direct"], "choose --shots"),
    "other outputs": (["--data", "{data}", "--replay", "{other}"], "no stored output has the id"),
    "too many shots": (["--data", "{data}", "--engine", "random", "--shots", "5"], "use --shots 0"),
    "missing image": (["--data", "{data}", "--ckpt", "not/loaded"], "003.png"),
    "empty file": (["--data", "{empty}", "--engine", "random"], "holds no question"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_with_2_and_the_remedy(
    case: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data.parent / "003.png").unlink()
    paths = {
        "data": data,
        "surds": write_small_set(tmp_path / "surds"),
        "other": tmp_path / "other.jsonl",
        "empty": tmp_path / "empty.jsonl",
    }
    paths["other"].write_text('{"id": "x", "output": ""}\n')
    paths["empty"].write_text("")
    options, message = BAD_INPUT[case]
    assert evaluate("--out", tmp_path / "run", *(option.format(**paths) for option in options)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_drivemllm_questions_are_refused_by_surds(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from eval.surds import main as surds

    assert surds(["--data", str(data), "--engine", "random", "--out", str(tmp_path / "run")]) == 2
    told = "questions.jsonl, line 1: a question of DriveMLLM, not of SURDS; score it with: python eval/drivemllm.py"
    assert told in capsys.readouterr().err


def test_an_unknown_number_of_shots_lists_the_known(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        evaluate("--data", data, "--engine", "random", "--shots", "3")
    assert stop.value.code == 2
    assert "0" in (told := capsys.readouterr().err) and "5" in told


def test_the_configuration_that_a_run_leaves_repeats_it(data: Path, tmp_path: Path) -> None:
    assert evaluate("--data", data, "--engine", "random", "--shots", "0", "--out", tmp_path / "run") == 0
    before = rows_of(tmp_path / "run")
    shutil.copy(tmp_path / "run" / "config.yaml", tmp_path / "again.yaml")
    assert evaluate("--config", tmp_path / "again.yaml", "--out", tmp_path / "second") == 0
    assert rows_of(tmp_path / "second") == before
