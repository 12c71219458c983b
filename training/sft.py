"""SFT cold start on reasoning traces.

    accelerate launch training/sft.py --data cot.jsonl [--model tiny] [--config configs/sft/surds_3b.yaml]

Takes TRL's SFT options and a few of ours; `--help` lists them. Writes a checkpoint folder with `frame.json`,
`config.yaml` (every option as resolved) and `trainer_state.json` (the log).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.arguments import DataArguments, ModelArguments, SurdsSFTConfig, parse_arguments


def make_trainer(model: ModelArguments, data: DataArguments, config: SurdsSFTConfig) -> tuple[Any, Any]:
    """The trainer on the traces of `data`, and the loaded model. Exits with 2 on bad input."""
    from trl import SFTTrainer

    from training.data import sft_rows, to_dataset
    from training.resume import StrictResume
    from training.run import SaveFrame, load_for_training, lora_config, read_traces_and_root, shuffled

    class Trainer(StrictResume, SFTTrainer):
        """TRL's SFT trainer whose resuming continues."""

    traces, root = read_traces_and_root(data)
    loaded = load_for_training(model)
    rows = sft_rows(shuffled(traces, config.seed, data.limit), root, loaded.frame)
    trainer = Trainer(
        model=loaded.model,
        args=config,
        train_dataset=to_dataset(rows),
        processing_class=loaded.processor,
        peft_config=lora_config(model),
        callbacks=[SaveFrame(loaded.frame, loaded.tiny)],
    )
    return trainer, loaded


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on the traces and save the run."""
    parts = parse_arguments([ModelArguments, DataArguments, SurdsSFTConfig], arguments, __doc__)
    model, data, config = parts
    from training.run import open_run, train

    checkpoint = open_run(data, config, parts, builder="python data_gen/build_cot.py --data questions.jsonl")
    trainer, loaded = make_trainer(model, data, config)
    train(trainer, loaded, checkpoint, rows="traces")


if __name__ == "__main__":
    main()
