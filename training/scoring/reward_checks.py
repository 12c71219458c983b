"""What can be said about the chosen rewards, and who verifies, before a model is loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from data_gen.records import Question
from rewards import select_rewards
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS
from training.arguments import fail
from training.grpo_arguments import GRPOOptions, RewardArguments, SurdsGRPOConfig


def check_rewards(rewards: RewardArguments, config: SurdsGRPOConfig) -> None:
    """Exit with 2 for an unknown reward, bad values, or weights and batches that do not match the rewards."""
    try:
        functions = select_rewards(rewards.rewards, rewards.settings(CoordinateFrame()))
    except ValueError as error:
        fail(str(error))
    weights = config.reward_weights
    if weights is not None:
        _check_weights(weights, len(functions), rewards.rewards)
    batch = config.per_device_train_batch_size * config.steps_per_generation
    if rewards.uses_pairs and batch % (2 * config.num_generations):
        fail(
            "the pair reward needs both questions of a pair in one generation batch of one process: "
            f"per_device_train_batch_size x steps_per_generation, here {batch}, must be a multiple of twice "
            f"--num_generations, {2 * config.num_generations}"
        )


def _check_weights(weights: Sequence[float], count: int, rewards: str) -> None:
    if len(weights) != count:
        fail(f"--reward_weights names {len(weights)} weights for the {count} rewards {rewards}")
    if not all(map(math.isfinite, weights)) or not any(weights):
        fail(f"--reward_weights takes finite numbers, not all of them 0 (a 0 only meters); got {list(weights)}")


def check_tasks(options: GRPOOptions, questions: Sequence[Question]) -> None:
    """Exit with 2 when no paid reward applies to a task among the questions."""
    names = options.rewards.rewards.split(",")
    weights = options.config.reward_weights or [1.0] * len(names)
    if lost := unpaid_tasks(names, weights, questions):
        fail(
            f"--rewards {options.rewards.rewards} pays nothing on {', '.join(lost)}: pair applies to mirrored "
            "questions only; add another reward, such as acc, or leave these questions out of --data"
        )


def unpaid_tasks(names: Sequence[str], weights: Sequence[float], questions: Sequence[Question]) -> list[str]:
    """The tasks to which no reward of a weight other than 0 applies, as far as is known: `pair` pays no single ones."""
    paid = {name for name, weight in zip(names, weights, strict=True) if weight}
    single = {question.task for question in questions if question.pair_id is None}
    return [task for task in TASKS if task in single] if paid == {"pair"} else []


def check_verifier(options: GRPOOptions) -> None:
    """Exit with 2 when the model that shall infer answers is not there; say what a server is not asked."""
    verifier = options.rewards.verifier
    if "logic" not in options.rewards.rewards.split(","):
        return
    try:
        verifier.check_reference(options.config.beta > 0 or options.model.use_peft)
        if client := verifier.client():
            client.check()
    except ValueError as error:
        fail(str(error))
    if verifier.served and options.config.process_index == 0:
        print("logic: a server generates its answers (--logic-mode generate); no meters by --logic-compare-steps")
