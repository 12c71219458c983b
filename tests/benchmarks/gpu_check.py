"""What one GPU does: the tiny model trained in bf16, then a full-size Qwen2.5-VL-3B of random weights, phase by phase.

bash launch/gpu_check.sh --out figures.json

Timed with the real trainer, at 4 and 8 completions of 256 tokens about an image of 1600x900: generation and update,
each by TRL's own path and with the shared prefix, and the verifier in both modes with how often they disagree. Weights
are float32 under bf16 autocast, as in training. `--dry-run` does all of it with the tiny model, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
GIB = 2**30


@dataclass(frozen=True)
class Scale:
    """How large the check is."""

    full_size: bool
    image_size: tuple[int, int]
    max_pixels: int
    group_sizes: tuple[int, ...]
    new_tokens: int
    verifier_jobs: int
    repeats: int
    chain_steps: int


FULL = Scale(True, (1600, 900), 1596 * 896, (4, 8), 256, 64, 3, 4)
DRY = Scale(False, (160, 96), 160 * 96, (4, 8), 12, 8, 1, 2)


@dataclass(frozen=True)
class Phase:
    """One phase: median seconds, new or scored tokens per second, and the most memory allocated while it ran."""

    seconds: float
    tokens_per_s: float
    peak_gib: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check, print the figures as JSON, and write them when told where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="the tiny model, small images, no GPU needed")
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    options = parser.parse_args(argv)
    if not options.dry_run and not torch.cuda.is_available():
        parser.exit(2, "error: no GPU is seen here; --dry-run does without\n")
    figures = json.dumps(check(DRY if options.dry_run else FULL), indent=2)
    print(figures)
    if options.out:
        options.out.write_text(figures + "\n", encoding="utf-8")
    return 0


def check(scale: Scale) -> dict[str, Any]:
    """All figures, by part."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        questions = write_questions(Path(folder), scale)
        return {
            "machine": machine(),
            "chain": train_tiny(Path(folder), scale),
            "phases": {str(size): measure_group(questions, Path(folder), scale, size) for size in scale.group_sizes},
        }


