"""GRPO with verifiable rewards.

    accelerate launch training/grpo.py --rewards format,loc,acc,logic --model runs/sft --data questions.jsonl

Takes TRL's GRPO options and a few of ours; `--help` lists them. Writes a checkpoint folder with `frame.json`,
`config.yaml` (every option as resolved) and `trainer_state.json` (every reward, in all and per task, by step).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.arguments import DataArguments, ModelArguments, RewardArguments, SurdsGRPOConfig, fail, parse_arguments


def make_trainer(
    model: ModelArguments, data: DataArguments, rewards: RewardArguments, config: SurdsGRPOConfig
) -> tuple[Any, Any]:
    """The trainer on the questions of `data`, and the loaded model. Exits with 2 on bad input."""
    from rewards import select_rewards
    from training.data import grpo_rows, to_dataset
    from training.run import (
        SaveFrame,
        load_for_training,
        lora_config,
        read_questions_and_root,
        shuffled,
        shuffled_in_pairs,
    )
    from training.trainer import SpatialGRPOTrainer

    questions, root = read_questions_and_root(data)
    loaded = load_for_training(model)
    settings = rewards.settings(loaded.frame)
    if uses_pairs(rewards):
        questions, config.shuffle_dataset = shuffled_in_pairs(questions, config.seed, data.limit), False
    else:
        questions = shuffled(questions, config.seed, data.limit)
    trainer = SpatialGRPOTrainer(
        model=loaded.model,
        reward_funcs=select_rewards(rewards.rewards, settings),
        args=config,
        train_dataset=to_dataset(grpo_rows(questions, root, loaded.frame)),
        processing_class=loaded.processor,
        peft_config=lora_config(model),
        callbacks=[SaveFrame(loaded.frame, loaded.tiny)],
        settings=settings,
    )
    return trainer, loaded


def check_rewards(rewards: RewardArguments, config: SurdsGRPOConfig) -> None:
    """Exit with 2 for an unknown reward, bad values, or weights that do not match, before a model is loaded."""
    from rewards import select_rewards
    from rewards.boxes import CoordinateFrame

    try:
        functions = select_rewards(rewards.rewards, rewards.settings(CoordinateFrame()))
    except ValueError as error:
        fail(str(error))
    weights = config.reward_weights
    if weights is not None and len(weights) != len(functions):
        fail(f"--reward_weights names {len(weights)} weights for the {len(functions)} rewards {rewards.rewards}")
    batch = config.per_device_train_batch_size * config.steps_per_generation
    if uses_pairs(rewards) and batch % (2 * config.num_generations):
        fail(
            "the pair reward needs both questions of a pair in one generation batch of one process: "
            f"per_device_train_batch_size x steps_per_generation, here {batch}, must be a multiple of twice "
            f"--num_generations, {2 * config.num_generations}"
        )


def uses_pairs(rewards: RewardArguments) -> bool:
    """Whether mirrored pairs must stay together."""
    return "pair" in rewards.rewards.split(",")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the chosen rewards and save the run."""
    parts = parse_arguments([ModelArguments, DataArguments, RewardArguments, SurdsGRPOConfig], arguments, __doc__)
    model, data, rewards, config = parts
    from training.run import open_run, train

    check_rewards(rewards, config)
    checkpoint = open_run(data, config, parts, builder="python data_gen/build_surds.py --nuscenes DIR")
    trainer, loaded = make_trainer(model, data, rewards, config)
    train(trainer, loaded, checkpoint, rows=f"questions, rewards {rewards.rewards}")


if __name__ == "__main__":
    main()
