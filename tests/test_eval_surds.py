"""The evaluation command: parity, resume, refusal to mix, bad input."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from shared import json_lines, need
from small_questions import perfect_output, write_small_set
from test_templates import write_templates

from data_gen.questions import published_units, questions_of
from data_gen.records import question_to_row, read_questions, write_rows
from data_gen.scene_records import read_scenes
from data_gen.templates import read_templates
from eval.engines import RandomEngine
from eval.published import published_beside, published_rows
from eval.runner import digest as text_digest
from eval.surds import main
from rewards.grading import TASKS

PUBLIC_NAMES = {"pixel": "xy2d"}


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def lines_of(folder: Path) -> list[str]:
    return (folder / "predictions.jsonl").read_text().splitlines()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


@pytest.mark.parametrize(
    ("scoring", "file"), [("official", "expected_scores.json"), ("strict", "expected_scores_strict.json")]
)
def test_replayed_parity_outputs_give_the_expected_scores(scoring: str, file: str, tmp_path: Path) -> None:
    expected = json.loads(need(f"parity/{file}").read_text())
    units = published_units(read_scenes(need("parity/metadata.jsonl")))
    rows = [question_to_row(q) for unit in units for q in questions_of(unit, source="metadata")]
    write_rows(tmp_path / "questions.jsonl", rows)
    outputs = [
        {"id": f"{row['unit'].replace('xy2d', 'pixel')}-{row['variant']}", "output": row["output"]}
        for row in json_lines("parity/predictions.jsonl")
    ]
    write_rows(tmp_path / "outputs.jsonl", outputs)
    out = tmp_path / "run"
    data = tmp_path / "questions.jsonl"
    assert evaluate("--data", data, "--replay", tmp_path / "outputs.jsonl", "--scoring", scoring, "--out", out) == 0
    summary = summary_of(out)
    assert summary["score"] == pytest.approx(expected["overall"], abs=1e-12)
    for task, figures in summary["tasks"].items():
        for name, value in expected[PUBLIC_NAMES.get(task, task)].items():
            assert figures[name] == pytest.approx(value, abs=1e-12), (task, name)
    assert list(summary["other_scorings"]) == [{"official": "strict", "strict": "official"}[scoring]]


def test_the_run_folder_holds_what_a_reader_needs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = read_questions(data)
    write_rows(tmp_path / "best.jsonl", ({"id": q.id, "output": perfect_output(q), "tokens": 9} for q in questions))
    assert (
        evaluate("--data", data, "--replay", tmp_path / "best.jsonl", "--out", tmp_path / "run", "--label", "best") == 0
    )
    summary = summary_of(tmp_path / "run")
    assert (summary["score"], summary["label"], summary["mean_tokens"]) == (pytest.approx(1), "best", 9)
    assert (summary["benchmark"], summary["source"], summary["scoring_version"]) == ("surds-fair", "synthetic", 1)
    assert {"units", "valid_rate", "valid_accuracy", "single_question", "ci95", "floors"} <= set(
        summary["tasks"]["yaw"]
    )
    rows = [json.loads(line) for line in lines_of(tmp_path / "run")]
    assert [row["id"] for row in rows] == [question.id for question in questions]
    assert rows[0]["boxes"] == [{"name": questions[0].objects[0].name, "bbox": list(questions[0].objects[0].bbox)}]
    assert rows[0]["score"] == {"strict": 1.0, "official": 1.0}
    assert "synthetic world" in capsys.readouterr().out
    assert "synthetic world" in (tmp_path / "run" / "report.html").read_text()


def test_boxes_are_kept_in_original_pixels_and_a_replay_keeps_frame_and_style(data: Path, tmp_path: Path) -> None:
    question = next(question for question in read_questions(data) if question.task == "pixel")
    output = "<location>car: [500, 250, 1000, 500]</location><think>t</think><answer>[500, 500]</answer>"
    write_rows(tmp_path / "outputs.jsonl", [{"id": question.id, "output": output}])
    first, second = tmp_path / "first", tmp_path / "second"
    evaluate("--data", data, "--replay", tmp_path / "outputs.jsonl", "--frame", "thousand", "--out", first)
    evaluate("--data", data, "--replay", first, "--out", second)
    row = next(json.loads(line) for line in lines_of(second) if json.loads(line)["id"] == question.id)
    assert row["boxes"] == [{"name": "car", "bbox": [80, 24, 160, 48]}]
    assert (first / "predictions.jsonl").read_bytes() == (second / "predictions.jsonl").read_bytes()


SLOW_RUN = """
import sys, time
from eval.engines import RandomEngine
from eval.published import published_beside, published_rows
from eval.runner import digest as text_digest
from eval.surds import main
from rewards.grading import TASKS

