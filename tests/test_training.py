"""The training room on the tiny model: what is learned, logged, saved and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from PIL import Image

from data_gen.folders import OutputFolder
from data_gen.prompts import verifier_text
from data_gen.records import Question, Trace, read_questions
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS
from rewards.response import parse
from training import grpo, sft
from training.arguments import changed_options, save_config
from training.data import grpo_rows, sft_rows, target_response, verifier_rows
from training.grpo_arguments import parse_grpo
from training.merge import merge
from training.model import load_model
from training.run import shuffled_in_pairs
from training.verification.verifier import answer_scores, verifier_job

FAST = ["--gradient_checkpointing", "false", "--gradient_accumulation_steps", "1", "--model", "tiny"]
SFT = [*FAST, "--per_device_train_batch_size", "8", "--learning_rate", "2e-3", "--logging_steps", "1"]
GRPO = [*FAST, "--per_device_train_batch_size", "8", "--max_completion_length", "12", "--learning_rate", "1e-3"]


def log_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "trainer_state.json").read_text())["log_history"]


def losses(folder: Path) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in log_of(folder) if "loss" in entry}


def run_sft(traces: Path, out: Path, *options: str) -> dict[int, float]:
    sft.main(["--data", str(traces), "--out", str(out), *SFT, *options])
    return losses(out)


def test_sft_loss_falls_and_the_run_is_a_checkpoint(traces: Path, tmp_path: Path) -> None:
    by_step = run_sft(traces, tmp_path / "run", "--max_steps", "12", "--save_strategy", "no")
    assert by_step[12] < 0.8 * by_step[1]
    loaded = load_model(str(tmp_path / "run"))
    assert loaded.tiny and loaded.frame.kind == "resized"
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "learning_rate: 0.002" in config and "model: tiny" in config
    saved = json.loads((tmp_path / "run" / "processor_config.json").read_text())
    assert saved["processor_class"] == "Qwen2_5_VLProcessor"
    assert saved["video_processor"]["video_processor_type"] == "Qwen2VLVideoProcessor"  # else others load none of it


def test_a_resumed_sft_continues_its_loss(traces: Path, tmp_path: Path) -> None:
    options = ["--max_steps", "6", "--save_steps", "3", "--save_total_limit", "9"]
    whole = run_sft(traces, tmp_path / "whole", *options)
    # A run killed while it wrote its second checkpoint: the first one is whole, there are no final weights.
    cut = tmp_path / "cut"
    OutputFolder(cut, "SFT run").prepare()
    (cut / "checkpoint-6").mkdir()
    (cut / "checkpoint-6" / "config.json").write_text("{}")
    (tmp_path / "whole" / "config.yaml").rename(cut / "config.yaml")
    (tmp_path / "whole" / "checkpoint-3").rename(cut / "checkpoint-3")
    state = cut / "checkpoint-3" / "trainer_state.json"
    told = json.loads(state.read_text())
    told["log_history"][-1]["time_spent_s"] = 1000.0
    state.write_text(json.dumps(told))
    resumed = run_sft(traces, cut, *options, "--resume")
    assert {step: resumed[step] for step in (4, 5, 6)} == pytest.approx({step: whole[step] for step in (4, 5, 6)})
    # Control: from its first weights the model would be far from there.
    assert abs(whole[4] - whole[1]) > 0.3
    spent_s = [[line["time_spent_s"] for line in log_of(folder)] for folder in (tmp_path / "whole", cut)]
    assert all(times == sorted(times) for times in spent_s)
    assert spent_s[0][-1] < 600 and 1000 < spent_s[1][-1] < 1600, "the time before the interruption counts"


def test_an_unfinished_run_goes_on_only_with_its_own_options(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, foreign = tmp_path / "run", tmp_path / "foreign"
    options = ["--max_steps", "2", "--save_steps", "1"]
    run_sft(traces, run, *options)
    (run / "frame.json").unlink()
    again = ["--data", str(traces), *SFT, *options]
    changed = [*again, "--out", str(run), "--resume", "--learning_rate", "0.5"]
    assert "learning_rate: 0.002 -> 0.5" in fails(capsys, sft.main, changed)
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    for words, reason in (
        (["--resume"], "was not written by this project"),
        (["--overwrite"], "was not written by this project"),
        (["--resume", "--overwrite"], "one of the two"),
    ):
        assert reason in fails(capsys, sft.main, [*again, "--out", str(foreign), *words])
    assert [path.name for path in foreign.iterdir()] == ["thesis.tex"]


def test_a_run_killed_before_its_last_save_only_saves(traces: Path, tmp_path: Path) -> None:
    options = ["--max_steps", "2", "--save_steps", "1"]
    run_sft(traces, tmp_path, *options)
    weights = (tmp_path / "model.safetensors").read_bytes()
    for name in ("frame.json", "model.safetensors", "trainer_state.json"):
        (tmp_path / name).unlink()
    run_sft(traces, tmp_path, *options, "--resume")
    assert (tmp_path / "model.safetensors").read_bytes() == weights
    assert json.loads((tmp_path / "trainer_state.json").read_text())["global_step"] == 2


def test_a_run_never_lies_on_what_it_reads(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_sft(traces, tmp_path, "--max_steps", "1", "--save_strategy", "no")
    questions = ["--data", str(traces.with_name("questions.jsonl")), "--overwrite"]
    for out, model in ((tmp_path, tmp_path), (traces.parent, tmp_path)):
        message = fails(capsys, grpo.main, [*questions, "--model", str(model), "--out", str(out)])
        assert "is read from the folder" in message
    assert (tmp_path / "model.safetensors").exists() and traces.exists()


def test_bad_input_never_empties_a_finished_run(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sft(traces, tmp_path, "--max_steps", "1", "--save_strategy", "no")
    for wrong in (["--data", str(tmp_path / "none.jsonl")], ["--data", str(traces), "--model", "./nothing"]):
        fails(capsys, sft.main, [*SFT, "--out", str(tmp_path), "--overwrite", *wrong])
        assert (tmp_path / "model.safetensors").exists()


def test_a_finished_run_is_kept_and_a_full_folder_refused(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sft(traces, tmp_path, "--max_steps", "1", "--save_strategy", "no")
    before = (tmp_path / "model.safetensors").stat().st_mtime_ns
    with pytest.raises(SystemExit) as stop:
        run_sft(traces, tmp_path, "--max_steps", "1", "--save_strategy", "no", "--resume")
    assert stop.value.code == 0
    with pytest.raises(SystemExit) as stop:
        run_sft(traces, tmp_path, "--max_steps", "2", "--save_strategy", "no", "--resume")
    assert stop.value.code == 2
    assert "max_steps: 1 -> 2" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        run_sft(traces, tmp_path, "--max_steps", "1")
    assert stop.value.code == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == before


def varied(completions: list[Any], **_: Any) -> list[float]:
    """A reward with spread in every group, whatever an untrained model writes."""
    return [float(index % 3) for index, _ in enumerate(completions)]


def grpo_trainer(questions: Path, out: Path, *options: str, reward: Any = varied) -> Any:
    """The real trainer; its first reward is replaced by `reward` unless that is None."""
    told = parse_grpo(["--data", str(questions), "--out", str(out), *GRPO, *options])
    chosen = grpo.choose_questions(read_questions(questions), told.rewards, told.config, told.data.limit)
    trainer, _ = grpo.make_trainer(told, chosen, questions.parent)
    if reward:
        trainer.reward_funcs[0] = reward
    return trainer


def test_two_grpo_steps_change_every_parameter_and_log_every_reward_and_task(traces: Path, tmp_path: Path) -> None:
    trainer = grpo_trainer(traces.with_name("questions.jsonl"), tmp_path, "--max_steps", "2")
    before = {
        name: weight.detach().clone() for name, weight in trainer.model.named_parameters() if weight.requires_grad
    }
    trainer.train()
    same = [name for name, weight in trainer.model.named_parameters() if torch.equal(weight, before[name])]
    assert len(before) > 60 and same == []
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert {f"rewards/{name}/mean" for name in ("format", "loc", "acc", "logic")} <= logged
    tasks = {name.split("/")[2] for name in logged if name.startswith("rewards/acc/")} & set(TASKS)
    assert len(tasks) >= 2
    assert {f"rewards/{name}/{task}" for name in ("format", "loc", "acc", "logic") for task in tasks} <= logged


def test_a_resumed_grpo_continues_from_its_checkpoint(traces: Path, tmp_path: Path) -> None:
    questions = traces.with_name("questions.jsonl")
    first = grpo_trainer(questions, tmp_path, "--max_steps", "2", "--save_steps", "2")
    start = {name: weight.detach().clone() for name, weight in first.model.named_parameters()}
    first.train()
    resumed = grpo_trainer(questions, tmp_path, "--max_steps", "3", "--resume")
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.state.global_step == 3
    trained = dict(first.model.named_parameters())
    for name, weight in resumed.model.named_parameters():
        # The schedule of two steps has run out, so that the third moves nothing: the weights are the checkpoint's.
        assert torch.equal(weight, trained[name]), name
        assert not torch.equal(weight, start[name]), name


def test_the_order_of_the_questions_is_left_to_the_user_without_pairs(traces: Path, tmp_path: Path) -> None:
    questions = traces.with_name("questions.jsonl")
    assert grpo_trainer(questions, tmp_path).shuffle_dataset is True
    assert grpo_trainer(questions, tmp_path, "--shuffle_dataset", "false").shuffle_dataset is False


def test_grpo_trains_an_adapter_with_the_base_as_reference(traces: Path, tmp_path: Path) -> None:
    options = ["--max_steps", "2", "--use_peft", "--lora_r", "4", "--beta", "0.1"]
    trainer = grpo_trainer(traces.with_name("questions.jsonl"), tmp_path, *options)
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    assert trainer.ref_model is None
    for name, weight in trainer.model.named_parameters():
        assert torch.equal(weight, before[name]) is ("lora" not in name), name
    kl = [entry["kl"] for entry in trainer.state.log_history if "kl" in entry]
    assert kl[0] == 0.0 and kl[1] > 0.0


def test_the_pair_reward_keeps_mirrored_pairs_together(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = traces.with_name("questions.jsonl")
    order = shuffled_in_pairs(read_questions(questions), seed=3, limit=None)
    twos = list(zip(order[::2], order[1::2], strict=True))
    assert all(a.pair_id == b.pair_id for a, b in twos)
    assert {a.variant for a, b in twos if a.pair_id} == {0} and any(a.pair_id is None for a, _ in twos)
    assert order != shuffled_in_pairs(read_questions(questions), seed=4, limit=None)
    trainer = grpo_trainer(questions, tmp_path, "--max_steps", "2", "--rewards", "format, pair")
    assert trainer.shuffle_dataset is False
    trainer.train()
    assert any("rewards/pair/mean" in entry for entry in trainer.state.log_history)
    odd = [
        "--data",
        str(questions),
        "--out",
        str(tmp_path / "odd"),
        *GRPO,
        "--rewards",
        "pair",
        "--num_generations",
        "8",
    ]
    assert "multiple of twice" in fails(capsys, grpo.main, odd)


def test_a_lora_adapter_is_trained_alone_and_loads_merged(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run_sft(traces, run, "--max_steps", "2", "--use_peft", "--lora_r", "4", "--save_strategy", "no")
    assert (run / "adapter_model.safetensors").exists() and not (run / "model.safetensors").exists()
    loaded = load_model(str(run))
    assert not any("lora" in name for name, _ in loaded.model.named_parameters())
    base = dict(load_model("tiny").model.named_parameters())
    assert any(not torch.equal(weight, base[name]) for name, weight in loaded.model.named_parameters())
    assert "merge.py" in fails(
        capsys, sft.main, ["--data", str(traces), "--model", str(run), "--out", str(tmp_path / "b")]
    )
    merge(str(run), tmp_path / "merged")
    merged = load_model(str(tmp_path / "merged"))
    assert merged.frame == loaded.frame
    for (name, weight), (_, other) in zip(
        merged.model.named_parameters(), loaded.model.named_parameters(), strict=True
    ):
        assert torch.equal(weight, other), name


FRAME = CoordinateFrame("thousand")


def some_question(traces: Path, task: str) -> Question:
    return next(item for item in read_questions(traces.with_name("questions.jsonl")) if item.task == task)


def test_a_target_is_written_in_the_frame_of_the_run(traces: Path) -> None:
    question = some_question(traces, "pixel")
    x, y = question.pixel if hasattr(question, "pixel") else question.answer  # type: ignore[misc]
    text = target_response(Trace(question, f"Its centre is [[{x}, {y}]].", "test"), FRAME)
    wanted = f"[{round(x * 1000 / question.width)}, {round(y * 1000 / question.height)}]"
    response = parse(text)
    assert response.well_formed
    assert response.answer == wanted
    assert response.think == f"Its centre is [{wanted}]."


def test_the_verifier_is_taught_what_a_trace_leads_to_without_its_picture(traces: Path) -> None:
    question = some_question(traces, "pixel")
    trace = Trace(question, "Its box is [[10, 20, 30, 40]].", "test")
    (row,), response = verifier_rows([trace], FRAME), parse(target_response(trace, FRAME))
    assert row["images"] == []
    assert row["prompt"] == [{"role": "user", "content": verifier_text(response.think)}]
    assert row["completion"] == [{"role": "assistant", "content": f"<answer>{response.answer}</answer>"}]


def test_sft_with_verifier_rows_learns_to_tell_an_answer_from_its_trace(traces: Path, tmp_path: Path) -> None:
    asked = read_questions(traces)
    scores = []
    for share in ("0", "1"):
        run_sft(traces, tmp_path / share, "--max_steps", "12", "--save_strategy", "no", "--verifier_share", share)
        loaded = load_model(str(tmp_path / share))
        tokenizer = loaded.processor.tokenizer
        jobs = [verifier_job(tokenizer, f"So it is {item.answer_text}.", item.answer_text) for item in asked]
        scores.append(fmean(answer_scores(loaded.model, jobs, tokenizer.pad_token_id, 8, Accelerator(cpu=True))))
    assert scores[1] > scores[0] + 0.5


def test_rows_hold_paths_and_original_pixels(traces: Path) -> None:
    question = some_question(traces, "distance")
    (row,) = grpo_rows([question], traces.parent, FRAME)
    assert row["images"] == [str(traces.parent / question.image)]
    assert [item["bbox"] for item in row["objects"]] == [list(item.bbox) for item in question.objects]
    (target,) = sft_rows([Trace(question, "So.", "test")], traces.parent, FRAME)
    assert target["prompt"] == row["prompt"]


def fails(capsys: pytest.CaptureFixture[str], run: Any, arguments: list[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_bad_input_is_refused_before_a_model_is_loaded(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_model(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("training.run.load_model", no_model)
    questions = str(traces.with_name("questions.jsonl"))
    out = ["--out", str(tmp_path / "out")]
    assert "build_cot.py" in fails(capsys, sft.main, out)
    assert "build_surds.py" in fails(capsys, grpo.main, out)
    assert "no file at" in fails(capsys, grpo.main, ["--data", str(tmp_path / "none.jsonl"), *out])
    message = fails(capsys, grpo.main, ["--data", questions, "--rewards", "format,speed", *out])
    assert "'speed'" in message and "known: format, loc, acc, logic, pair" in message
    assert "weights" in fails(capsys, grpo.main, ["--data", questions, "--reward_weights", "1", "1", *out])
    for values in ("yes", "1,0", "nan,inf", "1"):
        assert "--reward-values" in fails(capsys, grpo.main, ["--data", questions, "--reward_values", values, *out])
    assert "nothing to train" in fails(capsys, grpo.main, ["--data", questions, "--max_steps", "0", *out])
    assert "invalid choice" in fails(capsys, grpo.main, ["--data", questions, "--dtype", "bogus", *out])
    numbers = ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "3", "--num_generations", "5"]
    message = fails(capsys, grpo.main, ["--data", questions, *numbers, *out])
    assert "12 completions" in message and "--num_generations 5" in message and "4, 6" in message


def test_broken_lines_and_missing_images_are_named(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = traces.with_name("questions.jsonl").read_text().splitlines()
    broken = tmp_path / "questions.jsonl"
    out = ["--out", str(tmp_path / "out"), "--images", str(traces.parent), "--model", "tiny"]
    for spoiled, reason in (
        ('{"id": 1', "no JSON"),
        (lines[1].replace('"task": "', '"task": "x'), "unknown task"),
        (lines[1].replace('"width": 160', '"width": "wide"'), "Expected `int`"),
        (lines[0], "repeats the id"),
    ):
        broken.write_text("\n".join([lines[0], spoiled, *lines[2:]]))
        message = fails(capsys, grpo.main, ["--data", str(broken), *out])
        assert reason in message and "questions.jsonl" in message and "2" in message
    broken.write_text("\n".join(lines).replace("003.png", "lost.png"))
    message = fails(capsys, grpo.main, ["--data", str(broken), *out])
    assert "lost.png" in message and "--images" in message


def test_questions_that_do_not_fill_a_batch_are_refused(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--data", str(traces.with_name("questions.jsonl")), "--out", str(tmp_path / "out"), "--model", "tiny"]
    assert "3 questions do not fill a generation batch of 4 prompts" in fails(capsys, grpo.main, [*few, "--limit", "3"])
    assert "--limit must be at least 1" in fails(capsys, grpo.main, [*few, "--limit", "-1"])
    assert "at least 2" in fails(capsys, grpo.main, [*few, "--num_generations", "0"])
    assert not (tmp_path / "out").exists()


def test_images_of_another_size_are_refused(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in traces.parent.glob("*.png"):
        Image.open(path).resize((80, 48)).save(tmp_path / path.name)
    asked = ["--data", str(traces), "--images", str(tmp_path), "--out", str(tmp_path / "out"), "--model", "tiny"]
    assert "is 80x48 pixels, its record says 160x96" in fails(capsys, sft.main, asked)


def test_a_saved_config_is_read_again(traces: Path, tmp_path: Path) -> None:
    told = parse_grpo(["--data", str(traces), "--out", str(tmp_path), *GRPO, "--reward_weights", "1", "2"])
    save_config(tmp_path, told.parts)
    again = parse_grpo(["--config", str(tmp_path / "config.yaml")])
    assert changed_options(tmp_path, again.parts) == []
    assert again.config.reward_weights == [1.0, 2.0] and again.config.generation_batch_size == 8


def test_unknown_keys_of_a_config_fail(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("learning_rat: 1.0\n")
    assert "learning_rat" in fails(capsys, sft.main, ["--data", str(traces), "--config", str(config)])
    for line, reason in (
        ("limit: 1.5", "invalid int"), ("frame: bogus", "invalid choice"), ("learning_rate: [1]", "takes one value"),
        ("[", "no YAML"), ("- a", "must hold"),
    ):  # fmt: skip
        config.write_text(line)
        assert reason in fails(capsys, sft.main, ["--data", str(traces), f"--config={config}"])


@pytest.mark.parametrize("name", ["./nothing-here", "/nothing/here", "runs/none/such"])
def test_a_missing_checkpoint_says_what_is_allowed(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="hub id, or: tiny"):
        load_model(name)
