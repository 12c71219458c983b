"""The parts of the trainer that ask vLLM for more than completions, on a model taught by a short SFT to answer in form:
the verifier by generation and a held-out score. Part of launch/test_vllm.sh.

    python tests/vllm_parts_by_hand.py OUT

OUT: a folder that tests/vllm_by_hand.py wrote, with its questions in `data`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_on_cpu import prepare_vllm

prepare_vllm()

from vllm_by_hand import OPTIONS, say  # noqa: E402

from data_gen.prompts import verifier_text  # noqa: E402
from data_gen.records import Question, Trace, read_questions, trace_to_row, write_rows  # noqa: E402
from training import grpo, sft  # noqa: E402
from training.grpo_arguments import parse_grpo  # noqa: E402
from training.scoring.held_out_questions import check_schedule, read_held_out  # noqa: E402
from training.verification.verifier import JobWriter  # noqa: E402
from training.verification.verifier_generate import ByTransformers, ByVLLM  # noqa: E402

TEACH = [
    "--model", "tiny", "--max_steps", "100", "--learning_rate", "4e-3", "--per_device_train_batch_size", "8",
    "--gradient_accumulation_steps", "1", "--gradient_checkpointing", "false", "--logging_steps", "50",
]  # fmt: skip
PARTS = [
    "--logic_mode", "generate", "--logic_compare_steps", "1", "--eval_steps", "1", "--max_completion_length", "96",
    "--logging_steps", "1",
]  # fmt: skip


def main() -> None:
    """Teach, train two steps, and look at what is logged."""
    out = Path(sys.argv[1])
    data, taught = out / "data" / "questions.jsonl", out / "taught"
    questions = read_questions(data)
    cot = data.with_name("cot.jsonl")
    write_rows(cot, (trace_to_row(Trace(item, f"So it is {item.answer_text}.", "test")) for item in questions))
    sft.main(["--data", str(cot), "--out", str(taught), *TEACH])
    files = ["--model", str(taught), "--data", str(data), "--out", str(out / "parts"), "--held_out", str(data)]
    told = parse_grpo([*files, *OPTIONS, *PARTS])
    chosen = grpo.choose_questions(questions, told.rewards, told.config, told.data.limit)
    check_schedule(told.schedule, told.config)
    held_out = read_held_out(told.schedule, [], data.parent, grpo.BUILDER)
    trainer, _ = grpo.make_trainer(told, chosen, data.parent, held_out)
    trainer.train()
    log: dict[str, list[float]] = {}
    for entry in trainer.state.log_history:
        for name, value in entry.items():
            log.setdefault(name, []).append(value)
    show(log)
    compare_generation(trainer, questions)


def compare_generation(trainer: Any, questions: Sequence[Question]) -> None:
    """vLLM writes what transformers writes after the prompts of the verifier."""
    trainer.vllm_generation.sync_weights()
    writer, tokenizer = JobWriter(trainer._tokenizer), trainer._tokenizer
    jobs = [writer.job(verifier_text(f"So it is {item.answer_text}."), item.answer_text) for item in questions[:12]]
    by_vllm = [text for batch in ByVLLM(trainer.vllm_generation, tokenizer)([jobs]) for text in batch]
    opened = trainer._opened_verifier, tokenizer, trainer.eos_token_ids, trainer.accelerator
    with trainer._asking():
        by_transformers = [text for batch in ByTransformers(*opened)([jobs]) for text in batch]
    assert by_vllm == by_transformers, (by_vllm, by_transformers)
    say(f"{len(jobs)} texts after the verifier's prompts equal those of transformers, {len(set(by_vllm))} distinct")


def show(log: dict[str, list[float]]) -> None:
    """Check the figures of each part and print them."""
    for name in sorted(log):
        if name.startswith(("logic/", "held_out/")) or name == "rewards/format/mean":
            print(name, log[name])
    assert max(log["logic/verified"]) > 0.3, log["logic/verified"]
    assert max(log["logic/modes_disagree"]) == 0, log["logic/modes_disagree"]
    say(f"{max(log['logic/verified']):.0%} of completions verified by vLLM's generation, and as by forward passes")
    assert len(log["held_out/score"]) == 2
    say(f"held-out scores by vLLM: {log['held_out/score']}")


if __name__ == "__main__":
    main()
