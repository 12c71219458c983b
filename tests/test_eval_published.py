"""Official templates, and the published rows of SURDS beside a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from eval_runs import lines_of, summary_of
from shared import need
from small_questions import write_small_set
from test_templates import write_templates

from data_gen.records import question_to_row, read_questions, write_rows
from data_gen.templates import read_templates
from eval.published import published_beside, published_rows
from eval.runner import digest as text_digest
from eval.surds import main
from rewards.grading import TASKS


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small_set(tmp_path / "data")


def evaluate(*options: object) -> int:
    return main([str(option) for option in options])


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
