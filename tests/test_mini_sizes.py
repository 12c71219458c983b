"""The mini model in its sizes, its pretraining for a GPU, and the sweep on one: all that shows without a GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_gen.pretraining.pictures import Pictures, render_scenes
from training import mini_pretrain
from training.mini_stages.architecture import SIZES, new_mini
from training.mini_stages.forward import alone_loss, image_tokens, patches_of, shared_rows, text_loss
from training.mini_stages.speech import Speech
from training.mini_stages.stages import ABOUT, STAGES, Course, draw_pictures, teach
from training.model import MINI
from training.tiny import train_tokenizer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "launch"))

from ablation.commands import option  # noqa: E402
from ablation.plan import Place, Planner, Unit, plan  # noqa: E402
from ablation.study import read_rows, read_study  # noqa: E402

STUDY = ROOT / "configs" / "ablation" / "mini_gpu.yaml"
SCRIPT = ROOT / "launch" / "gpu_tables.sh"
TEST_SEED = 500


@pytest.fixture(scope="module")
def pictures() -> Pictures:
    return render_scenes(TEST_SEED, range(2))


@pytest.fixture(scope="module")
def speech() -> Speech:
    return Speech(train_tokenizer())


def test_the_default_size_is_that_of_the_shipped_model(speech: Speech) -> None:
    from transformers import AutoConfig

    model, shipped = new_mini(speech.tokenizer, 0), AutoConfig.from_pretrained(MINI)
    assert model.num_parameters() - 128 * len(speech.tokenizer) == 1_763_328
    for part in ("text_config", "vision_config"):
        own, theirs = getattr(model.config, part).to_dict(), getattr(shipped, part).to_dict()
        for name in ("hidden_size", "intermediate_size", "rope_parameters", "initializer_range"):
            assert own.get(name) == theirs.get(name), name
    again = new_mini(speech.tokenizer, 0, "mini").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    weights = model.get_input_embeddings().weight
    assert float(weights.detach().double().std()) == pytest.approx(0.05, rel=0.02)


def test_midi_has_the_size_that_a_gpu_wants_and_the_stock_tower(speech: Speech, pictures: Pictures) -> None:
    model = new_mini(speech.tokenizer, 0, "midi")
    assert 10_000_000 < model.num_parameters() < 40_000_000
    text = model.config.text_config
    head = text.hidden_size // text.num_attention_heads
    assert head in (32, 64) and 2 * sum(text.rope_parameters["mrope_section"]) == head
    patches_NPC = patches_of(pictures.pixels[:2])
    grids = torch.tensor([[1, 8, 16]] * 2)
    with torch.no_grad():
        stock = model.model.visual(patches_NPC.flatten(0, 1), grid_thw=grids).pooler_output
        own = image_tokens(model.model.visual, patches_NPC).flatten(0, 1)
    torch.testing.assert_close(own, stock, rtol=1e-4, atol=1e-5)
    assert SIZES.keys() == STAGES.keys() == set(mini_pretrain.SIZES)


def test_stages_take_other_steps_and_are_shortened() -> None:
    def steps(*words: str) -> list[int]:
        return [stage.steps for stage in mini_pretrain.stages_of(mini_pretrain.parse_arguments(list(words)))]

    assert steps() == [stage.steps for stage in STAGES["mini"]]
    assert steps("--size", "midi", "--steps", "9", "8", "7", "2", "3", "6", "--shorten", "3") == [3, 2, 2, 1, 1, 2]


@pytest.mark.parametrize("words", [["--device", "cuda"], ["--steps", "1", "2"], ["--size", "maxi"]])
def test_what_cannot_be_done_is_refused(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        mini_pretrain.main(["--out", str(tmp_path / "out"), *words])
    assert stopped.value.code == 2 and not (tmp_path / "out").exists()


def test_what_processes_draw_ahead_teaches_the_same(speech: Speech, pictures: Pictures, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    taught = []
    for workers in (1, 2):
        model = new_mini(speech.tokenizer, 0)
        course = Course(model, speech, pictures, 0, workers=workers)
        for number in (0, 3):
            stage = replace(STAGES["mini"][number], steps=2, examples_per_step=2)
            teach(course, stage, tmp_path / f"{stage.name}-{workers}.pt")
        taught.append(model.state_dict())
    torch.set_num_threads(threads)
    assert all(torch.equal(value, taught[1][name]) for name, value in taught[0].items())
    before = new_mini(speech.tokenizer, 0).state_dict()
    assert not torch.equal(taught[0]["lm_head.weight"], before["lm_head.weight"])


def test_nothing_of_a_step_stays_on_the_cpu(
    speech: Speech, pictures: Pictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device `meta`, which holds no data, stands in for a GPU: it computes with nothing of another device."""
    import torch.fx.experimental._config as symbolic

    monkeypatch.setattr(symbolic, "meta_nonzero_assume_all_nonzero", True)
    monkeypatch.setattr(torch, "autocast", lambda *_, **settings: contextlib.nullcontext())
    model, rng = new_mini(speech.tokenizer, 0).to("meta"), np.random.default_rng(0)
    pixels_NHWC, objects = draw_pictures(pictures, 2, rng)
    said = [[speech.conversation(each) for each in ABOUT["format"](seen, rng)] for seen in objects]
    rows = shared_rows(speech.head, said, speech.tokenizer.pad_token_id, "meta")
    tokens_NTC = image_tokens(model.model.visual, patches_of(pixels_NHWC, "meta"))
    assert text_loss(model, tokens_NTC, rows).device.type == "meta"
    assert alone_loss(model, said[0], speech.tokenizer.pad_token_id, "meta").device.type == "meta"
    on_cpu = shared_rows(speech.head, said, speech.tokenizer.pad_token_id)
    with pytest.raises((RuntimeError, NotImplementedError)):
        text_loss(model, tokens_NTC, on_cpu)


