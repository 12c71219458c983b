"""What the self-verifier costs: its share of the CPU seconds of GRPO steps of the real trainer.

python tests/benchmarks/verifier.py [--steps 10]

The tiny model, prompts of about 1,200 tokens of which 1,008 are image, groups of 4, one group per step, a KL term.
Generation samples 200 tokens per completion; what it samples is then replaced by well-formed responses of that length,
each with another trace of about 170 tokens, so that every completion is verified. The model has been taught to close
its answers, as every trained one does; what it costs if it never does is told too.

Timed in one process of one thread: the verifier from texts to verdicts, with the figures that every generation batch
logs; not the meters of --logic-compare-steps, whose cost in a batch that has them is told apart. A share is the median
over the steps; the first step is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from prefix_processes import make_trainer
from shared_prefix import COMPLETION_TOKENS, SIZE, write_questions
from taught_model import teach
from transformers import TrainerCallback

from data_gen.prompts import located_response
from training.verification.verifier import verifier_job

GROUP = 4
LEAST_PROMPT_TOKENS = 1150
WAYS = {"TRL's own path": "false", "shared prefix": "true"}
SENTENCES = (
    "The car stands {0} cells from the left edge.",
    "Its lower edge lies at row {1}, which is lower than the other's.",
    "What lies lower on flat ground is nearer.",
    "So the distance must be about {2} meters.",
)


@dataclass(frozen=True)
class Case:
    """One kind of step. compare_steps: 1 has the meters that cost extra passes in every step."""

    way: str
    mode: str
    taught: bool = True
    compare_steps: int = 0


@dataclass
class Clock(TrainerCallback):
    """CPU seconds of every step, and of the verifier within it."""

    steps_s: list[float]
    verifier_s: list[float]
    _start_s: float = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step begins with its generation."""
        self.verifier_s.append(0.0)
        self._start_s = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The weights are updated."""
        self.steps_s.append(time.process_time() - self._start_s)

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted as the verifier's."""

        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            result = function(*args, **kwargs)
            self.verifier_s[-1] += time.process_time() - start
            return result

        return run

    def share(self) -> float:
        """The verifier's part of a step, median over all but the first."""
        return statistics.median(one / whole for one, whole in zip(self.verifier_s[1:], self.steps_s[1:], strict=True))


def responses(tokenizer: Any) -> Iterator[list[int]]:
    """Ids of well-formed responses that differ, each of the longest length that fits."""
    number = 0
    while True:
        think, ids = "", list[int]()
        while True:
            sentence = SENTENCES[number % len(SENTENCES)].format(number % 90, number % 70, number % 40)
            number += 1
            text = located_response([("car", (1, 2, 30, 40))], f"{think} {sentence}".strip(), "Yes")
            longer = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            if len(longer) > COMPLETION_TOKENS:
                break
            think, ids = f"{think} {sentence}".strip(), longer
        yield ids


def write_well_formed(trainer: Any) -> None:
    """Generation still does its work; what it gives is replaced."""
    generate, written = trainer._generate_single_turn, responses(trainer._tokenizer)

    def replaced(prompt_ids: Any, *args: Any, **kwargs: Any) -> tuple[list[list[int]], None]:
        sampled, _ = generate(prompt_ids, *args, **kwargs)
        if any(len(ids) != COMPLETION_TOKENS for ids in sampled):
            raise RuntimeError(f"completions of {[len(ids) for ids in sampled]} tokens were sampled")
        if min(map(len, prompt_ids)) < LEAST_PROMPT_TOKENS:
            raise RuntimeError(f"prompts of {[len(ids) for ids in prompt_ids]} tokens")
        return [next(written) for _ in sampled], None

    trainer._generate_single_turn = replaced


def measured(questions: Path, case: Case, steps: int) -> Clock:
    """The clock after the steps of a case."""
    trainer = make_trainer(
        questions, "tiny", questions.parent / "out",
        "--shared_prefix", WAYS[case.way], "--shared_prefill", WAYS[case.way], "--max_pixels", str(SIZE[0] * SIZE[1]),
        "--per_device_train_batch_size", str(GROUP), "--num_generations", str(GROUP), "--beta", "0.04",
        "--gradient_accumulation_steps", "1", "--max_completion_length", str(COMPLETION_TOKENS), "--overwrite",
        "--rewards", "format,loc,acc,logic", "--logic_mode", case.mode, "--max_steps", str(steps + 1),
        "--logic_compare_steps", str(case.compare_steps), "--save_strategy", "no", "--learning_rate", "1e-7",
        "--generation_kwargs", json.dumps({"min_new_tokens": COMPLETION_TOKENS}),
    )  # fmt: skip
    if case.taught:
        sentences = [sentence.format(3, 4, 5) for sentence in SENTENCES]
        teach(trainer.model, [verifier_job(trainer._tokenizer, text, "Yes") for text in sentences], 20)
    write_well_formed(trainer)
    clock = Clock([], [])
    trainer._verified = clock.timed(trainer._verified)
    trainer.add_callback(clock)
    trainer.train()
    verified = [entry["logic/verified"] for entry in trainer.state.log_history if "logic/verified" in entry]
    if set(verified) != {1.0} or len(clock.steps_s) != steps + 1:
        raise RuntimeError(f"shares verified {verified} in {len(clock.steps_s)} steps")
    return clock


def main() -> None:
    """Measure and report, the ratios last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps per case after the first (default: %(default)s)")
    steps = parser.parse_args().steps
    import torch

    torch.set_num_threads(1)
    cases = [Case(way, mode) for way in WAYS for mode in ("forward", "generate")]
    aside = [Case("shared prefix", "generate", taught=False), Case("shared prefix", "forward", compare_steps=1)]
    with tempfile.TemporaryDirectory() as folder:
        questions = write_questions(Path(folder))
        clocks = {case: measured(questions, case, steps) for case in [*cases, *aside]}
    for case, clock in clocks.items():
        whole, own = statistics.median(clock.steps_s[1:]), statistics.median(clock.verifier_s[1:])
        print(f"{case}: step {whole:.3f} s, of which the verifier {own:.4f} s")
    never_closed, compared = (clocks[case].share() for case in aside)
    print(f"answers never closed, shared prefix, generate: {never_closed:.1%} of a step")
    print(f"a step with the meters of --logic-compare-steps, shared prefix, forward: {compared:.1%} of it")
    for case in cases:
        print(f"verifier of a step, {case.way}, {case.mode}: {clocks[case].share():.1%}")


if __name__ == "__main__":
    main()
