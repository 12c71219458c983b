"""The options of the training scripts as a user meets them: help, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.arguments import SurdsSFTConfig, parse_arguments
from training.grpo_arguments import PARTS


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max_stepz", "3"], "unknown option --max_stepz; did you mean --max_steps?"),
        (["--logic-mode=forwards"], "invalid choice: 'forwards'"),
        (["--config", "typo.yaml"], "unknown key 'learning_rte' in the --config file; did you mean learning_rate?"),
        (["--qqqqqqqq"], "unknown option --qqqqqqqq; --help lists them"),
    ],
)
def test_a_wrong_option_is_told_in_two_lines(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("typo.yaml").write_text("learning_rte: 1")
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(PARTS, ["--out", str(tmp_path), *words])
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: ") and told in error


def test_help_shows_our_options_in_groups_before_those_of_trl(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse_arguments(PARTS, ["--help"])
    lines = capsys.readouterr().out.splitlines()
    heads = [lines.index(f"{head}:") for head in ("the model", "data and output folder", "rewards", "speed")]
    trl = next(number for number, line in enumerate(lines) if line.startswith("GRPO: TRL's options"))
    assert heads == sorted(heads) and heads[-1] < trl
    of_option = next(number for number, line in enumerate(lines) if "--logic-mode {forward,generate}" in line)
    assert heads[2] < of_option < heads[3]
    assert not any("stages_sha256" in line for line in lines)


@pytest.mark.parametrize("script", ["sft", "grpo"])
def test_loading_options_that_only_the_reference_would_obey_are_refused(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = PARTS if script == "grpo" else (SurdsSFTConfig,)
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(parts, ["--model_init_kwargs", '{"attn_implementation": "eager"}'])
    assert "--model_init_kwargs would reach the reference model only" in capsys.readouterr().err
