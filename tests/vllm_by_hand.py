"""Two steps of GRPO with real vLLM in this process, in its own environment: part of launch/test_vllm.sh.

    python tests/vllm_by_hand.py OUT [options of training/grpo.py]

Every check prints a line; the first that fails ends the program with its reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vllm_on_cpu import prepare_vllm

prepare_vllm()

import torch  # noqa: E402
from accelerate.utils import is_peft_model  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402
from sharp_model import sharp_tiny  # noqa: E402
from small_questions import write_small_set  # noqa: E402
from transformers.image_utils import load_image  # noqa: E402
from vllm_weights import compare_weights, plain_weights  # noqa: E402

from data_gen.command_line import UsageError  # noqa: E402
from data_gen.records import read_questions  # noqa: E402
from training import grpo  # noqa: E402
from training.grpo_arguments import parse_grpo  # noqa: E402
from training.model import save_frame  # noqa: E402
from training.processor import set_pixel_budget, shown_images  # noqa: E402
from training.rollouts import vllm_rollouts  # noqa: E402
from training.rollouts.vllm_check import ImageTokens  # noqa: E402

OPTIONS = [
    "--use_vllm", "true", "--vllm_mode", "colocate", "--per_device_train_batch_size", "8", "--num_generations", "4",
    "--gradient_accumulation_steps", "1", "--max_steps", "2", "--max_completion_length", "24",
    "--gradient_checkpointing", "false", "--learning_rate", "1e-3", "--vllm_max_model_length", "1024",
]  # fmt: skip


def say(what: str) -> None:
    print(f"ok: {what}", flush=True)


def write_start(out: Path) -> tuple[Path, Path]:
    """A checkpoint with sharp attention, which forgives no wrong position, and questions on images of three sizes."""
    loaded = sharp_tiny()
    start, data = out / "start", write_small_set(out / "data", images=9)
    loaded.model.save_pretrained(start)
    loaded.processor.save_pretrained(start)
    save_frame(start, loaded.frame, loaded.tiny)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for index, name in enumerate(sorted({row["image"] for row in rows})):
        picture = Image.open(data.parent / name)
        canvas = Image.new("RGB", (picture.width + 60 * (index % 3), picture.height + 30 * (index % 3)), "brown")
        canvas.paste(picture)
        canvas.save(data.parent / name)
        for row in rows:
            if row["image"] == name:
                row |= {"width": canvas.width, "height": canvas.height}
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return start, data


def few(batches: list[Any]) -> Any:
    """Of tokenized batches the one that holds a prompt for each size of image: the one of the check."""
    return next(batch for batch in batches if len(batch[0]) == 3)


def spread(completions: list[Any], **_: Any) -> list[float]:
    """A reward with spread in every group."""
    return [float(index % 2) for index, _ in enumerate(completions)]


def recorded(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    """The function, what it returns kept in `calls`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(function(*args, **kwargs))
        return calls[-1]

    return call


def counted(counts: list[ImageTokens]) -> Callable[..., None]:
    """The check of image tokens, what it is told kept in `counts`."""
    check = vllm_rollouts.check_image_tokens

    def call(told: Sequence[ImageTokens], *rest: Any) -> None:
        counts.extend(told)
        check(told, *rest)

    return call


def engine_weights(trainer: Any) -> dict[str, torch.Tensor]:
    (weights,) = trainer.vllm_generation.llm.apply_model(lambda model: dict(model.named_parameters()))
    return weights


def run_grpo(out: Path, more: Sequence[str]) -> None:
    """Two steps of GRPO, and everything about vLLM that can be wrong in them."""
    start, data = write_start(out)
    told = parse_grpo(["--model", str(start), "--data", str(data), "--out", str(out / "grpo"), *OPTIONS, *more])
    questions = grpo.choose_questions(read_questions(data), told.rewards, told.config, told.data.limit)
    trainer, loaded = grpo.make_trainer(told, questions, data.parent)
    trainer.reward_funcs[0] = spread
    first, counts, ours, theirs = plain_weights(trainer.model), [], [], []  # type: ignore[var-annotated]
    vllm_rollouts.check_image_tokens = counted(counts)
    trainer._tokenize_prompts = recorded(trainer._tokenize_prompts, ours)
    trainer.vllm_generation.generate = recorded(trainer.vllm_generation.generate, theirs)
    trainer.train()
    check_prompts(trainer, ours, theirs, counts)
    check_weights(trainer, first)
    prompts = few(ours)
    check_log_probs(trainer, prompts)
    from training.run import save_run

    save_run(trainer, loaded, "GRPO", "rows of the test")
    check_encoder_cache(trainer, prompts)
    check_double_pads(trainer, prompts)
    check_larger_budget(trainer)


def check_prompts(trainer: Any, ours: list[Any], theirs: list[Any], counts: list[ImageTokens]) -> None:
    """vLLM's prompts are the update's, token by token, and no completion holds an image token."""
    assert len(counts) == 3 and all(count.update == count.vllm > 0 for count in counts), counts
    say(f"image tokens on both sides: {', '.join(f'{c.size_px} {c.vllm}' for c in counts)}")
    prompts = sorted(list(ids) for batch, *_ in ours for ids in batch)
    assert prompts == sorted(list(ids) for batch, *_ in theirs for ids in batch)
    say(f"{len(prompts)} prompts are the same tokens in vLLM and in the update")
    completions = [ids for _, batch, *_ in theirs[1:] for ids in batch]
    pad = trainer.model.config.image_token_id
    assert not any(pad in ids for ids in completions)
    say(f"no image token in {sum(map(len, completions))} tokens of {len(completions)} completions")


