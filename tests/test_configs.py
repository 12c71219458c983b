"""Every YAML that is checked in parses with the parser of its script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from training.arguments import DataArguments, ModelArguments, SurdsSFTConfig, parse_arguments, resolved
from training.grpo import check_rewards
from training.grpo_arguments import PARTS as GRPO_PARTS
from training.grpo_arguments import GRPOOptions, parse_grpo
from training.schedule.stage_file import read_stages

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "sft": [ModelArguments, DataArguments, SurdsSFTConfig],
    "grpo": GRPO_PARTS,
}
STAGES = sorted((ROOT / "configs" / "stages").glob("*.yaml"))
CONFIGS = sorted(path for kind in PARTS for path in (ROOT / "configs" / kind).glob("*.yaml"))
LAUNCHES = sorted((ROOT / "launch" / "accelerate").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_config_holds_known_keys_and_says_what_it_is_for(path: Path, tmp_path: Path) -> None:
    parts = parse_arguments(PARTS[path.parent.name], ["--config", str(path), "--out", str(tmp_path)])
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    seen = {name: getattr(part, name) for part in parts for name in values if hasattr(part, name)}
    assert set(seen) == set(values)
    if path.parent.name == "grpo":
        told = GRPOOptions(*parts)
        check_rewards(told.rewards, told.config)
        # Whole groups in every forward pass, for the prefix that each shares.
        assert told.config.per_device_train_batch_size % told.config.num_generations == 0
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("surds_3b_vllm.yaml", {"use_vllm", "vllm_max_model_length"}),
        ("surds_3b_lora.yaml", {"use_peft", "dtype", "learning_rate", "gradient_accumulation_steps"}),
    ],
)
def test_a_variant_changes_only_what_it_is_for(name: str, changed: set[str], tmp_path: Path) -> None:
    own, paper = (
        resolved(parse_arguments(PARTS["grpo"], ["--config", str(ROOT / "configs" / "grpo" / file)]))
        for file in (name, "surds_3b.yaml")
    )
    follows = {"steps_per_generation", "generation_batch_size"} if "gradient_accumulation_steps" in changed else set()
    assert {option for option in own if own[option] != paper[option]} - follows == changed


@pytest.mark.parametrize("path", STAGES, ids=lambda path: path.name)
def test_a_stage_file_holds_known_stages_and_says_what_it_is_for(path: Path, tmp_path: Path) -> None:
    told = parse_grpo(["--stages", str(path), "--out", str(tmp_path)])
    check_rewards(told.rewards, told.config)
    assert told.config.max_steps == sum(stage.steps for stage in read_stages(path))
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_the_command_line_overrides_a_config(tmp_path: Path) -> None:
    path = ROOT / "configs" / "grpo" / "tiny.yaml"
    parts = parse_arguments(PARTS["grpo"], ["--config", str(path), "--out", str(tmp_path), "--max_steps", "7"])
    assert parts[-1].max_steps == 7 and parts[-1].beta == 0.04


def test_the_paper_s_set_up_is_the_default(tmp_path: Path) -> None:
    *_, sft = parse_arguments(PARTS["sft"], ["--out", str(tmp_path)])
    assert (sft.learning_rate, sft.num_train_epochs, sft.warmup_steps, sft.max_length) == (1e-6, 2, 0.1, None)
    told = GRPOOptions(*parse_arguments(PARTS["grpo"], ["--out", str(tmp_path)]))
    grpo = told.config
    assert (grpo.num_generations, grpo.max_completion_length, grpo.num_train_epochs) == (4, 512, 1)
    assert (grpo.loss_type, grpo.use_bias_correction_kl) == ("grpo", False)
    assert (told.model.model, told.rewards.rewards) == ("Qwen/Qwen2.5-VL-3B-Instruct", "format,loc,acc,logic")


@pytest.mark.parametrize("path", LAUNCHES, ids=lambda path: path.name)
def test_accelerate_reads_its_files(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(path))
    assert config.num_processes == {"cpu": 1, "ddp_2gpu": 2, "zero2_8gpu": 8, "zero3_8gpu": 8}[path.stem]


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_is_told_the_stage_and_leaves_steps_and_clipping_to_the_run(
    stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By accelerate's own way from the file to DeepSpeed's options, without DeepSpeed."""
    from accelerate.commands import launch
    from accelerate.utils import DeepSpeedPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    file = str(ROOT / "launch" / "accelerate" / f"zero{stage}_8gpu.yaml")
    told, defaults, _ = launch._validate_launch_command(
        launch.launch_command_parser().parse_args(["--config_file", file, "training/grpo.py"])
    )
    fields = list(defaults.deepspeed_config)
    assert not [name for name in fields if not hasattr(told, name)], "accelerate ignores what it does not know"
    told.deepspeed_fields_from_accelerate_config = ",".join(fields)
    for name, value in prepare_deepspeed_cmd_env(told)[1].items():
        if name.startswith("ACCELERATE_"):
            monkeypatch.setenv(name, value)
    options = DeepSpeedPlugin().hf_ds_config.config
    assert (options["gradient_accumulation_steps"], options["gradient_clipping"]) == ("auto", "auto")
    zero = options["zero_optimization"]
    assert (zero["stage"], zero["stage3_gather_16bit_weights_on_model_save"]) == (stage, stage == 3)
    assert {zero["offload_optimizer"]["device"], zero["offload_param"]["device"]} == {"none"}
    assert os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
