"""The DriveMLLM evaluation command: true answers, shots, replay, resume, pictures, bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_questions import write_small_set

from data_gen.build_drivemllm import main as build
from data_gen.drivemllm.prompts import ANSWER_END, ANSWER_START, marked, prompt_text
from data_gen.drivemllm.questions import published_questions
from data_gen.drivemllm.records import (
    KINDS,
    TASKS,
    DriveMLLMImage,
    DriveMLLMQuestion,
    image_to_row,
    question_to_row,
    read_images,
    read_questions,
)
from data_gen.drivemllm.shots import draw_shots, worked_example
from data_gen.records import QuestionObject, RecordError, write_rows
from data_gen.synthetic import WorldSpec, write_world
from eval.drivemllm import main
from eval.drivemllm_random import RandomAnswers
from rewards.boxes import CoordinateFrame

SIZE = (320, 180)
THOUSAND = CoordinateFrame("thousand")


def small_set(folder: Path, images: int = 8) -> Path:
    """Images of coloured rectangles (odd ones with two objects), metadata.jsonl, questions.jsonl and manifest.json."""
    folder.mkdir(parents=True)
    records = []
    for index in range(images):
        objects = [_thing("red car", 30 + 3 * index, 8.0 + index), _thing("blue bus", 180 + 5 * index, 15.0 - index)]
        records.append(DriveMLLMImage(f"{index:03d}.png", tuple(objects[: 1 + index % 2]), *SIZE))
        Image.new("RGB", SIZE, "gray").save(folder / records[-1].file_name)
    (folder / "manifest.json").write_text(json.dumps({"image_root": ".", "source": "synthetic"}))
    write_rows(folder / "metadata.jsonl", map(image_to_row, records))
    write_rows(folder / "questions.jsonl", map(question_to_row, published_questions(records, source="synthetic")))
    return folder / "questions.jsonl"


def _thing(name: str, x_px: float, depth_m: float) -> QuestionObject:
    return QuestionObject(name, (x_px - 20, 80, x_px + 20, 120), (x_px, 100), (x_px / 50, 1.0, depth_m))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


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


# --- worked examples ---


def test_examples_are_of_the_same_kind_and_never_about_the_asked_image(data: Path) -> None:
    questions = [question for question in read_questions(data) if KINDS[question.kind].objects == 1]
    drawn = draw_shots(questions, questions, 5, seed=3)
    for question in questions:
        shots = drawn[question.id]
        assert len({shot.image for shot in shots} - {question.image}) == 5
        assert {shot.kind for shot in shots} == {question.kind}
    alone = draw_shots(questions[:1], questions, 5, seed=3)
    assert alone[questions[0].id] == drawn[questions[0].id], "the same whatever else is asked"
    assert draw_shots(questions, questions, 5, seed=4) != drawn
    assert set(map(len, draw_shots(questions, questions, 0, seed=3).values())) == {0}


def test_too_few_other_images_are_refused(data: Path) -> None:
    questions = [question for question in read_questions(data) if question.kind == "dx"]
    assert draw_shots(questions[:1], questions, 3, seed=0)
    with pytest.raises(RecordError, match=r"4 examples for a question of kind dx .* the file has 3; use --shots 0"):
        draw_shots(questions[:1], questions, 4, seed=0)


def test_examples_show_the_form_and_the_frame_of_the_run(data: Path) -> None:
    by_kind: dict[str, DriveMLLMQuestion] = {question.kind: question for question in read_questions(data)}
    for kind, question in by_kind.items():
        shown, answer = worked_example(question, THOUSAND)
        assert shown == question.question
        if kind == "xy":
            assert isinstance(question.answer, tuple)
            assert answer == f"[{round(question.answer[0] / 0.32)}, {round(question.answer[1] / 0.18)}]"
        elif isinstance(question.answer, float):
            assert float(answer) == pytest.approx(question.answer, abs=0.051)
        text = prompt_text(kind, question.question, THOUSAND, SIZE, [(shown, answer)] * 5)
        assert text.count(ANSWER_START) == text.count(ANSWER_END) == 6
        assert text.count(marked(answer)) == 5
        assert text.endswith(prompt_text(kind, question.question, THOUSAND, SIZE))


def test_shots_change_the_prompts_and_are_not_mixed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    assert summary_of(tmp_path / "run")["prompt_style"] == "1-shot"
    assert evaluate(*options, "--resume", "--shots", "0") == 2
    assert "prompts: 1-shot" in capsys.readouterr().err


# --- the published code's folders ---


def published_folder(data: Path, folder: Path, outputs: dict[str, str]) -> Path:
    """What the published code writes: per kind a file of rows, and which objects were named; objects in file order."""
    images = read_images(data.parent / "metadata.jsonl")
    folder.mkdir(parents=True)
    samples = []
    for place, (kind, facts) in enumerate(KINDS.items(), 1):
        asked = [index for index, image in enumerate(images) if len(image.objects) >= facts.objects]
        rows = [{"dataset_index": index, "output": outputs[kind]} for index in asked]
        (folder / f"{place:02d}_{kind}_qa.json").write_text(json.dumps(rows))
        named = [list(range(facts.objects)) if index in asked else None for index in range(len(images))]
        samples.append([{"inference_sample_index": item} for item in named])
    (folder / "inference_sample_index.json").write_text(json.dumps(samples))
    return folder


CONSTANT = {
    "xy": "[30, 100]", "box": "[10, 80, 50, 120]", "left": "the red car", "right": "blue bus", "front": "Yes",
    "behind": "No", "dA": "8", "dz": "8", "dAB": "nan", "dx": "3",
}  # fmt: skip


def test_a_published_folder_is_scored_on_the_questions_it_asked(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = {kind: marked(answer) for kind, answer in CONSTANT.items()}
    folder = published_folder(data, tmp_path / "model" / "03_five_shot", outputs)
    assert evaluate("--data", data, "--replay", folder, "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    tasks = summary["tasks"]
    assert tasks["left_right"]["score"] == 1, "the named objects are those of the folder, in its order"
    # Depths of 8 + i for the car and 15 - i for the bus in odd images i: the car is nearer where i is 1 or 3.
    assert tasks["front_behind"]["accuracy"] == 0.5
    assert tasks["depth"]["accuracy"] == pytest.approx(1 / (1 + 0.05 * 3.5))  # errors of 0 to 7 m
    assert tasks["object_distance"]["efficiency"] == 0
    assert (summary["label"], summary["prompt_style"]) == ("replay-model-03_five_shot", "5-shot")
    assert "own prompts" not in capsys.readouterr().out
    assert summary["prompts"] == "official (published outputs)"
    assert evaluate("--data", data, "--replay", tmp_path / "run", "--out", tmp_path / "again") == 2
    assert f"replay {folder}" in capsys.readouterr().err, "the run asked about other objects than the question file"
    first = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    assert evaluate("--data", data, "--replay", folder, "--out", tmp_path / "run", "--resume") == 0
    assert (tmp_path / "run" / "predictions.jsonl").read_bytes() == first


def test_a_published_folder_about_other_images_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = published_folder(data, tmp_path / "02_one_shot", dict.fromkeys(KINDS, ""))
    other = small_set(tmp_path / "other", images=6)
    options = ["--replay", folder, "--out", tmp_path / "run", "--data"]
    assert evaluate(*options, other) == 2
    assert "is about 8 images, the metadata beside the questions has 6" in capsys.readouterr().err
    (folder / "10_dx_qa.json").unlink()
    assert evaluate(*options, data) == 2
    assert "has 9 output files" in capsys.readouterr().err
    (data.parent / "metadata.jsonl").unlink()
    assert evaluate(*options, data) == 2
    assert "metadata.jsonl" in capsys.readouterr().err


def test_a_broken_published_file_is_named(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = published_folder(data, tmp_path / "02_one_shot", dict.fromkeys(KINDS, ""))
    (folder / "03_left_qa.json").write_text('[{"dataset_index": 1}]')
    assert evaluate("--replay", folder, "--data", data, "--out", tmp_path / "run") == 2
    assert "03_left_qa.json" in capsys.readouterr().err


# --- resume ---


@pytest.mark.parametrize("cut", [1, 300, 2000])
def test_a_killed_run_resumes_to_the_same_files_and_asks_nothing_twice(
    cut: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    predictions, summary = tmp_path / "run" / "predictions.jsonl", tmp_path / "run" / "summary.json"
    whole, scores = predictions.read_bytes(), summary.read_bytes()
    predictions.write_bytes(whole[:-cut])
    kept = whole[:-cut].count(b"\n")
    summary.unlink()
    asked: list[str] = []
    replies = RandomAnswers.replies

    def counted(self: RandomAnswers, requests: Any, done: Any = ()) -> Any:
        for reply in replies(self, requests, done):
            asked.append(reply.id)
            yield reply

    monkeypatch.setattr(RandomAnswers, "replies", counted)
    assert evaluate(*options) == 2, "a folder that is not empty needs --resume"
    assert evaluate(*options, "--resume") == 0
    assert (predictions.read_bytes(), summary.read_bytes()) == (whole, scores)
    assert len(asked) == len(set(asked)) == whole.count(b"\n") - kept


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


# --- bad input ---

BAD_INPUT: dict[str, tuple[Sequence[str], str]] = {
    "no data": ([], "python data_gen/build_drivemllm.py"),
    "no model": (["--data", "{data}"], "give --ckpt"),
    "SURDS questions": (
        ["--data", "{surds}", "--engine", "random"],
        "holds no DriveMLLM questions (SURDS questions go to eval/surds.py)",
    ),
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
    assert "questions.jsonl, line 1" in capsys.readouterr().err


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
