"""The options of the training scripts: a few of ours, and TRL's own with our defaults.

A YAML file given by `--config` sets defaults, the command line overrides it, unknown keys fail.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from transformers.hf_argparser import HfArg
from trl import GRPOConfig, SFTConfig, TrlParser

from data_gen.command_line import HelpFormatter, UsageError, config_of, read_options
from data_gen.files import write_whole
from rewards.boxes import CoordinateFrame
from rewards.settings import RewardSettings

REFERENCE_MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"


@dataclass
class ModelArguments:
    """Which model is trained, and how it sees images."""

    model: str = field(
        default=REFERENCE_MODEL,
        metadata={"help": "`tiny` (random, built on first use), a checkpoint folder, or a hub id."},
    )
    dtype: str = field(
        default="float32",
        metadata={
            "help": "Type of the trained weights. With bfloat16 weights a learning rate of 1e-6 rounds away.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    max_pixels: int | None = field(
        default=None,
        metadata={"help": "Largest area of a resized image; default: what the checkpoint says. Saved with the run."},
    )
    frame: str | None = field(
        default=None,
        metadata={
            "help": "Coordinates the model writes; default: by checkpoint or model family.",
            "choices": ["original", "resized", "thousand"],
        },
    )
    use_peft: bool = field(default=False, metadata={"help": "Train a LoRA adapter instead of the whole model."})
    lora_r: int = field(default=64, metadata={"help": "Rank of the adapter."})
    lora_alpha: int = field(default=128, metadata={"help": "Scale of the adapter."})
    lora_target_modules: str = field(
        default="all-linear", metadata={"help": "Modules that get an adapter: a PEFT name or a regular expression."}
    )

    def __post_init__(self) -> None:
        if self.max_pixels is not None and self.max_pixels < 28 * 28:
            raise ValueError(f"--max-pixels must be at least one cell of 28x28 pixels, got {self.max_pixels}")


@dataclass
class DataArguments:
    """What is trained on, and what happens to an output folder that is not empty."""

    data: str | None = field(default=None, metadata={"help": "Questions or traces as JSON Lines. Required."})
    images: str | None = field(
        default=None, metadata={"help": "Folder that image paths start from; default: the data's manifest.json."}
    )
    limit: int | None = field(default=None, metadata={"help": "Use only the first N rows of a seeded shuffle."})
    resume: bool = field(default=False, metadata={"help": "Continue in the output folder; a finished run is kept."})
    overwrite: bool = field(default=False, metadata={"help": "Delete what the output folder holds."})

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"--limit must be at least 1, got {self.limit}")


@dataclass
class RewardArguments:
    """Which rewards are paid, and their variants."""

    rewards: str = field(
        default="format,loc,acc,logic", metadata={"help": "Names separated by commas: format, loc, acc, logic, pair."}
    )
    reward_values: str = field(
        default="0,1", metadata={"help": "What a wrong and a right output are paid: `0,1` or `-1,1`."}
    )
    loc_kind: str = field(
        default="mean",
        metadata={"help": "How boxes are scored.", "choices": ["mean", "all", "linear", "giou"]},
    )
    acc_kind: str = field(
        default="strict",
        metadata={"help": "How answers are scored; linear grades points and depths.", "choices": ["strict", "linear"]},
    )
    logic_target: str = field(
        default="generated",
        metadata={"help": "Answer the verifier must reach from the reasoning.", "choices": ["generated", "truth"]},
    )

    def __post_init__(self) -> None:
        self.rewards = ",".join(name.strip() for name in self.rewards.split(","))

    @property
    def uses_pairs(self) -> bool:
        """Whether mirrored pairs must stay together."""
        return "pair" in self.rewards.split(",")

    def settings(self, frame: CoordinateFrame) -> RewardSettings:
        """The settings of the reward functions. Raises ValueError for values that are not two numbers."""
        try:
            low, high = (float(value) for value in self.reward_values.split(","))
        except ValueError:
            raise ValueError(f"--reward-values takes two numbers such as 0,1; got {self.reward_values!r}") from None
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"--reward-values takes two numbers, the lower one first; got {self.reward_values!r}")
        return RewardSettings(frame, (low, high), self.loc_kind, self.acc_kind, self.logic_target)


def _check_length(config: Any) -> None:
    """Raise ValueError for options under which nothing would be trained, and a run would count as finished."""
    if config.max_steps == 0 or (config.max_steps < 0 and config.num_train_epochs <= 0):
        raise ValueError(f"nothing to train: max_steps {config.max_steps}, num_train_epochs {config.num_train_epochs}")


def _without_gpu(config: Any) -> None:
    """On a machine without GPU: stay on the CPU, in float32."""
    if not torch.cuda.is_available():
        config.use_cpu, config.bf16 = True, False


class _PlainCpu:
    """Names a CPU without an index: `cpu:0` is no place that a saved optimiser can be loaded to."""

    @property
    def device(self) -> torch.device:
        device: torch.device = super().device  # type: ignore[misc]
        return torch.device("cpu") if device.type == "cpu" else device


@dataclass
class SurdsSFTConfig(_PlainCpu, SFTConfig):
    """TRL's SFT options with the paper's set-up as defaults."""

    output_dir: str = HfArg(default="runs/sft", aliases=["--out"], help="Folder of the run.")
    learning_rate: float = field(default=1e-6, metadata={"help": "Peak learning rate (paper: 1e-6)."})
    num_train_epochs: float = field(default=2, metadata={"help": "Passes over the traces (paper: 2)."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps, or a share of all steps (paper: one tenth)."})
    per_device_train_batch_size: int = field(default=2, metadata={"help": "Samples per device and forward pass."})
    gradient_accumulation_steps: int = field(default=4, metadata={"help": "Forward passes per optimiser step."})
    # An image alone is longer than TRL's default of 1024 tokens, and a cut image cannot be used.
    max_length: int | None = field(default=None, metadata={"help": "Longest sample in tokens; none: not cut."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints kept during the run."})
    logging_steps: float = field(default=10, metadata={"help": "Steps between two log lines."})
    report_to: str = field(default="none", metadata={"help": "Where metrics go besides the run folder: none, wandb."})

    def __post_init__(self) -> None:
        _check_length(self)
        _without_gpu(self)
        super().__post_init__()


@dataclass
class SurdsGRPOConfig(_PlainCpu, GRPOConfig):
    """TRL's GRPO options with the paper's set-up as defaults; what the paper leaves open follows VLM-R1."""

    output_dir: str = HfArg(default="runs/grpo", aliases=["--out"], help="Folder of the run.")
    learning_rate: float = field(default=1e-6, metadata={"help": "Peak learning rate (paper: not given)."})
    num_train_epochs: float = field(default=1, metadata={"help": "Passes over the questions (paper: 1)."})
    num_generations: int = field(default=4, metadata={"help": "Completions per prompt (paper: 4)."})
    max_completion_length: int = field(default=512, metadata={"help": "Longest completion in tokens (paper: 512)."})
    per_device_train_batch_size: int = field(default=4, metadata={"help": "Completions per device and forward pass."})
    gradient_accumulation_steps: int = field(default=4, metadata={"help": "Forward passes per optimiser step."})
    beta: float = field(default=0.04, metadata={"help": "Weight of the KL term (paper: not given)."})
    loss_type: str = field(default="grpo", metadata={"help": "TRL's loss; `grpo` is the paper's."})
    use_bias_correction_kl: bool = field(default=False, metadata={"help": "TRL's corrected KL; off is the textbook's."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints kept during the run."})
    logging_steps: float = field(default=1, metadata={"help": "Steps between two log lines."})
    report_to: str = field(default="none", metadata={"help": "Where metrics go besides the run folder: none, wandb."})

    def __post_init__(self) -> None:
        _check_length(self)
        _without_gpu(self)
        check_generations(
            self.generation_batch_size, self.per_device_train_batch_size, self.steps_per_generation,
            self.gradient_accumulation_steps, self.num_generations,
        )  # fmt: skip
        super().__post_init__()


def check_generations(
    generation_batch: int | None, per_device: int, steps_per_generation: int | None, accumulation: int, group: int
) -> None:
    """Raise ValueError when a generation batch does not hold whole groups, with the nearest group sizes that fit."""
    if group < 2:
        raise ValueError(f"--num_generations must be at least 2, got {group}: an advantage is relative to the others")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    size = generation_batch or per_device * processes * (steps_per_generation or accumulation)
    if size % group == 0:
        return
    legal = sorted((n for n in range(2, size + 1) if size % n == 0), key=lambda n: (abs(n - group), n))[:2]
    raise ValueError(
        f"a generation batch of {size} completions (per_device_train_batch_size {per_device} x {processes} processes x "
        f"{steps_per_generation or accumulation} steps per generation) holds no whole groups of --num_generations "
        f"{group}; nearest that fit: {', '.join(map(str, legal)) or 'none, enlarge the batch'}"
    )


def parse_arguments(classes: Sequence[type], arguments: Sequence[str] | None = None, doc: str | None = None) -> Any:
    """Instances of the dataclasses from the command line and `--config`. Exits with 2 and the reason on bad input."""
    parser = TrlParser(
        list(classes),
        description=doc,
        formatter_class=HelpFormatter,
        epilog="--config FILE.yaml sets any of these options; the command line wins, and unknown keys fail.",
    )
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if config := config_of(words):
            check_values(parser, read_options(config))
        return parser.parse_args_and_config([part for word in words for part in _split_config(word)])
    except (ValueError, FileNotFoundError, argparse.ArgumentError) as error:
        fail(str(error))


def check_values(parser: argparse.ArgumentParser, options: dict[str, Any]) -> None:
    """Put the values of a YAML file through the types and choices of the command line, which TRL's parser skips."""
    actions = {action.dest: action for action in parser._actions}
    for name, value in options.items():
        action = actions.get(name)
        if action is None:
            parser.error(f"unknown key {name!r} in the --config file; --help lists the options")
        if value in (None, []) or isinstance(value, dict):
            continue
        if isinstance(value, list) and action.nargs is None:
            parser.error(f"{name} takes one value, got {value}")
        for item in value if isinstance(value, list) else [value]:
            parser._check_value(action, parser._get_value(action, str(item)))


