"""The evaluation on CyclingVQA: runs, the judge, resume, two images, ranking, bad input."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, serve, text_of
from eval_runs import check_resumed_after_a_cut, rows_of, summary_of
from PIL import Image
from small_drivemllm import small_set
from small_questions import write_small_set

from data_gen.build_cyclingvqa import main as build
from data_gen.cycling.records import TASKS, item_to_row, read_items
from data_gen.records import write_rows
from eval.cyclingvqa import main
from eval.engines import RandomEngine


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cycling") / "sample"
    build(["--sample", "--out", str(out)])
    return out


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


def write_outputs(path: Path, outputs: dict[str, str], tokens: int = 3) -> Path:
    write_rows(path, ({"id": name, "output": text, "tokens": tokens} for name, text in outputs.items()))
    return path


# Runs


def test_perfect_answers_score_everything_whether_letter_or_text(data: Path, tmp_path: Path) -> None:
    items = read_items(data)
    texts = {item.id: item.answer if n % 3 else f"The answer is {item.answer_text}." for n, item in enumerate(items)}
    outputs = write_outputs(tmp_path / "best.jsonl", texts)
    assert evaluate("--data", data, "--replay", outputs, "--out", tmp_path / "run", "--label", "best") == 0
    summary = summary_of(tmp_path / "run")
    assert (summary["score"], summary["micro"], summary["valid_rate"], summary["mean_tokens"]) == (1, 1, 1, 3)
    assert (summary["benchmark"], summary["source"], list(summary["tasks"])) == ("cyclingvqa", "synthetic", list(TASKS))
    rows = rows_of(tmp_path / "run")
    assert [row["id"] for row in rows] == [item.id for item in items]
    assert {"id", "prompt", "output", "choice", "how", "score", "tokens"} == set(rows[0])


def test_the_page_is_whole_escaped_and_says_what_the_numbers_are(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = {item.id: "<script>alert(1)</script> A" for item in read_items(data)}
    given = write_outputs(tmp_path / "o.jsonl", outputs)
    assert evaluate("--data", data, "--replay", given, "--out", tmp_path / "run") == 0
    page, told = (tmp_path / "run" / "report.html").read_text(), capsys.readouterr().out
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page and "image not found" not in page
    for text in (page, told):
        assert "synthetic world" in text and "own items, prompts and parser" in text.replace("&#39;", "'")
        assert "Qwen3-VL 8B Instruct 11/2025 (published)" in text and "--judge" in text
    assert "http" not in page


def test_token_counts_that_are_not_known_are_no_zeros(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tokens are counted by some engines only; a skipped image costs none and is no short answer."""
    items = read_items(data)
    counted = [{"id": item.id, "output": "A", "tokens": 8} for item in items if item.task != "TSG"]
    write_rows(tmp_path / "o.jsonl", [*counted, *({"id": i.id, "output": "A"} for i in items if i.task == "TSG")])
    for out, options, whole, of_task in (
        ("guesses", ["--engine", "random"], None, None),
        ("some", ["--replay", tmp_path / "o.jsonl"], 8, None),
    ):
        assert evaluate("--data", data, *options, "--out", tmp_path / out) == 0
        summary, shown = summary_of(tmp_path / out), "8.0" if whole else "–"
        assert (summary["mean_tokens"], summary["tasks"]["TSG"]["mean_tokens"]) == (whole, of_task)
        assert f"{shown} tokens per answer" in (tmp_path / out / "report.html").read_text()
        row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("TSG "))
        assert row.split()[-1] == "–"


def test_a_constant_answer_is_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = write_outputs(tmp_path / "o.jsonl", {item.id: "A" for item in read_items(data)})
    assert evaluate("--data", data, "--replay", given, "--out", tmp_path / "run") == 0
    assert "TO: A is the answer to all 4 items" in capsys.readouterr().out
    tasks = summary_of(tmp_path / "run")["tasks"]
    assert all(tasks[task]["score"] <= tasks[task]["floors"]["constant_letter"] for task in TASKS)


