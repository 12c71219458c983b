"""The options of GRPO: which rewards are paid, how the engine works, in which order questions come, and TRL's own."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers.hf_argparser import HfArg
from trl import GRPOConfig

from rewards.boxes import CoordinateFrame
from rewards.settings import RewardSettings
from training.arguments import (
    DataArguments,
    ModelArguments,
    PlainCpu,
    check_length,
    check_loading,
    fail,
    parse_arguments,
    without_gpu,
)
from training.schedule.stage_file import Stage, read_stages, same_content
from training.verification.verifier_options import VerifierOptions


@dataclass
class RewardArguments:
    """Which rewards are paid, and their variants."""

    _argument_group_name = "rewards"

    rewards: str = field(
        default="format,loc,acc,logic",
        metadata={
            "help": "Names separated by commas: format, loc, acc, logic, pair, or package.module.function, your own in "
            "the current folder or installed: (completions, **columns) -> a finite number per completion, None where "
            "it does not apply. columns: lists of task, options, answer, objects, width, height, question_id, "
            "pair_id, variant, images (paths), prompts, completion_ids. With --reward_weights, 0 only meters."
        },
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
    logic_mode: str = field(
        default="forward",
        metadata={
            "help": "One forward pass over prompt and answer, or generation of an answer.",
            "choices": ["forward", "generate"],
        },
    )
    logic_model: str = field(
        default="self",
        metadata={
            "help": "Who infers the answer: `self` (the policy), `reference` (the frozen model of the KL term, or the "
            "base without its adapter), or URL[,URL] of an OpenAI-compatible server, which always generates."
        },
    )
    logic_endpoint_model: str | None = field(
        default=None, metadata={"help": "With a URL as --logic-model: the name of the model that is served there."}
    )
    logic_compare_steps: int = field(
        default=50,
        metadata={
            "help": "Generation batches between two counts of the meters that cost extra passes: how often both modes "
            "disagree, and what is left with the answer cut out of the trace; 0: none. No reward depends on them; "
            "with a server there are none."
        },
    )
    verifier: VerifierOptions = field(default=VerifierOptions(), init=False)

    def __post_init__(self) -> None:
        self.rewards = ",".join(name.strip() for name in self.rewards.split(","))
        self.verifier = self._verifier()

    @property
    def uses_pairs(self) -> bool:
        """Whether mirrored pairs must stay together."""
        return "pair" in self.rewards.split(",")

    def _verifier(self) -> VerifierOptions:
        """Who infers answers from traces, and how. A server cannot be asked token by token: it generates."""
        served = self.logic_model not in ("self", "reference")
        mode = "generate" if served else self.logic_mode
        return VerifierOptions(mode, self.logic_model, self.logic_endpoint_model, self.logic_compare_steps)

    def settings(self, frame: CoordinateFrame) -> RewardSettings:
        """The settings of the reward functions. Raises ValueError for values that are not two numbers."""
        try:
            low, high = (float(value) for value in self.reward_values.split(","))
        except ValueError:
            raise ValueError(f"--reward-values takes two numbers such as 0,1; got {self.reward_values!r}") from None
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"--reward-values takes two numbers, the lower one first; got {self.reward_values!r}")
        return RewardSettings(frame, (low, high), self.loc_kind, self.acc_kind, self.logic_target)


@dataclass
class EngineArguments:
    """How a step is computed; none of these options changes what is learned."""

    _argument_group_name = "speed"

    shared_prefix: bool = field(
        default=True,
        metadata={"help": "Encode image and prompt once per group in the update; off: TRL's own path."},
    )
    shared_prefill: bool = field(
        default=True,
        metadata={"help": "Prefill each distinct prompt once in generation by transformers; off: TRL's own path."},
    )


@dataclass
class ScheduleArguments:
    """Which questions are trained on in which order, and what is measured meanwhile."""

    _argument_group_name = "order of the questions, and what is measured meanwhile"

    stages: str | None = field(
        default=None,
        metadata={"help": "YAML file of successive stages: rewards, weights, tasks, difficulty and steps of each."},
    )
    curriculum: str = field(
        default="none",
        metadata={
            "help": "Order of the questions: seeded shuffle, or from easy to hard by the model's own pass rate.",
            "choices": ["none", "pass-rate"],
        },
    )
    # What the content of --stages must be. Nobody need give it: it is recorded with the run.
    stages_sha256: str | None = field(default=None, metadata={"help": argparse.SUPPRESS})
    dynamic_sampling: int = field(
        default=0,
        metadata={"help": "Times a generation batch may draw other prompts for its groups without spread; 0: never."},
    )
    held_out: str | None = field(
        default=None,
        metadata={
            "help": "Questions of other scenes, answered greedily every --eval_steps steps and after the last, in at "
            "most --max_completion_length tokens, and scored as eval/surds.py does."
        },
    )
    held_out_limit: int | None = field(
        default=None, metadata={"help": "Score only the first N units of every task (a mirrored pair is one unit)."}
    )
    check: bool = field(
        default=False, metadata={"help": "Check options and data, and stop before anything is loaded or written."}
    )
    stage_list: tuple[Stage, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if self.dynamic_sampling < 0:
            raise ValueError(f"--dynamic-sampling must be 0 or more rounds, got {self.dynamic_sampling}")
        if self.stages:
            self.stage_list = read_stages(Path(self.stages))
            self.stages_sha256 = same_content(Path(self.stages), self.stages_sha256)


@dataclass
class SurdsGRPOConfig(PlainCpu, GRPOConfig):
    """TRL's GRPO options with the paper's set-up as defaults; what the paper leaves open follows VLM-R1."""

    _argument_group_name = "GRPO: TRL's options, defaults after the paper"

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
    eval_steps: float | None = field(default=100, metadata={"help": "Steps between two scores of --held_out."})
    num_generations_eval: int | None = field(
        default=1, metadata={"help": "Answers to a held-out question; always one."}
    )
    metric_for_best_model: str | None = field(
        default="held_out/score", metadata={"help": "What --load_best_model_at_end and --save_strategy best go by."}
    )
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints kept during the run."})
    logging_steps: float = field(default=1, metadata={"help": "Steps between two log lines."})
    # Every pass has an image, so it reaches every trained weight.
    ddp_find_unused_parameters: bool | None = field(
        default=False, metadata={"help": "Whether DDP looks for weights that a pass leaves out, which takes time."}
    )
    report_to: str = field(default="none", metadata={"help": "Where metrics go besides the run folder: none, wandb."})

    def __post_init__(self) -> None:
        check_length(self)
        check_loading(self)
        without_gpu(self)
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


@dataclass(frozen=True)
class GRPOOptions:
    """Everything a GRPO run is told, one part per idea."""

    model: ModelArguments
    data: DataArguments
    rewards: RewardArguments
    engine: EngineArguments
    schedule: ScheduleArguments
    config: SurdsGRPOConfig

    @property
    def parts(self) -> tuple[Any, ...]:
        """The dataclasses in the order of the parser."""
        return (self.model, self.data, self.rewards, self.engine, self.schedule, self.config)


PARTS = (ModelArguments, DataArguments, RewardArguments, EngineArguments, ScheduleArguments, SurdsGRPOConfig)


def parse_grpo(arguments: Sequence[str] | None = None, doc: str | None = None) -> GRPOOptions:
    """The options from the command line and `--config`. Exits with 2 and the reason on bad input."""
    from training.schedule.plan import settle

    options = GRPOOptions(*parse_arguments(PARTS, arguments, doc))
    try:
        settle(options)
    except ValueError as error:
        fail(str(error))
    return options