def machine() -> dict[str, str]:
    """The card and the versions that matter."""
    import transformers
    import trl

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return {"card": card, "torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}


def write_questions(folder: Path, scale: Scale) -> Path:
    """A small set of questions with traces about noise images of the wanted size; the path of the questions."""
    from sharp_model import write_noise
    from small_questions import write_small_set

    from data_gen.records import Trace, read_questions, trace_to_row, write_rows

    write_small_set(folder / "small")
    questions = folder / "small" / "questions.jsonl"
    traces = [Trace(item, f"So it is {item.answer_text}.", "check") for item in read_questions(questions)]
    write_rows(folder / "small" / "cot.jsonl", map(trace_to_row, traces))
    write_noise(folder, [scale.image_size])
    return questions


def train_tiny(folder: Path, scale: Scale) -> dict[str, dict[str, float]]:
    """SFT, then GRPO on its checkpoint, by the commands that people type; seconds, and the last loss of each."""
    steps = ["--max_steps", str(scale.chain_steps), "--logging_steps", "1", "--save_strategy", "no"]
    small = folder / "small"
    sft = ["training/sft.py", "--model", "tiny", "--data", str(small / "cot.jsonl"), "--out", str(folder / "sft")]
    grpo = [
        "training/grpo.py", "--model", str(folder / "sft"), "--data", str(small / "questions.jsonl"),
        "--out", str(folder / "grpo"), "--max_completion_length", "32", "--per_device_train_batch_size", "8",
    ]  # fmt: skip
    return {"sft": run_script([*sft, *steps], folder / "sft"), "grpo": run_script([*grpo, *steps], folder / "grpo")}


def run_script(words: list[str], out: Path) -> dict[str, float]:
    """Run one training script; its seconds and last loss. Raises RuntimeError with what it said when it fails."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed:\n{done.stderr[-3000:]}")
    log = json.loads((out / "trainer_state.json").read_text())["log_history"]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    return {"seconds": round(time.perf_counter() - began, 1), "steps": len(losses), "loss": losses[-1]}


def measure_group(questions: Path, folder: Path, scale: Scale, group_size: int) -> dict[str, Any]:
    """Generation, update and verifier for one group, by TRL's path and shared."""
    figures: dict[str, Any] = {"generation": {}, "update": {}}
    for name, shared in (("trl", False), ("shared", True)):
        trainer = make_trainer(questions, folder, scale, group_size, shared)
        rows = rows_of(trainer, folder / "noise-0.png", group_size)
        figures["prompt_tokens"], figures["image_tokens"] = prompt_lengths(trainer, rows)
        figures["generation"][name] = asdict(time_generation(trainer, rows, scale))
        figures["update"][name] = asdict(time_update(trainer, rows, scale))
        if shared:
            figures["log_probs_apart"] = compare_scores(trainer, rows)
            figures["verifier"] = measure_verifier(trainer, scale)
        del trainer
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    for phase in ("generation", "update"):
        own, ours = figures[phase]["trl"], figures[phase]["shared"]
        figures[phase]["times_faster"] = round(own["seconds"] / ours["seconds"], 2)
    return figures


def make_trainer(questions: Path, folder: Path, scale: Scale, group_size: int, shared: bool) -> Any:
    """The real trainer on a model of the scale, one group per micro-batch, gradient checkpointing on."""
    from gpu_models import full_size, tiny

    from data_gen.records import read_questions
    from training.data import grpo_rows, to_dataset
    from training.grpo_arguments import parse_grpo
    from training.trainer import SpatialGRPOTrainer

    loaded = full_size(scale.max_pixels) if scale.full_size else tiny(scale.max_pixels)
    config = parse_grpo(
        [
            "--out", str(folder / "run"), "--beta", "0", "--num_generations", str(group_size),
            "--per_device_train_batch_size", str(group_size), "--gradient_accumulation_steps", "1",
            "--max_completion_length", str(scale.new_tokens), "--max_steps", "1",
            "--generation_kwargs", json.dumps({"min_new_tokens": scale.new_tokens}),
        ]
    ).config  # fmt: skip
    return SpatialGRPOTrainer(
        model=loaded.model,
        reward_funcs=[spread],
        args=config,
        train_dataset=to_dataset(grpo_rows(read_questions(questions), questions.parent, loaded.frame)),
        processing_class=loaded.processor,
        settings=settings_of(loaded),
        shared_prefix=shared,
        shared_prefill=shared,
    )


def spread(completions: list[Any], **_: Any) -> list[float]:
    """A reward with spread in every group."""
    return [float(index % 3) for index, _ in enumerate(completions)]


def settings_of(loaded: Any) -> Any:
    """The settings of the rewards, which this check does not use."""
    from rewards import RewardSettings

    return RewardSettings(loaded.frame)


def rows_of(trainer: Any, image: Path, group_size: int) -> list[dict[str, Any]]:
    """The rows of one group, about the image."""
    return [{**trainer.train_dataset[0], "images": [str(image)]} for _ in range(group_size)]


def prompt_lengths(trainer: Any, rows: list[dict[str, Any]]) -> tuple[int, int]:
    """(tokens of the prompt, image tokens among them)."""
    prompt_ids, _, _ = trainer._tokenize_prompts(prompts_of(rows[:1]))
    return len(prompt_ids[0]), prompt_ids[0].count(trainer.model.config.image_token_id)


def prompts_of(rows: list[dict[str, Any]]) -> list[Any]:
    """The prompts with their images, as the trainer hands them to generation."""
    from trl.data_utils import prepare_multimodal_messages

    return [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in rows]


def time_generation(trainer: Any, rows: list[dict[str, Any]], scale: Scale) -> Phase:
    """Sampling one group, tokenised beforehand."""
    trainer.model.train()
    prompt_ids, images, fields = trainer._tokenize_prompts(prompts_of(rows))
    new_tokens = len(rows) * scale.new_tokens
    return timed(lambda: trainer._generate_single_turn(prompt_ids, images, fields, len(rows)), new_tokens, scale)


def time_update(trainer: Any, rows: list[dict[str, Any]], scale: Scale) -> Phase:
    """Loss and gradients of one group."""
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer._generate_and_score_completions(rows)

    def update() -> None:
        trainer.accelerator.backward(trainer.compute_loss(trainer.model, batch))
        trainer.model.zero_grad(set_to_none=True)

    return timed(update, len(rows) * scale.new_tokens, scale)


def compare_scores(trainer: Any, rows: list[dict[str, Any]]) -> dict[str, float]:
    """How far log-probabilities of the packed row lie from TRL's, beside what batching alone does to TRL's."""
    batch = trainer._generate_and_score_completions(rows)
    size, width = len(rows), batch["completion_ids"].shape[1]
    ids, mask = (torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1) for name in ("ids", "mask"))
    pictures = {
        "pixel_values": batch["pixel_values"].repeat(size, 1),
        "image_grid_thw": batch["image_grid_thw"].repeat(size, 1),
        "num_images": [1] * size,
        "mm_token_type_ids": batch["mm_token_type_ids"],
    }

    def scores(shared: bool, at_once: int) -> torch.Tensor:
        trainer.shared_prefix = shared
        with torch.no_grad():
            found, *_ = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, mask, width, batch_size=at_once, **pictures
            )
        trainer.shared_prefix = True
        return found

    own = scores(False, size)
    return {
        name: round((other - own).abs().max().item(), 6)
        for name, other in (("shared_against_trl", scores(True, size)), ("trl_row_by_row", scores(False, 1)))
    }