def _split_config(word: str) -> list[str]:
    """`--config=FILE` as the two words that TRL's parser looks for."""
    return word.split("=", 1) if word.startswith("--config=") else [word]


def fail(message: str) -> NoReturn:
    """End the program as argparse does for bad input: the reason on stderr, exit status 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


CONFIG_FILE = "config.yaml"
# Where a run lies, and whether it goes on or anew, does not change what it is.
_NOT_THE_RUN = {"resume", "overwrite", "output_dir"}


def resolved(parts: Sequence[Any]) -> dict[str, Any]:
    """Every option with its value, such that `--config` reads it again."""
    options: dict[str, Any] = {}
    for part in parts:
        values = part.to_dict() if hasattr(part, "to_dict") else asdict(part)
        known = {item.name for item in fields(part) if item.init}
        options |= {name: value for name, value in values.items() if name in known}
    if options.get("steps_per_generation"):
        options.pop("generation_batch_size", None)  # TRL derives it, and refuses to be given both
    return options


def save_config(folder: Path, parts: Sequence[Any]) -> None:
    """Write every option as resolved to `config.yaml`."""
    write_whole(folder / CONFIG_FILE, yaml.safe_dump(resolved(parts), sort_keys=True, allow_unicode=True))


def changed_options(folder: Path, parts: Sequence[Any]) -> list[str]:
    """What differs between the options of the run in a folder and these, one `name: there -> here` each."""
    try:
        there = read_options(folder / CONFIG_FILE)
    except UsageError as error:
        return [str(error)]
    here = yaml.safe_load(yaml.safe_dump(resolved(parts)))
    names = sorted((there.keys() | here.keys()) - _NOT_THE_RUN)
    return [f"{name}: {there.get(name)} -> {here.get(name)}" for name in names if there.get(name) != here.get(name)]