replies = RandomEngine.replies

def slow(self, requests, done=()):
    for reply in replies(self, requests, done):
        if any(request.prompt for request in requests):
            with open(sys.argv[1], "a") as asked:
                asked.write(reply.id + "\\n")
            time.sleep(0.02)
        yield reply

RandomEngine.replies = slow
sys.exit(main(sys.argv[2:]))
"""


def kill_after(lines: int, command: list[str], predictions: Path) -> None:
    """Start a run and kill it as soon as so many predictions are on disk."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not predictions.is_file() or predictions.read_bytes().count(b"\n") < lines:
        assert process.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_run_killed_twice_equals_an_uninterrupted_one_and_asks_only_what_was_not_written(
    data: Path, tmp_path: Path
) -> None:
    options = ["--data", str(data), "--engine", "random", "--label", "random"]
    assert evaluate(*options, "--out", tmp_path / "whole") == 0
    asked, out = tmp_path / "asked.txt", tmp_path / "run"
    command = [sys.executable, "-c", SLOW_RUN, str(asked), *options, "--out", str(out)]
    predictions = out / "predictions.jsonl"
    kill_after(10, command, predictions)
    assert not (out / "summary.json").exists()
    first = predictions.read_bytes().count(b"\n")
    kill_after(first + 10, [*command, "--resume"], predictions)
    second = predictions.read_bytes().count(b"\n")
    assert second < len(lines_of(tmp_path / "whole"))
    assert subprocess.run([*command, "--resume"], capture_output=True, timeout=60).returncode == 0
    for name in ("predictions.jsonl", "summary.json"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    # A kill between an answer and its line costs that one answer; what is written is never asked again.
    counts = Counter(asked.read_text().split())
    assert sum(counts.values()) - len(counts) <= 2 and len(counts) == len(lines_of(out))


@pytest.mark.parametrize("cut", [1, 40, 700, 2000])
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
    replies = RandomEngine.replies

    def counted(self: RandomEngine, requests: Any, done: Any = ()) -> Any:
        of_the_run = any(request.prompt for request in requests)  # and not of the random floor
        for reply in replies(self, requests, done):
            asked.extend([reply.id] * of_the_run)
            yield reply

    monkeypatch.setattr(RandomEngine, "replies", counted)
    assert evaluate(*options) == 2, "a folder that is not empty needs --resume"
    assert evaluate(*options, "--resume") == 0
    assert (predictions.read_bytes(), summary.read_bytes()) == (whole, scores)
    assert len(asked) == len(set(asked)) == whole.count(b"\n") - kept


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (["--seed", "1"], "model: random, seed 0 there, random, seed 1 now"),
        (["--prompt-style", "direct"], "prompts: located"),
        (["--frame", "thousand"], "frame: "),
        (["--limit", "2"], "questions: "),
    ],
)
def test_another_model_prompt_or_data_is_not_mixed_in(
    change: list[str], named: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    before = lines_of(tmp_path / "run")
    assert evaluate(*options, "--resume", *change) == 2
    assert named in capsys.readouterr().err
    assert lines_of(tmp_path / "run") == before
    assert evaluate(*options, "--overwrite", *change) == 0


def test_another_scoring_of_the_same_run_is_no_other_run(data: Path, tmp_path: Path) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    assert evaluate(*options, "--resume", "--scoring", "official") == 0
    assert summary_of(tmp_path / "run")["scoring"] == "official"


def test_a_limit_counts_units_of_every_task(data: Path, tmp_path: Path) -> None:
    assert evaluate("--data", data, "--engine", "random", "--limit", "2", "--out", tmp_path / "run") == 0
    assert {figures["units"] for figures in summary_of(tmp_path / "run")["tasks"].values()} == {2}


def test_official_templates_are_asked_and_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_templates(tmp_path / "templates")
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    assert evaluate("--data", data, "--engine", "random", "--out", own) == 0
    assert capsys.readouterr().out.count("published; own prompts, not comparable") == len(published_rows())
    assert evaluate("--data", data, "--engine", "random", "--prompts", folder, "--out", theirs) == 0
    printed = capsys.readouterr().out
    assert "own prompts" not in printed and "published; synthetic world, not comparable" in printed
    summaries, facts = summary_of(theirs), json.loads((theirs / "run.json").read_text())
    digest = read_templates(folder).digest[:16]
    assert summaries["prompts"] == facts["prompts"] == f"templates {digest}"
    assert (summary_of(own)["prompts"], summary_of(own)["prompt_style"]) == ("own", "located")
    assert summaries["prompt_style"] == "reasoning", "what the templates ask for"
    prompts = [json.loads(lines_of(folder)[0])["prompt"] for folder in (own, theirs)]
    assert prompts[0] != prompts[1] == text_digest(read_templates(folder).prompt(read_questions(data)[0]))
    assert evaluate("--data", data, "--engine", "random", "--out", theirs, "--resume") == 2
    assert "prompts: " in capsys.readouterr().err
    assert evaluate("--data", data, "--engine", "random", "--prompts", tmp_path / "none", "--out", theirs) == 2
    assert "no folder of templates" in capsys.readouterr().err


def test_prompts_inside_a_question_file_count_as_templates(data: Path, tmp_path: Path) -> None:
    templates = read_templates(write_templates(tmp_path / "templates"))
    filled = [question_to_row(templates.fill(question)) for question in read_questions(data)]
    write_rows(data, filled)
    assert evaluate("--data", data, "--engine", "random", "--out", tmp_path / "run") == 0
    assert summary_of(tmp_path / "run")["prompts"].startswith("templates of the question file ")
    write_rows(data, [row | {"prompt": ""} if row["task"] == "yaw" else row for row in filled])
    assert evaluate("--data", data, "--engine", "random", "--out", tmp_path / "some") == 0
    assert summary_of(tmp_path / "some")["prompts"].startswith("own and templates of the question file ")
    assert "own prompts" in summary_of(tmp_path / "some")["published"]["caveats"]


def test_published_rows_are_those_of_the_paper() -> None:
    tables = json.loads(need("tables/surds.json").read_text())
    expected = {
        (re.sub(r"\s\[\d+\]", "", row["model"]), number): {name: row[name] / 100 for name in (*TASKS, "score")}
        for number in (2, 4)
        for row in tables[f"table{number}"]
    }
    shown = {(row.model, number): row.scores for row in published_rows() for number in row.tables}
    assert shown == expected


@pytest.mark.parametrize(
    ("terms", "caveats"),
    [
        (("templates 0", "metadata", "surds", 925), ()),
        (("official (published outputs)", "metadata", "surds", 925), ()),
        (("own", "metadata", "surds", 925), ("own prompts",)),
        (("unknown (lmms-eval outputs)", "real", "surds", 925), ("unknown prompts",)),
        (("templates 0", "synthetic", "surds", 925), ("synthetic world",)),
        (("templates 0", "real", "surds-fair", 925), ("other depth ranges",)),
        (("templates 0", "real", "surds", 924), ("not the 925 units of every task",)),
    ],
)
def test_what_keeps_a_run_from_the_published_rows(terms: tuple[str, str, str, int], caveats: tuple[str, ...]) -> None:
    prompts, source, benchmark, units = terms
    assert published_beside(prompts, source, benchmark, dict.fromkeys(TASKS, units)).caveats == caveats


def test_no_interval_claims_certainty(data: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "none.jsonl", ({"id": q.id, "output": ""} for q in read_questions(data)))
    assert evaluate("--data", data, "--replay", tmp_path / "none.jsonl", "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    assert all(figures["ci95"] == [0, pytest.approx(0.3930, abs=1e-4)] for figures in summary["tasks"].values())
    assert summary["ci95"] == [0, pytest.approx(0.3930, abs=1e-4)]


def test_floors_of_every_kind_stand_beside_the_scores(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("--data", data, "--engine", "random", "--seed", "5", "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    floors = {task: set(figures["floors"]) for task, figures in summary["tasks"].items()}
    always = {"independent", "random_run", "honest"}
    constants = {"constant_position", "constant_text"}
    assert floors["pixel"] == always | {"constant_point"}
    assert floors["depth"] == always | constants | {"widest_option", "best_rank"}
    assert floors["yaw"] == floors["distance"] == always | constants | {"self_consistent"}
    assert all(figures["score"] == figures["floors"]["random_run"] for figures in summary["tasks"].values())
    printed = capsys.readouterr().out
    assert re.search(r"depth: constant position [\d.]+, constant text [\d.]+, widest range [\d.]+, best of", printed)


BAD_INPUT = {
    "no data": ([], "python data_gen/build_surds.py"),
    "no file": (["--data", "{tmp}/none.jsonl"], "none.jsonl; build one with: python data_gen/build_surds.py"),
    "no model": (["--data", "{data}"], "give --ckpt"),
    "no replay": (["--data", "{data}", "--replay", "{tmp}/none"], "no predictions at"),
    "no checkpoint": (["--data", "{data}", "--ckpt", "{tmp}/none"], "no checkpoint"),
    "no weights": (["--data", "{data}", "--ckpt", "{tmp}/empty"], "empty cannot be loaded"),
    "other outputs": (["--data", "{data}", "--replay", "{tmp}/other.jsonl"], "no stored output has the id"),
    "another benchmark": (["--data", "{tmp}/drivemllm.jsonl", "--engine", "random"], "question of DriveMLLM"),
    "multiple choice": (["--data", "{tmp}/cycling.jsonl", "--engine", "random"], "line 1: "),
    "unknown task": (["--data", "{tmp}/task.jsonl", "--engine", "random"], "unknown task 'height'; known: yaw, pixel"),
    "empty file": (["--data", "{tmp}/nothing.jsonl", "--engine", "random"], "holds no question; build some with"),
    "no JSON": (["--data", "{tmp}/text.jsonl", "--engine", "random"], "line 1: no JSON"),
    "no templates": (["--data", "{data}", "--engine", "random", "--prompts", "{tmp}"], "one template for the task yaw"),
    "bad number": (["--data", "{data}", "--engine", "random", "--limit", "0"], "--limit must be at least 1"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_with_2_and_the_remedy(
    case: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"id": "x", "output": ""}\n')
    row = question_to_row(read_questions(data)[0])
    for name, other in {
        "drivemllm": row | {"paper_task": "RHD"},
        "cycling": {"task": "TSG", "images": ["a.jpg"], "question": "?", "choices": ["x", "y"], "answer": "A"},
        "task": row | {"task": "height"},
    }.items():
        write_rows(tmp_path / f"{name}.jsonl", [other])
    (tmp_path / "nothing.jsonl").write_text("\n")
    (tmp_path / "text.jsonl").write_text("some text\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    options, message = BAD_INPUT[case]
    assert evaluate(*(option.format(tmp=tmp_path, data=data) for option in options)) == 2
    assert message in capsys.readouterr().err


def test_a_missing_image_is_named_before_a_model_loads(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data.parent / "003.png").unlink()
    assert evaluate("--data", data, "--ckpt", "not/loaded", "--out", tmp_path / "run") == 2
    assert "003.png" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_yaml_file_sets_options_and_the_command_line_wins(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "eval.yaml"
    config.write_text(f"data: {data}\nengine: random\nlimit: 1\nscoring: official\nlabel: 7\n")
    assert evaluate("--config", config, "--limit", "3", "--out", tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    assert (summary["scoring"], summary["label"], summary["tasks"]["yaw"]["units"]) == ("official", "7", 3)
    assert evaluate("--config", tmp_path / "run" / "config.yaml", "--resume") == 0
    assert summary_of(tmp_path / "run") == summary


def test_an_unknown_scoring_lists_the_known_ones(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        evaluate("--data", data, "--engine", "random", "--scoring", "lenient")
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert "lenient" in printed and "strict" in printed and "official" in printed


@pytest.mark.parametrize(
    ("line", "named"),
    [("nonsense: 1", "--nonsense=1"), ("limit: many", "--limit"), ("engine: parrot", "parrot"), ("- x", "got list")],
)
def test_a_bad_yaml_line_fails(
    line: str, named: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "eval.yaml"
    config.write_text(line + "\n")
    with pytest.raises(SystemExit) as stop:
        evaluate("--config", config, "--data", data, "--engine", "random", "--out", tmp_path / "run")
    assert stop.value.code == 2
    assert named in capsys.readouterr().err


def test_a_broken_line_inside_the_predictions_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run"]
    assert evaluate(*options) == 0
    lines = lines_of(tmp_path / "run")
    (tmp_path / "run" / "predictions.jsonl").write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n")
    assert evaluate(*options, "--resume") == 2
    assert "predictions.jsonl, line 2" in capsys.readouterr().err