@pytest.mark.parametrize("cut", [1, 40, 700])
def test_a_killed_run_resumes_to_the_same_files_and_asks_nothing_twice(
    cut: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--data", data, "--engine", "random"]
    check_resumed_after_a_cut(main, options, tmp_path / "run", RandomEngine, cut, monkeypatch)


def test_another_style_is_another_run_and_a_replay_keeps_its_style(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--engine", "random", "--out", tmp_path / "run", "--prompt-style", "cot"]
    assert evaluate(*options) == 0
    assert evaluate(*options[:-1], "reasoning", "--resume") == 2
    assert "runs are not mixed" in capsys.readouterr().err
    assert evaluate("--data", data, "--replay", tmp_path / "run", "--out", tmp_path / "again") == 0
    assert summary_of(tmp_path / "again")["prompt_style"] == "cot"
    assert rows_of(tmp_path / "again") == rows_of(tmp_path / "run")


def test_the_tiny_model_sees_one_or_two_images_and_a_missing_one_can_be_skipped(data: Path, tmp_path: Path) -> None:
    items, copy = read_items(data), tmp_path / "copy"
    shutil.copytree(data, copy)
    lost = next(item for item in items if item.task == "TSG")
    (copy / lost.images[0]).unlink()
    options = ["--data", copy, "--ckpt", "tiny", "--limit", 1, "--max-new-tokens", 6, "--max-pixels", 20_000]
    options += ["--prompt-style", "reasoning", "--batch-size", 3, "--out", tmp_path / "run"]
    assert evaluate(*options) == 2, "without --on-missing skip nothing is asked"
    assert evaluate(*options, "--on-missing", "skip") == 0
    rows = rows_of(tmp_path / "run")
    assert len(rows) == len(TASKS)
    assert all(row["tokens"] == 0 if row["id"] == lost.id else 0 < row["tokens"] <= 6 for row in rows)
    assert summary_of(tmp_path / "run")["tiny"] and summary_of(tmp_path / "run")["tasks"]["TO"]["items"] == 1
    skipped = summary_of(tmp_path / "run")["tasks"]["TSG"]
    assert (skipped["items"], skipped["score"], skipped["given"]) == (1, 0, {"none": 1}), "it stays in the denominator"
    assert "image not found" in (tmp_path / "run" / "report.html").read_text()


def test_a_replay_of_a_limited_run_has_its_limit(data: Path, tmp_path: Path) -> None:
    assert evaluate("--data", data, "--engine", "random", "--limit", 2, "--out", tmp_path / "run") == 0
    assert evaluate("--data", data, "--replay", tmp_path / "run", "--out", tmp_path / "again") == 0
    assert rows_of(tmp_path / "again") == rows_of(tmp_path / "run")
    assert {figures["items"] for figures in summary_of(tmp_path / "again")["tasks"].values()} == {2}


def test_foreign_items_beside_their_images_need_no_manifest(data: Path, tmp_path: Path) -> None:
    rows = [
        {name: value for name, value in item_to_row(item).items() if name not in ("photos", "source")}
        for item in read_items(data)
    ]
    for row, item in zip(rows, read_items(data), strict=True):
        row["answer"] = item.answer_text
    write_rows(tmp_path / "theirs" / "TSG.jsonl", rows[:4])
    write_rows(tmp_path / "theirs" / "other.jsonl", rows[4:])
    options = ["--data", tmp_path / "theirs", "--images", data, "--ckpt", "tiny", "--limit", 1]
    assert evaluate(*options, "--max-new-tokens", 2, "--max-pixels", 20_000, "--out", tmp_path / "run") == 0
    assert summary_of(tmp_path / "run")["source"] == "real"


# The judge


def judged(data: Path, outputs: Path, server: ChatServer, out: Path, *more: object) -> int:
    return evaluate(
        "--data", data, "--replay", outputs, "--judge", server.url, "--judge-model", "m", "--out", out, *more
    )


def test_the_judge_reads_what_the_rules_leave_and_its_use_is_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = read_items(data)[:8]
    texts = {item.id: item.answer for item in items[:4]}
    texts |= {item.id: f"Hmm, I lean to {item.answer} somewhat, oddly" for item in items[4:6]}
    texts |= {items[6].id: "I see a road and nothing else", items[7].id: ""}
    write_rows(tmp_path / "items.jsonl", map(item_to_row, items))
    outputs = write_outputs(tmp_path / "o.jsonl", texts)

    def answer(request: dict[str, Any]) -> str:
        text = text_of(request)
        return f"({text.split('lean to ')[1][0]})" if "lean to " in text else "NONE"

    with serve(answer) as server:
        assert judged(tmp_path / "items.jsonl", outputs, server, tmp_path / "run") == 0
        shown = [text_of(request) for request in server.requests]
        assert sum("lean to" in text for text in shown) == 2 and sum("nothing else" in text for text in shown) == 1
        assert all(items[4].question in text for text in shown if "lean to" in text)
        asked = len(server.requests)
        summary = summary_of(tmp_path / "run")
        assert summary["judge"] == {"model": "m", "asked": 3, "settled": 2}
        assert summary["read_by"] == {"rule": 4, "judge": 2, "none": 2}
        assert summary["micro"] == 6 / 8
        assert "judge m: asked 3, settled 2" in capsys.readouterr().out
        assert [row["how"] for row in rows_of(tmp_path / "run")] == ["rule"] * 4 + ["judge"] * 2 + ["none"] * 2
        assert judged(tmp_path / "items.jsonl", outputs, server, tmp_path / "run", "--resume") == 0
        assert len(server.requests) == asked, "nothing is judged twice"
        verdicts = tmp_path / "run" / "judged.jsonl"
        verdicts.write_bytes(verdicts.read_bytes()[:-5])
        assert judged(tmp_path / "items.jsonl", outputs, server, tmp_path / "run", "--resume") == 0
        assert sum("-----" in text_of(request) for request in server.requests) == 4, "but a half-written verdict is"
    assert summary_of(tmp_path / "run") == summary


def test_a_judge_that_refuses_ends_the_run_and_what_was_answered_is_kept(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = write_outputs(tmp_path / "o.jsonl", {item.id: "who knows" for item in read_items(data)})
    with serve(lambda request: (404, "no such model")) as server:
        assert judged(data, outputs, server, tmp_path / "run") == 2
    assert "knows no model 'm'" in capsys.readouterr().err
    assert len(rows_of(tmp_path / "run")) == len(read_items(data))
    assert evaluate("--data", data, "--replay", outputs, "--out", tmp_path / "run", "--resume") == 0


# Ranking


def test_runs_are_ranked_by_their_mean_and_ties_share_a_rank(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = read_items(data)
    for name, outputs in {
        "best": {item.id: item.answer for item in items},
        "twin": {item.id: item.answer_text for item in items},
        "none": {item.id: "" for item in items},
    }.items():
        given = write_outputs(tmp_path / f"{name}.jsonl", outputs)
        assert evaluate("--data", data, "--replay", given, "--label", name, "--out", tmp_path / name) == 0
    capsys.readouterr()
    assert evaluate("--rank", tmp_path / "none", tmp_path / "best", tmp_path / "twin") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines[2:]] == [("best", "1"), ("twin", "1"), ("none", "3")]
    assert evaluate("--data", data, "--engine", "random", "--limit", 2, "--out", tmp_path / "few") == 0
    assert evaluate("--rank", tmp_path / "best", tmp_path / "few") == 0
    assert "did not answer the same items" in capsys.readouterr().out
    assert evaluate("--rank", tmp_path / "best", tmp_path) == 2
    assert "has no summary.json" in capsys.readouterr().err


def test_an_image_of_extreme_shape_is_found_before_anything_is_asked(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    item = next(item for item in read_items(data) if len(item.images) == 2)
    write_rows(tmp_path / "items.jsonl", [item_to_row(item)])
    for width in (2000, 2010):
        for name, size in zip(item.images, ((40, 40), (width, 10)), strict=True):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size).save(tmp_path / name)
        assert evaluate("--data", tmp_path, "--ckpt", "not/loaded", "--out", tmp_path / "run") == 2
        told = capsys.readouterr().err
        assert (f"{item.images[1]} is 2010x10 pixels, longer than 200" in told) == (width == 2010), told
        assert ("the checkpoint not/loaded cannot be loaded" in told) == (width == 2000), told


BAD_INPUT = {
    "no data": ([], "python data_gen/build_cyclingvqa.py"),
    "no file": (["--data", "{tmp}/none"], "nothing at"),
    "no item": (["--data", "{tmp}/empty", "--engine", "random"], "no items at"),
    "another benchmark": (["--data", "{tmp}/surds.jsonl", "--engine", "random"], "python eval/surds.py --data"),
    "a folder of SURDS": (["--data", "{tmp}/surds", "--engine", "random"], "a question of SURDS, not of CyclingVQA"),
    "a folder of DriveMLLM": (["--data", "{tmp}/drivemllm", "--engine", "random"], "python eval/drivemllm.py --data"),
    "no model": (["--data", "{data}"], "give --ckpt"),
    "other outputs": (["--data", "{data}", "--replay", "{tmp}/other.jsonl"], "no stored output has the id"),
    "half a judge": (["--data", "{data}", "--engine", "random", "--judge", "http://x/v1"], "--judge-model NAME"),
    "bad number": (["--data", "{data}", "--engine", "random", "--max-new-tokens", "0"], "must be at least 1"),
    "no images": (["--data", "{data}", "--images", "{tmp}", "--ckpt", "not/loaded"], "is missing under"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_with_2_and_the_remedy(
    case: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.jsonl").write_text('{"id": "x", "output": ""}\n')
    (tmp_path / "surds.jsonl").write_text('{"id": "yaw-1-0", "task": "yaw", "options": ["North", "South"]}\n')
    write_small_set(tmp_path / "surds")
    small_set(tmp_path / "drivemllm")
    options, message = BAD_INPUT[case]
    assert evaluate(*(option.format(tmp=tmp_path, data=data) for option in options)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_an_unknown_style_names_the_known_ones(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        evaluate("--data", data, "--engine", "random", "--prompt-style", "located")
    assert stop.value.code == 2
    assert "cot" in capsys.readouterr().err
