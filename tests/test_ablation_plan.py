"""What an ablation would run: its units, their digests, what counts as done, and the dry run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_study import sweep_words, write_study

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "launch"))

from ablation import commands, sweep  # noqa: E402
from ablation.commands import executable, fill, option, shortened  # noqa: E402
from ablation.environment import cpu_settings, environment  # noqa: E402
from ablation.options import parse, place_of, study_of  # noqa: E402
from ablation.plan import Place, Planner, Unit, needed, plan  # noqa: E402
from ablation.state import DONE, OPEN, OTHER, Mark, Marks, state_of  # noqa: E402
from ablation.study import StudyError, read_rows, read_study  # noqa: E402

PUBLISHED_3B = "Qwen/Qwen2.5-VL-3B-Instruct"
STUDIES = sorted(path for path in (ROOT / "configs" / "ablation").glob("*.yaml") if path.name != "rows.yaml")


def units_of(study: Path, run: str = "run", seeds: tuple[int, ...] = (0,), table: str = "4") -> list[Unit]:
    rows = read_rows()
    place = Place(run, str(study.parent / "results"), "2")
    return plan(Planner(read_study(study), rows, place), rows.of_tables((table,)), seeds)


def dry_run_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert sweep.main([*words, "--dry-run"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("model", ["mini", PUBLISHED_3B, "some/Other-Model"])
@pytest.mark.parametrize("table", ["3", "4", "both"])
def test_the_dry_run_lists_every_row_of_the_tables(
    model: str, table: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = dry_run_of(capsys, "--table", table, "--model", model, "--out", str(tmp_path), "--results", str(tmp_path))
    tables = yaml.safe_load((ROOT / "configs" / "ablation" / "rows.yaml").read_text())["tables"]
    shown = {row for number in tables for row in tables[number]["rows"] if table in (str(number), "both")}
    kept = [line for line in text.splitlines() if line.startswith("python eval/ablation_row.py")]
    words = [line.split() for line in kept]
    assert {(option(line, "row"), option(line, "seed")) for line in words} == {
        (row, seed) for row in shown for seed in "012"
    }
    assert len(kept) == 3 * len(shown) == len({option(line, "commands") for line in words})
    assert ("GPU hours" in text) == (model != "mini")
    assert (f"--model {model} " in text) and (model == "some/Other-Model") == ("surds_3b-other-model" in text)


@pytest.mark.parametrize("table", ["3", "4", "both"])
def test_one_sft_serves_every_row_of_a_seed(table: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = dry_run_of(capsys, "--table", table, "--out", str(tmp_path), "--results", str(tmp_path), "--seeds", "3", "5")
    lines = text.splitlines()
    trained = [option(line.split(), "out") for line in lines if line.startswith("python training/")]
    assert len(trained) == len(set(trained))
    for seed in "35":
        sft = str(tmp_path / f"sft-{seed}" / "train")
        assert trained.count(sft) == 1
        starts = [option(line.split(), "model") for line in lines if line.startswith("python training/")]
        rows = read_rows()
        tables = tuple(rows.tables) if table == "both" else (table,)
        assert starts.count(sft) == sum(row.start == "sft" for row in rows.of_tables(tables)) >= 3
    assert sum(line.startswith("python data_gen/synthetic.py") for line in lines) == 2  # one for the traces


def test_the_acceptance_line_runs_as_typed() -> None:
    words = [sys.executable, "launch/ablate.py", "--table", "4", "--dry-run"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--rewards format,loc,acc,logic" in done.stdout and "rows of one seed" in done.stdout
    assert "eval/ablation_table.py --table 4" in done.stdout


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_fills_in_and_every_training_has_an_estimate(path: Path) -> None:
    study, rows = read_study(path), read_rows()
    units = plan(Planner(study, rows, Place("run", "results", "2")), list(rows.rows.values()), [0])
    assert path.read_text().startswith("# ") and len(units) == 2 + len(rows.rows)
    known = {*study.data, "summary"} | study.estimates.keys()
    assert {command.stage for unit in units for command in unit.commands} <= known
    for word in {word for unit in units for command in unit.commands for word in command.words}:
        if word.endswith(".py"):
            assert word.split("/")[0] in ("data_gen", "training", "eval")


def test_no_unit_of_the_mini_study_is_thought_to_take_more_than_forty_minutes() -> None:
    path = ROOT / "configs" / "ablation" / "mini.yaml"
    estimates = read_study(path).estimates
    for unit in units_of(path, table="3") + units_of(path, table="4"):
        seconds = sum(estimates[command.stage].seconds for command in unit.commands if command.resumable)
        assert seconds <= 40 * 60, unit.name


def test_rows_differ_as_the_tables_say() -> None:
    units = {unit.name: unit for unit in units_of(ROOT / "configs" / "ablation" / "mini.yaml", table="3")}
    assert set(units) == {"data", "sft-0-training", "sft-0", *(f"sft-grpo{end}-0" for end in (
        "", "-loc", "-logic", "-loclogic", "-loclogic-signed", "-loclogic-pair"))}  # fmt: skip
    rewards = {name: (option(unit.commands[0].words, "rewards"), option(unit.commands[0].words, "reward_values"))
               for name, unit in units.items() if "grpo" in name}  # fmt: skip
    assert rewards["sft-grpo-loc-0"] == ("format,loc,acc", "0,1")
    assert rewards["sft-grpo-logic-0"] == ("format,acc,logic", "0,1")
    assert rewards["sft-grpo-loclogic-signed-0"] == ("format,loc,acc,logic", "-1,1")
    assert rewards["sft-grpo-loclogic-pair-0"] == ("format,loc,acc,logic,pair", "0,1")
    assert units["sft-grpo-0"].needs == ("data", "sft-0-training") == units["sft-0"].needs
    assert [command.stage for command in units["sft-0"].commands][-1] == "summary"


def test_a_digest_follows_what_a_row_comes_from_and_nothing_else(tmp_path: Path) -> None:
    def digests() -> dict[str, str]:
        return {unit.name: unit.digest for unit in units_of(tmp_path / "study.yaml")}

    path = write_study(tmp_path)
    before = digests()
    assert len(set(before.values())) == len(before)
    assert {unit.name: unit.digest for unit in units_of(path, run="/elsewhere/run")} == before
    config = tmp_path / "sft.yaml"
    config.write_text(config.read_text() + "# A word more.\n")
    assert digests() == before, "a comment changes nothing"
    config.write_text(config.read_text().replace("1.0e-3", "2.0e-3"))
    changed = {name for name, digest in digests().items() if digest != before[name]}
    assert changed == {name for name in before if name.startswith("sft")}
    path.write_text(path.read_text().replace("--out {run}/world", "--more --out {run}/world"))
    assert not set(digests().items()) & set(before.items()) - {("base-0", before["base-0"])}


def test_another_shipped_model_makes_all_rows_anew_and_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, model = write_study(tmp_path), tmp_path / "model"
    model.mkdir()
    monkeypatch.setattr(commands, "SHIPPED", {"mini": model})

    def digests() -> dict[str, str]:
        commands._files_digest.cache_clear()
        return {unit.name: unit.digest for unit in units_of(path)}

    (model / "model.safetensors").write_text("weights")
    before = digests()
    (model / "README.md").write_text("its card")
    assert digests() == before
    (model / "model.safetensors").write_text("other weights")
    assert set(digests().items()) & set(before.items()) == {("data", before["data"])}


def test_a_checkpoint_folder_counts_with_what_it_holds(tmp_path: Path) -> None:
    path, model = write_study(tmp_path), tmp_path / "checkpoint"
    model.mkdir()
    (model / "config.json").write_text("{}")
    path.write_text(path.read_text().replace("model: mini", f"model: {model}"))

    def digests() -> dict[str, str]:
        commands._files_digest.cache_clear()
        return {unit.name: unit.digest for unit in units_of(path)}

    before = digests()
    (model / "model.safetensors").write_text("trained anew")
    assert set(digests().items()) & set(before.items()) == {("data", before["data"])}


def test_mini_is_the_shipped_model_wherever_the_command_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "training")  # where a folder has that name
    assert study_of(parse(["--table", "4", "--model", "mini"])).name == "mini"


def test_base_is_not_asked_anew_when_nothing_of_it_changed(tmp_path: Path) -> None:
    before = {unit.name: unit.digest for unit in units_of(write_study(tmp_path))}
    path = write_study(tmp_path, steps=2)
    after = {unit.name: unit.digest for unit in units_of(path)}
    assert [name for name in before if before[name] == after[name]] == ["data", "base-0"]


def finish(unit: Unit) -> None:
    path = Path(str(unit.result))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"commands": unit.digest}))


def test_a_kept_result_counts_as_done_without_the_run_folder(tmp_path: Path) -> None:
    units = units_of(write_study(tmp_path), run=str(tmp_path / "run"))
    marks = Marks(str(tmp_path / "run"))
    by_name = {unit.name: unit for unit in units}
    done = [unit for unit in units if unit.result and "grpo" in unit.name and "sft" in unit.name]
    for unit in done:
        finish(unit)
    states = {unit.name: state_of(unit, marks) for unit in units}
    assert {name for name, state in states.items() if state == DONE} == {unit.name for unit in done}
    left = needed(units, {unit.name for unit in done})
    assert {unit.name for unit in left} == set(by_name) - {unit.name for unit in done}
    for name in ("sft-0", "sft-longer-0"):
        finish(by_name[name])
    left = needed(units, {name for name in by_name if state_of(by_name[name], marks) == DONE})
    assert {unit.name for unit in left} == {"data", "base-0", "grpo-0", "grpo-loclogic-0"}, "no row needs an SFT"
    for unit in left[1:]:
        finish(unit)
    assert needed(units, {name for name in by_name if state_of(by_name[name], marks) == DONE}) == []


def test_another_digest_is_refused_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = write_study(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "grpo-0.json").write_text(json.dumps({"commands": "of old"}))
    assert sweep.main(sweep_words(study)) == 2
    said = capsys.readouterr().err
    assert "results/grpo-0.json" in said and "--overwrite" in said and "--results" in said
    assert not (tmp_path / "journal").exists()
    assert "# grpo, seed 0 [made by other commands]" in dry_run_of(capsys, *sweep_words(study))
    (tmp_path / "results" / "grpo-0.json").write_text("half a fi")
    assert sweep.main(sweep_words(study)) == 2
    assert "is no result of a row" in capsys.readouterr().err


def test_a_command_begun_with_other_words_is_no_longer_open(tmp_path: Path) -> None:
    unit = next(unit for unit in units_of(write_study(tmp_path)) if unit.name == "grpo-0")
    marks = Marks(str(tmp_path / "run"))
    assert state_of(unit, marks) == OPEN
    marks.write(unit, "grpo", Mark(unit.commands[0].digest, False, 3.0))
    assert state_of(unit, marks) == OPEN
    marks.write(unit, "grpo", Mark("other", False, 3.0))
    assert state_of(unit, marks) == OTHER


def test_a_trial_is_short_and_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = str(write_study(tmp_path))
    text = dry_run_of(capsys, "--table", "3", "--study", study, "--shorten", "20")
    assert "--max_steps 5" in text and "runs/ablation/small-short20/results/sft-0.json" in text
    assert "--out results/" not in text
    whole = dry_run_of(capsys, "--table", "3", "--study", study)
    assert "--max_steps" not in whole and "--out results/small/sft-0.json" in whole
    with pytest.raises(StudyError, match="do not go to results/mini"):
        options = parse(["--table", "3", "--shorten", "2", "--results", str(ROOT / "results" / "mini")])
        place_of(options, study_of(options))


def test_commands_on_cpus_have_their_settings_and_those_on_gpus_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/nowhere", "OMP_NUM_THREADS": "64", "MALLOC_TOP_PAD_": "1"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    path = ROOT / "configs" / "ablation" / "mini.yaml"
    mini, hub = read_study(path), read_study(path, "some/Other-Model")
    own = environment(mini, 2)
    assert own == cpu_settings() | {
        "PATH": "/nowhere", "OMP_NUM_THREADS": "4", "MALLOC_TOP_PAD_": "1", "HF_HUB_OFFLINE": "1"
    }  # fmt: skip
    assert own["MALLOC_MMAP_MAX_"] == "0" and "HF_HUB_OFFLINE" not in environment(hub, 2)
    monkeypatch.setattr(environment.__globals__["shutil"], "which", lambda name: f"/bin/{name}")
    assert environment(mini, 2) == {**os.environ, "TOKENIZERS_PARALLELISM": "false"}


@pytest.mark.parametrize(
    ("words", "short"),
    [
        (["--limit", "7", "--seed", "8"], ["--limit", "1", "--seed", "8"]),
        (["--limit=70", "--samples", "8"], ["--limit=7", "--samples", "8"]),
        (["--config", "configs/grpo/surds_3b.yaml", "--logging_steps", "20"],
         ["--config", "configs/grpo/surds_3b.yaml", "--logging_steps", "2", "--num_train_epochs", "0.1",
          "--save_steps", "10"]),
    ],
)  # fmt: skip
def test_counts_are_divided_also_those_of_configs(words: list[str], short: list[str]) -> None:
    assert shortened(words, 10) == short
    assert shortened(words, 1) == words


def test_commands_run_by_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert executable(["python", "x.py"]) == [sys.executable, "x.py"]
    assert executable(["accelerate", "launch", "x"]) == [sys.executable, "-m", "accelerate.commands.launch", "x"]
    monkeypatch.setenv("SOME_WORLD", "/here")
    assert executable(["python", "$SOME_WORLD/x"])[1] == "/here/x"
    monkeypatch.delenv("SOME_WORLD")
    with pytest.raises(StudyError, match="SOME_WORLD"):
        executable(["python", "$SOME_WORLD/x"])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("study: small", "study: small\nstudies: x", "unknown key studies"),
        ("table:", "tables:", "unknown key tables"),
        ("{start}", "{begin}", "unknown placeholder {begin}"),
        ("--out {out}/greedy", "", "without --out"),
        ("  greedy: {steps", "  gready: {steps", "an estimate of gready"),
        ("sft.yaml", "none.yaml", "no file"),
    ],
)
def test_a_study_that_cannot_be_is_refused(
    old: str, new: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path)
    assert old in study.read_text()
    study.write_text(study.read_text().replace(old, new))
    assert sweep.main([*sweep_words(study), "--dry-run"]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sft": {"start": "nowhere", "traces": True}}, "no row above it"),
        ({"sft": {"start": "base", "traces": True, "rewards": "acc"}}, "either rewards or traces"),
        ({"base": {"rewards": "acc"}}, "none of the three"),
    ],
)
def test_rows_that_cannot_be_are_refused(change: dict[str, dict[str, object]], reason: str, tmp_path: Path) -> None:
    rows = {"base": {}, "sft": {"start": "base", "traces": True}} | change
    path = tmp_path / "rows.yaml"
    path.write_text(yaml.safe_dump({"rows": rows, "tables": {4: {"rows": ["base"]}}}, sort_keys=False))
    with pytest.raises(StudyError, match=reason):
        read_rows(path)


@pytest.mark.parametrize(
    "words",
    [["--table", "5"], ["--table", "4", "--parallel", "0"], ["--table", "4", "--submit"], ["--table", "4", "x"]],
)
def test_bad_options_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        sweep.main(words)
    assert stop.value.code == 2


def test_an_unknown_row_is_told_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["--table", "3", "--rows", "base", "--dry-run"]) == 2
    assert "--rows base: no such row; there are sft, sft-grpo" in capsys.readouterr().err


def test_a_table_is_made_of_the_seeds_that_were_asked_for() -> None:
    study = read_study(STUDIES[0])
    commands = sweep.table_commands(study, Place("run", "results", "2"), ["3", "4"], [4, 7])
    for table, words in commands.items():
        assert option(words, "table") == table and words[words.index("--seeds") + 1 :][:2] == ["4", "7"]


def test_fill_keeps_a_title_with_blanks_one_word() -> None:
    assert fill("x --label {title} --out={out}", {"title": "SFT, longer", "out": "o"}) == [
        "x", "--label", "SFT, longer", "--out=o"]  # fmt: skip
