"""The options of the SURDS evaluation: bad input, its YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest
from eval_runs import summary_of
from small_questions import write_small_set

from data_gen.records import question_to_row, read_questions, write_rows
from eval.surds import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


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
    "a folder of items": (["--data", "{tmp}/items", "--engine", "random"], "python eval/cyclingvqa.py --data"),
    "unknown task": (["--data", "{tmp}/task.jsonl", "--engine", "random"], "unknown task 'height'; known: yaw, pixel"),
    "empty file": (["--data", "{tmp}/nothing.jsonl", "--engine", "random"], "holds no question; build some with"),
    "no JSON": (["--data", "{tmp}/text.jsonl", "--engine", "random"], "line 1: no JSON"),
    "no templates": (["--data", "{data}", "--engine", "random", "--prompts", "{tmp}"], "one template for the task yaw"),
    "samples alike": (["--data", "{data}", "--ckpt", "tiny", "--samples", "4"], "give --temperature 1.0"),
    "no samples": (["--data", "{data}", "--ckpt", "tiny", "--samples", "0"], "--samples must be at least 1"),
    "cold": (["--data", "{data}", "--ckpt", "tiny", "--temperature", "-1"], "--temperature must be 0 (greedy) or more"),
    "sampled guesses": (["--data", "{data}", "--engine", "random", "--temperature", "1"], "with the engine random"),
    "sampled replay": (["--data", "{data}", "--replay", "{tmp}", "--temperature", "1"], "with the engine replay"),
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
        "items/items": {"task": "TSG", "images": ["a.jpg"], "question": "?", "choices": ["x", "y"], "answer": "A"},
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
