"""GRPO with verifiable rewards.

    accelerate launch training/grpo.py --rewards format,loc,acc,logic --model runs/sft --data questions.jsonl

Takes TRL's GRPO options and a few of ours; `--help` lists them. Writes a checkpoint folder with `frame.json`,
`config.yaml` (every option as resolved) and `trainer_state.json` (every reward, in all and per task, by step).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError
from data_gen.records import Question
from training.arguments import fail
from training.grpo_arguments import GRPOOptions, RewardArguments, SurdsGRPOConfig, parse_grpo
from training.rollouts.vllm_check import require_vllm
from training.scoring.held_out_questions import HeldOut, check_schedule, read_held_out
from training.scoring.reward_checks import check_rewards, check_tasks, check_verifier

BUILDER = "python data_gen/build_surds.py --nuscenes DIR"


def make_trainer(
    options: GRPOOptions, questions: Sequence[Question], root: Path, held_out: HeldOut | None = None
) -> tuple[Any, Any]:
    """The trainer on the questions, their images under `root`, and the loaded model. held_out: scored meanwhile."""
    from rewards import select_rewards
    from training.data import grpo_rows, to_dataset
    from training.run import SaveFrame, load_for_training, lora_config
    from training.schedule.curriculum import OrderByPassRate
    from training.schedule.plan import measuring_options, schedule_of, staged_rows
    from training.trainer import SpatialGRPOTrainer

    loaded = load_for_training(options.model)
    settings = options.rewards.settings(loaded.frame)
    schedule = schedule_of(options)
    trainer = SpatialGRPOTrainer(
        model=loaded.model,
        reward_funcs=select_rewards(options.rewards.rewards, settings),
        args=options.config,
        train_dataset=to_dataset(staged_rows(options, questions, root, loaded.frame)),
        eval_dataset=to_dataset(grpo_rows(held_out.questions, held_out.root, loaded.frame)) if held_out else None,
        processing_class=loaded.processor,
        peft_config=lora_config(options.model),
        callbacks=[SaveFrame(loaded.frame, loaded.tiny)],
        settings=settings,
        verifier=options.rewards.verifier,
        shared_prefix=options.engine.shared_prefix,
        shared_prefill=options.engine.shared_prefill,
        schedule=schedule,
        dynamic_sampling=options.schedule.dynamic_sampling,
        draws_in_twos=options.rewards.uses_pairs,
    )
    if schedule and schedule.needs_pass_rates:
        trainer.add_callback(OrderByPassRate(trainer, loaded.frame, measuring_options(options)))
    return trainer, loaded


def choose_questions(
    questions: Sequence[Question], rewards: RewardArguments, config: SurdsGRPOConfig, limit: int | None
) -> list[Question]:
    """The questions in training order. Exits with 2 when they do not fill one generation batch."""
    from training.run import shuffled, shuffled_in_pairs

    if rewards.uses_pairs:
        config.shuffle_dataset = False  # TRL's own shuffling would part the pairs
    chosen = (shuffled_in_pairs if rewards.uses_pairs else shuffled)(questions, config.seed, limit)
    if len(chosen) < (needed := config.generation_batch_size // config.num_generations):
        fail(
            f"{len(chosen)} questions do not fill a generation batch of {needed} prompts ({config.num_generations} of "
            f"{config.generation_batch_size} completions each); give more questions, or a smaller batch by "
            "--per_device_train_batch_size and --gradient_accumulation_steps"
        )
    return chosen


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the chosen rewards and save the run. Exits with 2 on bad input, before anything is written."""
    options = parse_grpo(arguments, __doc__)
    data, rewards, config = options.data, options.rewards, options.config
    from training.run import check_model, open_run, output_folder, read_questions_and_root, train
    from training.schedule.plan import used_questions

    check_rewards(rewards, config)
    check_schedule(options.schedule, config)
    check_verifier(options)
    try:
        require_vllm(config, options.model)
    except UsageError as error:
        fail(str(error))
    questions, root = read_questions_and_root(data, BUILDER)
    chosen = used_questions(options, choose_questions(questions, rewards, config, data.limit))
    check_tasks(options, chosen)
    held_out = read_held_out(options.schedule, chosen, root, BUILDER)
    check_model(options.model.model)
    if options.schedule.check:
        try:
            output_folder(Path(config.output_dir), data, options.parts).check()
        except FileExistsError as error:
            fail(str(error))
        if config.process_index == 0:
            print(f"{data.data}: options and data are in order, rewards {rewards.rewards}; nothing was trained")
        return
    checkpoint = open_run(data, config, options.parts)
    trainer, loaded = make_trainer(options, chosen, root, held_out)
    weights = (
        f" (weights {', '.join(f'{weight:g}' for weight in config.reward_weights)})" if config.reward_weights else ""
    )
    rows = f"{len(chosen)} of {len(questions)} questions of {data.data}, rewards {rewards.rewards}{weights}"
    try:
        train(trainer, loaded, checkpoint, "GRPO", rows)
    except UsageError as error:
        fail(str(error))


if __name__ == "__main__":
    main()
