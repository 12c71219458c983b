"""What both training scripts do around their trainer: output folder, data, checkpoint to resume, final save."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list
from transformers import AutoConfig, TrainerCallback, TrainerState
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer import TRAINER_STATE_NAME

from data_gen.folders import OutputFolder
from data_gen.images import check_images, image_root
from data_gen.records import Question, RecordError, Trace, read_questions, read_traces
from rewards.boxes import CoordinateFrame, Size
from training.arguments import DataArguments, ModelArguments, changed_options, fail, save_config
from training.card import write_card
from training.data import describe_images, image_sizes
from training.frozen import excluded_modules, freeze, keep_features
from training.grpo_arguments import RewardArguments
from training.model import FRAME_FILE, LoadedModel, load_model, resolve_name, save_frame
from training.progress import watch
from training.time_spent import TimeSpent

Row = TypeVar("Row")


class SaveFrame(TrainerCallback):
    """Puts `frame.json` into every checkpoint."""

    def __init__(self, frame: CoordinateFrame, tiny: bool) -> None:
        self.frame, self.tiny = frame, tiny

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer after it has written a checkpoint."""
        if state.is_world_process_zero:
            save_frame(Path(args.output_dir) / f"checkpoint-{state.global_step}", self.frame, self.tiny)


def last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end (the frame is written last), or None."""
    whole = [path.parent for path in folder.glob(f"checkpoint-*/{FRAME_FILE}")]
    return str(max(whole, key=lambda path: int(path.name.rpartition("-")[2]))) if whole else None


def open_run(data: DataArguments, config: Any, parts: Sequence[Any]) -> str | None:
    """Prepare the output folder and save the resolved config there; the checkpoint to resume from, if any.

    Every process calls it, the main one decides and writes. Exits with 2 when the folder must not be touched, with 0
    when a finished run with the same options is resumed.
    """
    folder = Path(config.output_dir)
    decision = [_claim(folder, data, parts) if config.process_index == 0 else None]
    problem, finished = broadcast_object_list(decision)[0]
    if problem:
        fail(problem)
    if finished:
        print(f"{folder} holds a finished run; nothing to do")
        raise SystemExit(0)
    return last_checkpoint(folder)


def _claim(folder: Path, data: DataArguments, parts: Sequence[Any]) -> tuple[str | None, bool]:
    """(why the folder must not be touched, whether it holds this very run, finished); saves the config if neither."""
    try:
        output_folder(folder, data, parts).prepare()
    except FileExistsError as error:
        return str(error), False
    finished = (folder / FRAME_FILE).exists()
    if (finished or last_checkpoint(folder)) and (changed := changed_options(folder, parts)):
        listed = "\n  ".join(changed)
        return f"{folder} holds a run with other options; take another --out, or --overwrite\n  {listed}", False
    if not finished:
        save_config(folder, parts)
    return None, finished


def output_folder(folder: Path, data: DataArguments, parts: Sequence[Any]) -> OutputFolder:
    """What may happen to the folder of a run."""
    kind = "GRPO run" if any(isinstance(part, RewardArguments) for part in parts) else "SFT run"
    inputs = tuple(Path(name) for name in (data.data, data.images, parts[0].model) if name)
    return OutputFolder(folder, kind, data.resume, data.overwrite, inputs)


def read_questions_and_root(data: DataArguments, builder: str) -> tuple[list[Question], Path]:
    """The questions of `--data` and the folder of their images. Exits with 2 on bad data, naming `builder`."""
    return _read(data, builder, read_questions, list)


def read_traces_and_root(data: DataArguments, builder: str) -> tuple[list[Trace], Path]:
    """The traces of `--data` and the folder of their images. Exits with 2 on bad data, naming `builder`."""
    return _read(data, builder, read_traces, lambda traces: [trace.question for trace in traces])


def _read(
    data: DataArguments,
    builder: str,
    reader: Callable[[Path], list[Row]],
    questions_of: Callable[[list[Row]], list[Question]],
) -> tuple[list[Row], Path]:
    if data.data is None:
        fail(f"--data is missing: a JSON Lines file; build it with: {builder}")
    path = Path(data.data)
    try:
        rows = reader(path)
        root = image_root(path, Path(data.images) if data.images else None)
        check_images(questions_of(rows), root)
    except (RecordError, FileNotFoundError) as error:
        fail(str(error))
    return rows, root


def shuffled(rows: Sequence[Row], seed: int, limit: int | None) -> list[Row]:
    """The rows in a seeded order, the first `limit` of them."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order[:limit]


def shuffled_in_pairs(questions: Sequence[Question], seed: int, limit: int | None) -> list[Question]:
    """The questions in a seeded order in which both of a mirrored pair stand at places 2i and 2i + 1.

    Questions without a partner are put together in twos; an odd one, and a question whose partner is missing, is left
    out.
    """
    of_unit: dict[str, list[Question]] = {}
    for question in questions:
        of_unit.setdefault(question.unit, []).append(question)
    alone = shuffled([unit[0] for unit in of_unit.values() if unit[0].pair_id is None], seed, None)
    twos = [unit for unit in of_unit.values() if len(unit) == 2]
    twos += [list(two) for two in zip(alone[::2], alone[1::2], strict=False)]
    return [question for two in shuffled(twos, seed, None) for question in two][:limit]


