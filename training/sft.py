"""SFT cold start on reasoning traces.

    accelerate launch training/sft.py --data cot.jsonl [--model tiny] [--config configs/sft/surds_3b.yaml]

Takes TRL's SFT options and a few of ours; `--help` lists them. Writes a checkpoint folder with `frame.json`,
`config.yaml` (every option as resolved) and `trainer_state.json` (the log).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_gen.records import Trace
from training.arguments import DataArguments, ModelArguments, SurdsSFTConfig, parse_arguments

BUILDER = "python data_gen/build_cot.py --data questions.jsonl"


def make_trainer(model: ModelArguments, config: SurdsSFTConfig, traces: Sequence[Trace], root: Path) -> tuple[Any, Any]:
    """The trainer on the traces, their images under `root`, and the loaded model."""
    from trl import SFTTrainer

    from training.card import OwnCard
    from training.data import sft_rows, to_dataset, verifier_rows
    from training.learnt_only import LearntOnly
    from training.resume import StrictResume
    from training.run import SaveFrame, load_for_training, lora_config

    class Trainer(LearntOnly, StrictResume, OwnCard, SFTTrainer):
        """TRL's SFT trainer whose resuming continues."""

    loaded = load_for_training(model)
    verified = traces[: round(config.verifier_share * len(traces))]
    rows = [*sft_rows(traces, root, loaded.frame), *verifier_rows(verified, loaded.frame)]
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
    """Train on the traces and save the run. Exits with 2 on bad input, before anything is written."""
    parts = parse_arguments([ModelArguments, DataArguments, SurdsSFTConfig], arguments, __doc__)
    model, data, config = parts
    from training.run import check_model, open_run, read_traces_and_root, shuffled, train

    traces, root = read_traces_and_root(data, BUILDER)
    check_model(model.model)
    checkpoint = open_run(data, config, parts)
    trainer, loaded = make_trainer(model, config, shuffled(traces, config.seed, data.limit), root)
    taken = min(len(traces), data.limit or len(traces))
    train(trainer, loaded, checkpoint, "SFT", f"{taken} of {len(traces)} traces of {data.data}")


if __name__ == "__main__":
    main()