def units_of(study: Path) -> dict[str, Unit]:
    rows = read_rows()
    made = plan(Planner(read_study(study), rows, Place("run", "results", "16")), list(rows.rows.values()), [0])
    return {unit.name: unit for unit in made}


def test_rows_of_the_study_begin_with_what_its_pretraining_makes(tmp_path: Path) -> None:
    units = units_of(STUDY)
    pretraining = units["data"].commands[0]
    assert option(units["grpo-0"].commands[0].words, "model") == f"{pretraining.out}/model"
    assert option(pretraining.words, "size") == "midi"
    options = mini_pretrain.parse_arguments(list(pretraining.words[2:]))
    assert sum(stage.steps for stage in mini_pretrain.stages_of(options)) == read_study(STUDY).estimates["midi"].steps
    other = tmp_path / "study.yaml"
    other.write_text(STUDY.read_text().replace("--steps 700", "--steps 701"))
    changed = units_of(other)
    assert all(units[name].digest != changed[name].digest for name in units if units[name].result)


def run_script(script: Path, *words: str, **environment: Any) -> subprocess.CompletedProcess[str]:
    paths = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return subprocess.run(["bash", str(script), *words], capture_output=True, text=True, env=paths | environment)


def test_the_script_explains_itself_and_lists_every_row() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    assert "--seconds N" in run_script(SCRIPT, "--help").stdout
    listed = run_script(SCRIPT, "--dry-run", PYTHON=sys.executable).stdout
    lines = [line.split() for line in listed.splitlines() if line.startswith("python eval/ablation_row.py")]
    assert {option(line, "row") for line in lines} == read_rows().rows.keys()
    fewer = run_script(SCRIPT, "--dry-run", "--table", "3", "--seed", "2", PYTHON=sys.executable).stdout
    assert "sft-grpo-loc, seed 2" in fewer and "# grpo, seed 2" not in fewer


@pytest.mark.parametrize("words", [[], ["--what"], ["--seed"], ["--table", "5"], ["--seconds", "90"], ["--fetch"]])
def test_the_script_refuses_what_it_does_not_know(words: list[str]) -> None:
    done = run_script(SCRIPT, *words)
    assert done.returncode == 2 and done.stderr.startswith("launch/gpu_tables.sh: ")


# In place of the interpreter: a sweep that finishes a row before its time runs out, and one table that can be made.
STAND_IN = """#!/bin/bash
case $1 in
    launch/ablate.py)
        mkdir -p results/midi runs/ablation/midi/logs
        echo {} > results/midi/sft-0.json; echo step > runs/ablation/midi/logs/sft-0.log; exit %d ;;
    eval/ablation_table.py) [ "$3" = 3 ] && echo "| SFT |" > runs/ablation/midi/table-3.md || exit 2 ;;
    -) cat > /dev/null ;;
esac
"""


@pytest.mark.parametrize(("status", "code", "tables"), [(124, 0, True), (1, 1, True), (0, 0, False)])
def test_what_is_finished_when_time_runs_out_is_kept(status: int, code: int, tables: bool, tmp_path: Path) -> None:
    script, python, out = tmp_path / "launch" / SCRIPT.name, tmp_path / "python", tmp_path / "out"
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text())
    python.write_text(STAND_IN % status)
    python.chmod(0o755)
    done = run_script(script, "--out", str(out), PYTHON=str(python))
    assert done.returncode == code, done.stderr
    with tarfile.open(out / "results.tar.gz") as packed:
        assert "results/midi/sft-0.json" in packed.getnames()
    figures = (out / "figures.txt").read_text()
    assert "rows finished: 1" in figures and ("| SFT |" in figures) == tables == (out / "tables.tar.gz").exists()
    assert (out / "logs.tar.gz").exists() and len(list(out.iterdir())) <= 8