def check_model(name: str) -> None:
    """Exit with 2, before anything is written, when `name` is no checkpoint to train.

    An adapter is refused: the reference model of the KL term would be loaded from the base, without it.
    """
    if (Path(name) / "adapter_config.json").exists():
        fail(f"{name} is a LoRA adapter; merge it first: python training/merge.py --model {name} --out DIR")
    try:
        AutoConfig.from_pretrained(resolve_name(name))
    except OSError as error:  # FileNotFoundError is one
        fail(f"--model {name} cannot be loaded; give `tiny`, a checkpoint folder or a hub id within reach: {error}")


def load_for_training(arguments: ModelArguments) -> LoadedModel:
    """The model to train, left where the trainer wants it."""
    if is_deepspeed_zero3_enabled():
        import deepspeed

        # The weights are sharded while they are loaded, which needs DeepSpeed's view of the processes before then.
        deepspeed.init_distributed()
    loaded = load_model(
        arguments.model,
        frame_kind=arguments.frame,
        max_pixels=arguments.max_pixels,
        dtype=arguments.dtype,
        device=None,
    )
    # Qwen2.5-VL names its special tokens in the text config only; the trainer would warn that they are new.
    for name in ("eos_token_id", "bos_token_id", "pad_token_id"):
        setattr(loaded.model.config, name, getattr(loaded.processor.tokenizer, name))
    if arguments.frozen_parts:
        try:
            freeze(loaded.model, arguments.frozen_parts)
        except ValueError as error:
            fail(str(error))
        keep_features(loaded.model, arguments.frozen_parts)
    return loaded


def lora_config(arguments: ModelArguments) -> Any:
    """PEFT's configuration, or None for training the whole model."""
    if not arguments.use_peft:
        return None
    from peft import LoraConfig

    # Dropout would stay on while completions are sampled, so there is none.
    return LoraConfig(
        r=arguments.lora_r,
        lora_alpha=arguments.lora_alpha,
        lora_dropout=0.0,
        target_modules=arguments.lora_target_modules,
        exclude_modules=excluded_modules(arguments.frozen_parts),
        task_type="CAUSAL_LM",
    )


def train(trainer: Any, loaded: LoadedModel, checkpoint: str | None, stage: str, rows: str) -> None:
    """Say what is trained on what, train (from a checkpoint if given), save the run, say where it is."""
    watch(trainer)
    trainer.add_callback(TimeSpent)
    main = trainer.is_world_process_zero()
    if main:
        from_there = f"; goes on from {checkpoint}" if checkpoint else ""
        processes = trainer.accelerator.num_processes
        told = f"{describe(loaded, image_sizes(trainer.train_dataset))}; {rows}"
        print(f"{told}; {processes} process{'es' if processes > 1 else ''}{from_there}", flush=True)
    if checkpoint and is_trained(checkpoint, trainer):
        trainer._load_from_checkpoint(checkpoint)
        trainer.state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
    else:
        _train_until_interrupted(trainer, checkpoint)
    save_run(trainer, loaded, stage, rows)
    trainer.accelerator.wait_for_everyone()
    if main:
        folder = trainer.args.output_dir
        print(f"saved to {folder}; score it with: python eval/surds.py --ckpt {folder} --data questions.jsonl")
    trainer.accelerator.end_training()


def _train_until_interrupted(trainer: Any, checkpoint: str | None) -> None:
    """Train; an interruption by the keyboard ends the program with 130 and the way to go on."""
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    except KeyboardInterrupt:
        if trainer.is_world_process_zero():
            kept = last_checkpoint(Path(trainer.args.output_dir))
            after = f"from {kept}" if kept else "from the start, as there is no checkpoint yet (--save_steps)"
            print(f"\ninterrupted; the same command with --resume goes on {after}", file=sys.stderr, flush=True)
        raise SystemExit(130) from None


def is_trained(checkpoint: str, trainer: Any) -> bool:
    """Whether a checkpoint is that of the last step: `train` would go a step beyond. Sharded ones are left to it."""
    state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
    sharded = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    return not sharded and state.global_step >= state.max_steps


def save_run(trainer: Any, loaded: LoadedModel, stage: str, rows: str) -> None:
    """Weights, processor, training log, card and, last, the frame: the folder is a checkpoint from then on."""
    trainer.save_model()
    trainer.save_state()
    if trainer.is_world_process_zero():
        folder = Path(trainer.args.output_dir)
        if not any(folder.glob("*.safetensors")):
            raise RuntimeError(
                f"no weights were written to {folder}: under ZeRO-3 set zero3_save_16bit_model (accelerate) or "
                "stage3_gather_16bit_weights_on_model_save (DeepSpeed) to true; the last checkpoint there holds shards"
            )
        loaded.processor.save_pretrained(folder)
        write_card(folder, loaded, stage, rows)  # in place of PEFT's, if there is one
        save_frame(folder, loaded.frame, loaded.tiny)


def describe(loaded: LoadedModel, sizes: Collection[Size]) -> str:
    """One line about the model: parameters, frame, pixel budget, and the tokens of images of some distinct sizes."""
    parameters = list(loaded.model.parameters())
    millions = sum(parameter.numel() for parameter in parameters) / 1e6
    frozen = sum(parameter.numel() for parameter in parameters if not parameter.requires_grad) / 1e6
    held = f" ({frozen:.2f} M frozen)" if 0 < frozen < millions else ""
    frame = loaded.frame
    return (
        f"{loaded.name}: {millions:.2f} M parameters{held}, coordinates {frame.kind}, "
        f"at most {frame.max_pixels} pixels, {describe_images(frame, sizes)}"
    )
