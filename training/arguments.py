"""The options of the training scripts: a few of ours, and TRL's own with our defaults.

A YAML file given by `--config` sets defaults, the command line overrides it, unknown keys fail.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from transformers.hf_argparser import HfArg
from trl import SFTConfig

from data_gen.command_line import UsageError, config_of, read_options
from data_gen.files import write_whole
from training.option_help import OptionParser, nearest

REFERENCE_MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
FREEZABLE = ("vision", "projector")


@dataclass
class ModelArguments:
    """Which model is trained, and how it sees images."""

    _argument_group_name = "the model"

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
    freeze: str | None = field(
        default=None,
        metadata={"help": "What is not trained and gets no adapter: `vision`, `projector` or `vision,projector`."},
    )

    def __post_init__(self) -> None:
        self.freeze = ",".join(self.frozen_parts) or None
        if self.max_pixels is not None and self.max_pixels < 28 * 28:
            raise ValueError(f"--max-pixels must be at least one cell of 28x28 pixels, got {self.max_pixels}")

    @property
    def frozen_parts(self) -> tuple[str, ...]:
        """The parts named by `freeze`, in the order of `FREEZABLE`. Raises ValueError for others."""
        named = {name.strip() for name in (self.freeze or "").split(",")} - {""}
        if unknown := sorted(named.difference(FREEZABLE)):
            raise ValueError(f"--freeze takes {', '.join(FREEZABLE)}; got {', '.join(unknown)}")
        return tuple(name for name in FREEZABLE if name in named)


@dataclass
class DataArguments:
    """What is trained on, and what happens to an output folder that is not empty."""

    _argument_group_name = "data and output folder"

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


def check_length(config: Any) -> None:
    """Raise ValueError for options under which nothing would be trained, and a run would count as finished."""
    if config.max_steps == 0 or (config.max_steps < 0 and config.num_train_epochs <= 0):
        raise ValueError(f"nothing to train: max_steps {config.max_steps}, num_train_epochs {config.num_train_epochs}")


def without_gpu(config: Any) -> None:
    """On a machine without GPU: stay on the CPU, in float32 unless bf16 is asked for."""
    if not torch.cuda.is_available():
        config.use_cpu, config.bf16 = True, bool(config.bf16)


def check_loading(config: Any) -> None:
    """Raise ValueError for options of TRL's loading: the model is loaded here, only its reference would obey them."""
    if config.model_init_kwargs:
        raise ValueError("--model_init_kwargs would reach the reference model only; drop it (but --dtype works)")


class PlainCpu:
    """Names a CPU without an index: `cpu:0` is no place that a saved optimiser can be loaded to."""

    @property
    def device(self) -> torch.device:
        device: torch.device = super().device  # type: ignore[misc]
        return torch.device("cpu") if device.type == "cpu" else device


@dataclass
class SurdsSFTConfig(PlainCpu, SFTConfig):
    """TRL's SFT options with the paper's set-up as defaults."""

    _argument_group_name = "SFT: TRL's options, defaults after the paper"

    output_dir: str = HfArg(default="runs/sft", aliases=["--out"], help="Folder of the run.")
    learning_rate: float = field(default=1e-6, metadata={"help": "Peak learning rate (paper: 1e-6)."})
    num_train_epochs: float = field(default=2, metadata={"help": "Passes over the traces (paper: 2)."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps, or a share of all steps (paper: one tenth)."})
    per_device_train_batch_size: int = field(default=2, metadata={"help": "Samples per device and forward pass."})
    gradient_accumulation_steps: int = field(default=4, metadata={"help": "Forward passes per optimiser step."})
    verifier_share: float = field(
        default=0.0,
        metadata={
            "help": "Of such a share of the traces, 0 to 1, it is also learnt which answer each leads to by itself, as "
            "`logic` asks later: a small model forgets how to tell."
        },
    )
    # An image alone is longer than TRL's default of 1024 tokens, and a cut image cannot be used.
    max_length: int | None = field(default=None, metadata={"help": "Longest sample in tokens; none: not cut."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints kept during the run."})
    logging_steps: float = field(default=10, metadata={"help": "Steps between two log lines."})
    # Every pass has an image, so it reaches every trained weight; not so with --verifier_share.
    ddp_find_unused_parameters: bool | None = field(
        default=False, metadata={"help": "Whether DDP looks for weights that a pass leaves out, which takes time."}
    )
    report_to: str = field(default="none", metadata={"help": "Where metrics go besides the run folder: none, wandb."})

    def __post_init__(self) -> None:
        check_length(self)
        check_loading(self)
        if not 0 <= self.verifier_share <= 1:
            raise ValueError(f"--verifier_share must be 0 to 1, got {self.verifier_share}")
        self.ddp_find_unused_parameters = self.ddp_find_unused_parameters or self.verifier_share > 0
        without_gpu(self)
        super().__post_init__()


def parse_arguments(classes: Sequence[type], arguments: Sequence[str] | None = None, doc: str | None = None) -> Any:
    """Instances of the dataclasses from the command line and `--config`. Exits with 2 and the reason on bad input."""
    parser = OptionParser(classes, doc)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if config := config_of(words):
            check_values(parser, read_options(config))
        return parser.parse([part for word in words for part in _split_config(word)])
    except (ValueError, FileNotFoundError, argparse.ArgumentError) as error:
        fail(str(error))


def check_values(parser: argparse.ArgumentParser, options: dict[str, Any]) -> None:
    """Put the values of a YAML file through the types and choices of the command line, which TRL's parser skips."""
    actions = {action.dest: action for action in parser._actions}
    for name, value in options.items():
        action = actions.get(name)
        if action is None:
            parser.error(f"unknown key {name!r} in the --config file; {nearest(str(name), actions)}")
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