def check_log_probs(trainer: Any, prompts: Any) -> None:
    """vLLM samples by the log-probs of the policy: same weights, images, positions. The control has another image."""
    trainer.vllm_generation.sync_weights()
    trainer._forget_images()
    completions, sampled = ask(trainer, prompts, temperature=1.0)
    off = largest_gap(policy_log_probs(trainer, prompts, completions), sampled)
    others = (prompts[0], [[ImageOps.invert(load_image(path)) for path in row] for row in prompts[1]], prompts[2])
    apart = largest_gap(policy_log_probs(trainer, others, completions), sampled)
    assert off < 1e-4 < 1e-2 < apart, (off, apart)
    say(f"log-probs of vLLM and policy differ by {off:.1e} at most (control with other images: {apart:.1e})")


def largest_gap(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    return max(float((one - two).abs().max()) for one, two in zip(first, second, strict=True))


def ask(trainer: Any, prompts: Any, temperature: float) -> tuple[list[list[int]], list[torch.Tensor]]:
    """Completions by vLLM of tokenized prompts, and the log-probs of their tokens."""
    engine = trainer.vllm_generation
    ids, images, _ = prompts
    engine.temperature, kept = temperature, engine.temperature
    cut = trainer._prompts_for_vllm([list(row) for row in ids])
    opened = [shown_images(trainer.processing_class, row) for row in images]
    _, completions, log_probs, _ = engine.generate(cut, opened, 1)
    engine.temperature = kept
    return [list(row) for row in completions], [torch.tensor([step[0] for step in row]) for row in log_probs]


def policy_log_probs(trainer: Any, prompts: Any, completions: list[list[int]]) -> list[torch.Tensor]:
    """The policy's log-probs of completions, one plain forward pass each, image tokens excluded as in sampling."""
    config, out = trainer.model.config, []
    for ids, images, completion in zip(prompts[0], prompts[1], completions, strict=True):
        row = torch.tensor([[*ids, *completion]])
        shown = trainer.processing_class.image_processor(
            images=[load_image(path) for path in images], return_tensors="pt"
        )
        kinds = (row == config.image_token_id).int()
        with torch.no_grad():
            logits = trainer.model(input_ids=row, mm_token_type_ids=kinds, **shown).logits[0, len(ids) - 1 : -1]
        logits[:, list(trainer._image_tokens)] -= 100
        out.append(logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0])
    return out


def check_weights(trainer: Any, first: dict[str, torch.Tensor]) -> None:
    """After a sync vLLM holds the policy, which is no longer the one of the start."""
    trainer.vllm_generation.sync_weights()
    now = plain_weights(trainer.model)
    parts = compare_weights(now, engine_weights(trainer))
    moved = sum(not torch.equal(now[name], first[name]) for name in now)
    least = 0.4 if is_peft_model(trainer.model) else 0.9  # an adapter sits on the matrices only
    assert moved > least * len(now), f"{moved} of {len(now)} weights changed"
    say(f"{parts} weights equal after the sync, {moved} of them changed since the start")
    try:
        compare_weights(first, engine_weights(trainer))
    except AssertionError:
        say("control: the weights of the start are told from them")
    else:
        raise AssertionError("the weights of the start pass as those of vLLM")


def check_encoder_cache(trainer: Any, prompts: Any) -> None:
    """A changed vision tower shows once the images are forgotten, and not before."""
    before = ask(trainer, prompts, temperature=0.0)[1][0].tolist()
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            if "visual" in name:
                weight.mul_(1.5)
    trainer.vllm_generation.sync_weights()
    stale = ask(trainer, prompts, temperature=0.0)[1][0].tolist()
    trainer._forget_images()
    fresh = ask(trainer, prompts, temperature=0.0)[1][0].tolist()
    assert stale == before != fresh, (stale[:2], before[:2], fresh[:2])
    say("a changed vision tower is used after a sync (control: without forgetting images the old one is)")


def check_double_pads(trainer: Any, prompts: Any) -> None:
    """Control: the prompt as TRL hands it over would be another one."""
    ids, images, _ = prompts
    pad, opened = trainer.model.config.image_token_id, [shown_images(trainer.processing_class, images[0])]
    seen, *_ = trainer.vllm_generation.generate([list(ids[0])], opened, 1)
    one, two = list(ids[0]).count(pad), list(seen[0]).count(pad)
    assert two == 2 * one - 1, (one, two)
    say(f"control: uncut, the {one} image tokens of a prompt become {two}")


def check_larger_budget(trainer: Any) -> None:
    """A run with a larger pixel budget than vLLM reads from the checkpoint stops, with both numbers."""
    frame = trainer.settings.frame
    set_pixel_budget(trainer.processing_class, 4 * frame.max_pixels)
    object.__setattr__(frame, "max_pixels", 4 * frame.max_pixels)
    try:
        trainer._count_image_tokens()
    except UsageError as error:
        say(f"a larger pixel budget is refused: {error}")
    else:
        raise AssertionError("a pixel budget that vLLM does not know went through")


def main() -> None:
    """Train in the folder of the first word, with the options of the others."""
    out, *options = sys.argv[1:]
    run_grpo(Path(out), options)


if __name__ == "__main__":
    main()
