"""A sweep that really runs, of commands that are a small script: order, resuming, failing, stopping, Slurm."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_study import journal, sweep_words, write_study

LAUNCH = Path(__file__).resolve().parents[1] / "launch"
sys.path.insert(0, str(LAUNCH))

from ablation import sweep  # noqa: E402
from ablation.overview import Screen, overview  # noqa: E402
from ablation.plan import Place, Planner, plan  # noqa: E402
from ablation.state import Marks  # noqa: E402
from ablation.study import read_rows, read_study  # noqa: E402
from ablation.work import Work  # noqa: E402

ROWS = ["base", "sft", "sft-grpo", "sft-grpo-loclogic"]


def run(study: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(LAUNCH / "ablate.py"), *sweep_words(study, *more)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def begun(folder: Path) -> list[str]:
    """What was begun, `unit/output` each, in order."""
    return [line.split()[1] for line in journal(folder) if line.startswith("begin")]


def test_a_sweep_runs_in_parallel_in_order_and_makes_its_table(tmp_path: Path) -> None:
    study = write_study(tmp_path, steps=12)
    done = run(study, "--parallel", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    order = begun(tmp_path)
    assert order[0] == "run/world" and order[-1] == "run/table-4"
    assert order.count("sft-0/train") == 1
    for row in ("sft-longer-0", "sft-grpo-0", "sft-grpo-loclogic-0"):
        assert order.index("sft-0/train") < order.index(f"{row}/train") < order.index(f"{row}/greedy")
    kept = {path.name for path in (tmp_path / "results").iterdir()}
    assert kept == {f"{row}-0.json" for row in (
        "base", "grpo", "grpo-loclogic", "sft", "sft-longer", "sft-grpo", "sft-grpo-loclogic")}  # fmt: skip
    notes = journal(tmp_path)
    at_once = [one.split()[0] == "begin" == two.split()[0] for one, two in itertools.pairwise(notes)]
    assert any(at_once), "two at a time"
    assert "row" in done.stdout and "units done, 2 at work" in done.stdout and "sft-grpo-0: done in" in done.stdout
    assert "--resume" in (tmp_path / "run" / "logs" / "sft-grpo-0.log").read_text()


def test_a_finished_sweep_makes_only_its_table_again_even_without_its_run_folder(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    assert run(study, "--rows", *ROWS).returncode == 0
    before = len(begun(tmp_path))
    again = run(study, "--rows", *ROWS, "--out", str(tmp_path / "elsewhere"))
    assert again.returncode == 0 and len(begun(tmp_path)) == before
    assert "table 4 is not made: --rows leaves out grpo, grpo-loclogic, sft-longer" in again.stdout


def test_a_failing_unit_stops_only_what_needs_it(tmp_path: Path) -> None:
    study = write_study(tmp_path, fail="sft-0/train")
    done = run(study)
    assert done.returncode == 1
    assert {path.stem for path in (tmp_path / "results").iterdir()} == {"base-0", "grpo-0", "grpo-loclogic-0"}
    assert "sft-0-training: FAILED, sft ended with status 1" in done.stdout
    assert "the reason why it fails" in done.stdout and "4 not possible without" in done.stdout
    assert begun(tmp_path)[-1] == "run/table-4"  # of the rows that are done


def wait_for(folder: Path, what: str, started: subprocess.Popen[str]) -> None:
    while not any(line.startswith(f"begin {what}") for line in journal(folder)):
        assert started.poll() is None, f"ended before {what} began"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_ends_its_commands_and_goes_on(number: int, tmp_path: Path) -> None:
    study = write_study(tmp_path, steps=30)
    words = [sys.executable, str(LAUNCH / "ablate.py"), *sweep_words(study, "--rows", "grpo", "grpo-loclogic")]
    started = subprocess.Popen([*words, "--parallel", "2"], stdout=subprocess.PIPE, text=True)
    wait_for(tmp_path, "grpo-0/train", started)
    wait_for(tmp_path, "grpo-loclogic-0/train", started)
    started.send_signal(number)
    said, _ = started.communicate(timeout=30)
    assert started.returncode == 130 and "the same line goes on" in said
    pids = [int(line.split()[2]) for line in journal(tmp_path)]
    assert not any(map(alive, pids))
    marks = json.loads((tmp_path / "run" / "marks" / "grpo-0.json").read_text())
    assert not marks["grpo"]["finished"] and marks["grpo"]["seconds"] > 0
    assert run(study, "--rows", "grpo", "grpo-loclogic").returncode == 0
    order = begun(tmp_path)
    assert order.count("run/world") == 1 and order.count("grpo-0/train") == 2


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    study = write_study(tmp_path, steps=40)
    words = [sys.executable, str(LAUNCH / "ablate.py"), *sweep_words(study, "--rows", "grpo")]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, text=True)
    wait_for(tmp_path, "grpo-0/train", first)
    second = run(study, "--rows", "grpo")
    assert second.returncode == 2 and "works in" in second.stderr
    first.kill()  # its command lives on, and still holds the folder
    first.wait()
    assert "works in" in run(study, "--rows", "grpo").stderr
    os.killpg(int(journal(tmp_path)[-1].split()[2]), signal.SIGKILL)


def test_what_other_words_made_is_made_anew_when_told(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    assert run(study, "--rows", "base", "sft", "grpo").returncode == 0
    config = tmp_path / "sft.yaml"
    config.write_text(config.read_text().replace("100", "200"))
    refused = run(study, "--rows", "base", "sft", "grpo")
    assert refused.returncode == 2 and "results/sft-0.json" in refused.stderr and "grpo-0" not in refused.stderr
    before = len(journal(tmp_path))
    assert run(study, "--rows", "base", "sft", "grpo", "--overwrite").returncode == 0
    anew = [line.split() for line in journal(tmp_path)[before:] if line.startswith("begin")]
    assert [words[1] for words in anew] == ["sft-0/train", "sft-0/greedy", "results/sft-0.json"]
    assert [words[-1] for words in anew[:2]] == ["--overwrite", "--overwrite"]
    assert run(study, "--rows", "base", "sft", "grpo").returncode == 0


def test_what_was_stopped_before_it_replaced_anything_is_nobodys(tmp_path: Path) -> None:
    study, rows = write_study(tmp_path), ["--rows", "base", "sft"]
    assert run(study, *rows).returncode == 0
    text = study.read_text()
    study.write_text(text.replace("--steps 1 --out {train}", "--steps 0 --fail sft-0 --out {train}"))  # shows no bar
    assert run(study, *rows, "--overwrite").returncode == 1
    assert {path.stem for path in (tmp_path / "results").iterdir()} == {"base-0"}, "no table shows what is made anew"
    study.write_text(text)
    refused = run(study, *rows)
    assert refused.returncode == 2 and "marks/sft-0-training.json" in refused.stderr
    before = len(journal(tmp_path))
    assert run(study, *rows, "--overwrite").returncode == 0
    assert journal(tmp_path)[before].split()[1] == "sft-0/train" and "--overwrite" in journal(tmp_path)[before]


def test_the_last_result_takes_its_questions_with_it(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    assert run(study, "--rows", "base", "grpo").returncode == 0
    questions = tmp_path / "results" / "questions.json"
    questions.write_text("{}")
    study.write_text(study.read_text().replace("--rewards", "--more --rewards"))
    assert run(study, "--rows", "base", "grpo", "--overwrite").returncode == 0 and questions.exists()
    study.write_text(study.read_text().replace("--ckpt", "--more --ckpt"))
    assert run(study, "--rows", "base", "grpo", "--overwrite").returncode == 0 and not questions.exists()


def test_what_no_mark_tells_of_is_replaced_only_when_told(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    assert run(study, "--rows", "base").returncode == 0
    for folder in ("run/marks", "results"):
        shutil.rmtree(tmp_path / folder)
    before = len(journal(tmp_path))
    assert run(study, "--rows", "base").returncode == 0
    assert {line.split()[-1] for line in journal(tmp_path)[before:] if "results" not in line} == {"--resume"}
    for folder in ("run/marks", "results"):
        shutil.rmtree(tmp_path / folder)
    assert run(study, "--rows", "base", "--overwrite", "--machine", "slurm").returncode == 0
    jobs = [(tmp_path / "run" / "slurm" / f"{name}.sh").read_text() for name in ("data", "base-0")]
    assert all("--overwrite" in job and "--resume" not in job for job in jobs)


def test_a_config_changed_meanwhile_stops_what_would_use_it(tmp_path: Path) -> None:
    study = write_study(tmp_path, steps=30)
    words = [sys.executable, str(LAUNCH / "ablate.py"), *sweep_words(study, "--rows", "grpo", "sft", "--parallel", "1")]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    wait_for(tmp_path, "grpo-0/train", started)
    config = tmp_path / "sft.yaml"
    config.write_text(config.read_text().replace("100", "200"))
    said, _ = started.communicate(timeout=60)
    assert started.returncode == 1 and "sft-0-training: FAILED, its configs were changed" in said
    assert {path.stem for path in (tmp_path / "results").iterdir()} == {"grpo-0"}
    assert run(study, "--rows", "grpo", "sft").returncode == 0, "the same line goes on"


@pytest.mark.parametrize("place", ["$SOME_PLACE", "${SOME_PLACE}"])
def test_outputs_may_lie_where_a_variable_says(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PLACE", str(tmp_path / "else"))
    study = write_study(tmp_path)
    study.write_text(study.read_text().replace("{run}/world", f"{place}/world"))
    assert run(study, "--rows", "base").returncode == 0
    assert (tmp_path / "else" / "world").is_dir() and begun(tmp_path).count("else/world") == 1


def test_a_command_that_leaves_nothing_is_a_failure(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    study.write_text(study.read_text().replace("--ckpt", "--lose --ckpt"))
    done = run(study, "--rows", "base")
    assert done.returncode == 1 and "base-0: FAILED, greedy ended well without" in done.stdout
    assert begun(tmp_path) == ["run/world", "base-0/greedy"]


def test_a_result_that_a_command_left_out_is_a_failure(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    study.write_text(study.read_text().replace("--commands {commands}", "--commands forged"))
    done = run(study, "--rows", "base")
    assert done.returncode == 1 and "base-0.json is not there or not of them" in done.stdout


def test_a_variable_that_is_not_set_is_told_before_anything_runs(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    study.write_text(study.read_text().replace("--train {train}", "--train $NO_SUCH_PLACE/x"))
    done = run(study)
    assert done.returncode == 2 and "$NO_SUCH_PLACE/x is not set" in done.stderr and not journal(tmp_path)


def test_gpu_hours_are_steps_times_seconds_times_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = write_study(tmp_path, gpus=8)
    assert sweep.main([*sweep_words(study, "--rows", "sft", "sft-grpo"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "training, made once, also the start of sft-grpo (8 GPU hours)" in text  # 10 steps of 360 s on 8
    assert "# sft-grpo, seed 0 (16 GPU hours)" in text and "24 GPU hours" in text and "estimates" in text
    write_study(tmp_path)
    assert sweep.main([*sweep_words(study, "--rows", "sft", "sft-grpo"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "about 3.0 hours of one core" in text and "GPU" not in text  # 10 and 20 steps of 360 s


def test_slurm_jobs_wait_for_those_they_need_and_run_the_same_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path, gpus=8)
    assert sweep.main(sweep_words(study, "--machine", "slurm")) == 0
    folder = tmp_path / "run" / "slurm"
    assert f"submit them with: bash {folder / 'submit.sh'}" in capsys.readouterr().out and not journal(tmp_path)
    fake = tmp_path / "bin"
    fake.mkdir()
    # As sbatch --parsable: says a number; here it runs the job at once and notes what it should wait for.
    (fake / "sbatch").write_text(
        '#!/bin/bash\necho "${@: -1} $*" >> "$SUBMITTED"\nbash "${@: -1}" >/dev/null 2>&1 || exit 1\n'
        'wc -l < "$SUBMITTED"\n'
    )
    (fake / "sbatch").chmod(0o755)
    path = f"{fake}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    submitted = tmp_path / "submitted"
    done = subprocess.run(
        [sys.executable, str(LAUNCH / "ablate.py"), *sweep_words(study, "--machine", "slurm", "--submit")],
        env=os.environ | {"PATH": path, "SUBMITTED": str(submitted)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = [line.split() for line in submitted.read_text().splitlines()]
    numbers = {job[0].removesuffix(".sh"): str(index) for index, job in enumerate(jobs, 1)}
    waits = {job[0].removesuffix(".sh"): job[2] if len(job) > 3 else "" for job in jobs}
    assert waits["data"] == "" and waits["base-0"] == f"--dependency=afterok:{numbers['data']}"
    assert waits["sft-grpo-0"] == f"--dependency=afterok:{numbers['data']}:{numbers['sft-0-training']}"
    assert jobs[-1][0] == "tables.sh" and waits["tables"].startswith("--dependency=afterany:"), "failed ones too"
    assert "--kill-on-invalid-dep=yes" in jobs[1], "what needs a failed job does not wait for ever"
    assert "#SBATCH --gpus-per-node=8" in (folder / "sft-grpo-0.sh").read_text()
    assert "gpus" not in (folder / "data.sh").read_text()
    assert len(list((tmp_path / "results").iterdir())) == 7 and begun(tmp_path)[-1] == "run/table-4"


def test_the_overview_tells_row_seed_stage_step_time_and_what_is_left(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, steps=40))
    rows = read_rows()
    place = Place(str(tmp_path / "run"), str(tmp_path / "results"), "2")
    units = plan(Planner(study, rows, place), [rows.rows["grpo"]], [3])
    digests = {unit.name: unit.digest for unit in units}
    work = Work(units, place, 1, Marks(place.run), dict(os.environ), list(digests), lambda: digests)
    try:
        while not (at_work := work.running.get("grpo-3")) or at_work.now is None or at_work.now.number < 4:
            work.advance()
            assert not work.failed
            time.sleep(0.05)
        lines = overview(work, study)
    finally:
        work.stop()
    assert lines[0].split() == ["row", "seed", "stage", "step", "time", "left"]
    row, seed, stage, step, spent, left = lines[1].split()
    assert (row, seed, stage) == ("grpo", "3", "grpo") and step.endswith("/40")
    assert spent.startswith("0:") and left.startswith(("0:", "1:")), "by its own pace, not the two hours of the study"
    assert lines[-1].startswith("1 of 2 units done, 1 at work, 0 waiting; about 0:")
    assert not work.running


def test_the_screen_is_redrawn_in_place_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    plain = Screen(live=False)
    for events in (["begins"], [], []):
        plain.show(events, ["head", "row"])
    assert capsys.readouterr().out == "begins\nhead\nrow\n"
    live = Screen(live=True)
    live.show([], ["head", "row"])
    live.show(["done"], ["head"])
    assert capsys.readouterr().out == "head\nrow\n\x1b[2A\x1b[Jdone\nhead\n"
