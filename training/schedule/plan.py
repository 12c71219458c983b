"""What the options say about stages and order, made to fit together before a model is loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.command_line import UsageError
from data_gen.records import Question
from rewards import select_rewards
from rewards.boxes import CoordinateFrame
from rewards.settings import RewardSettings
from training.arguments import fail
from training.schedule.stage_file import Stage, union_of_rewards
from training.scoring.reward_checks import unpaid_tasks

if TYPE_CHECKING:
    from training.grpo_arguments import GRPOOptions, SurdsGRPOConfig
    from training.schedule.order import Schedule

Row = dict[str, Any]


def settle(options: GRPOOptions) -> None:
    """Let stages set the rewards, those of all stages, and the steps. Raises UsageError on contradictions."""
    if options.schedule.dynamic_sampling:
        check_dynamic_sampling(options.config)
    stages = options.schedule.stage_list
    if not stages:
        return
    config, told = options.config, f"--stages {options.schedule.stages}"
    if config.reward_weights is not None:
        raise UsageError(f"{told} holds the weights of the rewards; drop --reward_weights")
    if config.ignore_data_skip:
        raise UsageError(f"{told} needs its place in the order after a resume; drop --ignore_data_skip")
    for number, stage in enumerate(stages, start=1):
        try:
            select_rewards(stage.rewards, RewardSettings())
        except ValueError as error:
            raise UsageError(f"{told}, stage {number} ({stage.name}): {error}") from error
    steps = sum(stage.steps for stage in stages)
    if config.max_steps not in (-1, steps):
        raise UsageError(
            f"{told} makes {steps} steps, --max_steps says {config.max_steps}; drop it, or where a --config file gives "
            "it, add --max_steps -1"
        )
    rows_of_stages(stages, config, told)
    config.max_steps = steps
    options.rewards.rewards = ",".join(union_of_rewards(stages))


def rows_of_stages(stages: Sequence[Stage], config: SurdsGRPOConfig, told: str = "--stages") -> tuple[int, ...]:
    """How many prompts each stage trains on. Raises UsageError when its steps do not use up whole generation batches.

    A generation batch serves steps_per_generation x num_iterations forward passes, a step takes
    gradient_accumulation_steps of them.
    """
    accumulation, uses = config.gradient_accumulation_steps, config.steps_per_generation * config.num_iterations
    whole = uses // math.gcd(uses, accumulation)
    for number, stage in enumerate(stages, start=1):
        if stage.steps % whole:
            below = stage.steps // whole * whole
            nearest = " or ".join(str(steps) for steps in (below, below + whole) if steps)
            raise UsageError(
                f"{told}, stage {number} ({stage.name}): {stage.steps} steps end within a generation batch, which "
                f"serves {whole} steps (steps_per_generation {config.steps_per_generation} x num_iterations "
                f"{config.num_iterations} over gradient_accumulation_steps {accumulation}); nearest that fit: {nearest}"
            )
    prompts = config.generation_batch_size // config.num_generations
    return tuple(stage.steps * accumulation // uses * prompts for stage in stages)


def measuring_options(options: GRPOOptions) -> dict[str, Any]:
    """The options that pass rates depend on."""
    from training.arguments import resolved
    from training.schedule.curriculum import MEASURED_WITH

    values = resolved(options.parts)
    return {name: values[name] for name in MEASURED_WITH}


def schedule_of(options: GRPOOptions) -> Schedule | None:
    """The schedule of a run, or None when neither stages nor a curriculum set the order."""
    from training.schedule.order import Schedule

    stages, config = options.schedule.stage_list, options.config
    easy_first = options.schedule.curriculum == "pass-rate"
    if not (stages or easy_first):
        return None
    rows = rows_of_stages(stages, config)
    return Schedule(config.seed, options.rewards.uses_pairs, easy_first, stages, rows, options.schedule.stages or "")


def staged_rows(options: GRPOOptions, questions: Sequence[Question], root: Path, frame: CoordinateFrame) -> list[Row]:
    """The rows of the dataset: each question once, or once per stage that it belongs to, with the stage's number."""
    from training.data import grpo_rows

    stages = options.schedule.stage_list
    if not stages:
        return grpo_rows(questions, root, frame)
    of_stages = questions_of_stages(questions, stages)
    rows = grpo_rows([question for _, question in of_stages], root, frame)
    return [{**row, "stage": number} for row, (number, _) in zip(rows, of_stages, strict=True)]


def used_questions(options: GRPOOptions, questions: Sequence[Question]) -> list[Question]:
    """The questions that some stage trains on; all without stages.

    Exits with 2 for a stage that no question belongs to, or that pays nothing on some, naming it and the file.
    """
    from training.schedule.order import Asked, stage_units

    schedule = schedule_of(options)
    if not schedule or not schedule.stages:
        return list(questions)
    rows = questions_of_stages(questions, schedule.stages)
    asked = [Asked(question.id, question.pair_id, question.variant, number) for number, question in rows]
    for number, stage in enumerate(schedule.stages):
        of_stage = [question for place, question in rows if place == number]
        try:
            stage_units(number, asked, schedule, None)
        except ValueError as error:
            fail(f"{error}; the data has {', '.join(sorted({question.task for question in questions}))}")
        if lost := unpaid_tasks(stage.rewards, stage.weights, of_stage):
            fail(
                f"{schedule.label(number)}: its rewards pay nothing on {', '.join(lost)}, pair applies to mirrored "
                "questions only; add another reward, such as acc, or name its tasks"
            )
    used = {question.id for _, question in rows}
    return [question for question in questions if question.id in used]


def questions_of_stages(questions: Sequence[Question], stages: Sequence[Stage]) -> list[tuple[int, Question]]:
    """Number of the stage, from 0, and question, for each question of each stage's tasks."""
    return [
        (number, item)
        for number, stage in enumerate(stages)
        for item in questions
        if not stage.tasks or item.task in stage.tasks
    ]


def check_dynamic_sampling(config: SurdsGRPOConfig) -> None:
    """Raise UsageError for settings under which groups cannot be exchanged one by one."""
    batch, group = config.per_device_train_batch_size * config.steps_per_generation, config.num_generations
    if batch % group:
        raise UsageError(
            f"--dynamic-sampling needs whole groups in each process: per_device_train_batch_size x "
            f"steps_per_generation, here {batch}, must be a multiple of --num_generations, {group}"
        )
    if config.multi_objective_aggregation != "sum_then_normalize" or config.scale_rewards == "batch":
        raise UsageError(
            "--dynamic-sampling exchanges groups after their advantages are known, so these must not depend on other "
            "groups: --multi_objective_aggregation sum_then_normalize and --scale_rewards group or none"
        )