def measure_verifier(trainer: Any, scale: Scale) -> dict[str, Any]:
    """Seconds of both modes on the same traces, and the share of answers written by one that the other denies."""
    from data_gen.prompts import verifier_text
    from training.verification.verifier import JobWriter, VerifierJob, greedy_agreement
    from training.verification.verifier_generate import NEW_TOKENS

    tokenizer, model = trainer._tokenizer, trainer.model
    traces = [f"The car number {index} stands at {index * 7} and is near." for index in range(scale.verifier_jobs)]
    writer = JobWriter(tokenizer)
    prefixes = [writer.job(verifier_text(trace), "Yes").prefix_ids for trace in traces]
    batch = trainer.args.per_device_train_batch_size
    written: list[tuple[int, ...]] = []

    def generate() -> None:
        written[:] = greedy_answers(trainer, prefixes, NEW_TOKENS)

    generated = timed(generate, NEW_TOKENS * len(prefixes), scale)
    jobs = [VerifierJob(prefix, answer[:8]) for prefix, answer in zip(prefixes, written, strict=True)]
    agreed: list[bool] = []

    def forward() -> None:
        agreed[:] = greedy_agreement(model, jobs, tokenizer.pad_token_id, batch, trainer.accelerator)

    forwarded = timed(forward, 8 * len(prefixes), scale)
    return {
        "jobs": len(jobs), "generate": asdict(generated), "forward": asdict(forwarded),
        "disagree": agreed.count(False) / len(agreed),
    }  # fmt: skip


def greedy_answers(trainer: Any, prefixes: Sequence[tuple[int, ...]], new_tokens: int) -> list[tuple[int, ...]]:
    """What greedy decoding writes after each prefix, to the full length: random weights never close an answer."""
    from training.verification.verifier import padded

    written: list[tuple[int, ...]] = []
    pad_id, size = trainer._tokenizer.pad_token_id, trainer.args.per_device_train_batch_size
    for start in range(0, len(prefixes), size):
        ids, mask = padded(prefixes[start : start + size], pad_id, trainer.accelerator)
        with torch.no_grad(), trainer.accelerator.autocast():
            out = trainer.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
            )
        written += [tuple(row) for row in out[:, ids.shape[1] :].tolist()]
    return written


def timed(work: Callable[[], Any], tokens: int, scale: Scale) -> Phase:
    """The median of a few runs after one to warm up, and the most memory that any took."""
    seconds = []
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    for _ in range(1 + scale.repeats):
        wait()
        began = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds[1:])
    peak = torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0
    return Phase(round(median, 4), round(tokens / median, 1), round(peak, 2))


def wait() -> None:
    """Until the GPU has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
