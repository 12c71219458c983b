"""The model's own pass rate of every question, measured before training; stages and the curriculum go by it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object, set_seed
from tqdm import tqdm
from transformers import TrainerCallback
from trl.data_utils import prepare_multimodal_messages

from data_gen.command_line import UsageError
from data_gen.files import write_whole
from rewards.acc import acc_reward
from rewards.boxes import CoordinateFrame
from rewards.settings import RewardSettings
from training.arguments import fail
from training.schedule.order import PassRates

PASS_RATES_FILE = "pass_rates.jsonl"
# A rate measured under other values of these options is another rate.
MEASURED_WITH = (
    "model", "frame", "max_pixels", "seed", "num_generations", "max_completion_length", "temperature", "top_p", "top_k",
    "min_p", "repetition_penalty",
)  # fmt: skip


def write_pass_rates(path: Path, rates: PassRates, options: Mapping[str, Any]) -> None:
    """Write what was measured and with which options, whole or not at all."""
    rows = [{"options": dict(options)}, *({"question_id": name, "pass_rate": rate} for name, rate in rates.items())]
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_pass_rates(path: Path, question_ids: Sequence[str], options: Mapping[str, Any]) -> dict[str, float] | None:
    """What was measured, or None if nothing was. Raises UsageError if for other questions or with other options."""
    if not path.exists():
        return None
    anew = "start anew with --overwrite"
    try:
        head, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        there, rates = head["options"], {row["question_id"]: float(row["pass_rate"]) for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} holds no pass rates ({error}); {anew}") from error
    here = json.loads(json.dumps(options))
    if changed := [f"{name}: {there.get(name)} -> {here[name]}" for name in here if there.get(name) != here[name]]:
        raise UsageError(f"{path} was measured with other options ({', '.join(changed)}); {anew}")
    if set(rates) != set(question_ids):
        raise UsageError(f"{path} is about {len(rates)} other questions than the {len(question_ids)} of --data; {anew}")
    return rates


def spread_of(rates: PassRates) -> str:
    """How many questions the model always fails, sometimes solves, always solves."""
    never, always = (sum(rate == end for rate in rates.values()) for end in (0, 1))
    return f"questions never solved: {never}, sometimes: {len(rates) - never - always}, always: {always}"


def shares(count: int, processes: int, process: int, size: int) -> Iterator[list[int]]:
    """Places 0..count-1 dealt to processes in lists of exactly `size`, equally many for each.

    What is missing at the end is filled with places from the beginning.
    """
    rounds = -(-count // (processes * size))
    for number in range(rounds):
        first = (number * processes + process) * size
        yield [place % count for place in range(first, first + size)]


def measure_pass_rates(trainer: Any, rows: Sequence[dict[str, Any]], frame: CoordinateFrame) -> dict[str, float]:
    """Share of right completions, by the strict grade, of `num_generations` samples of each row, keyed by question id.

    Samples as training does; every process calls it, makes the same number of calls and gets all rates.
    """
    args, group = trainer.args, trainer.num_generations
    size = max(1, args.per_device_train_batch_size * args.steps_per_generation // group)
    accelerator = trainer.accelerator
    dealt = list(shares(len(rows), accelerator.num_processes, accelerator.process_index, size))
    found: dict[str, float] = {}
    bar = tqdm(
        total=len(rows), desc="pass rates", unit="question", mininterval=1.0, disable=not accelerator.is_main_process
    )
    for places in dealt:
        asked = [rows[place] for place in places]
        rates = _rates_of(trainer, [row for row in asked for _ in range(group)], frame)
        own = [(row["question_id"], rate) for row, rate in zip(asked, rates, strict=True)]
        for question_id, rate in gather_object(own):
            found.setdefault(question_id, rate)
        bar.update(len(found) - bar.n)
    bar.close()
    return {row["question_id"]: found[row["question_id"]] for row in rows}


def _rates_of(trainer: Any, inputs: Sequence[dict[str, Any]], frame: CoordinateFrame) -> list[float]:
    """Pass rate of each group of `num_generations` equal rows."""
    prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in inputs]
    completions = trainer._generate(prompts)[3]
    names = ("task", "options", "answer", "objects", "width", "height")
    columns = {name: [row[name] for row in inputs] for name in names}
    right = [value or 0.0 for value in acc_reward(completions, settings=RewardSettings(frame), **columns)]
    group = trainer.num_generations
    return [fmean(right[first : first + group]) for first in range(0, len(right), group)]


class OrderByPassRate(TrainerCallback):
    """Puts the rows into order once the model is ready to generate: measures its pass rates, or reads them again.

    options: what the rates depend on, kept with them.
    """

    def __init__(self, trainer: Any, frame: CoordinateFrame, options: Mapping[str, Any]) -> None:
        self.trainer, self.frame, self.options = trainer, frame, options

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer once the model is wrapped. Exits with 2 for a stage that its difficulty empties."""
        trainer = self.trainer
        rates = self._rates(Path(args.output_dir) / PASS_RATES_FILE)
        if trainer.accelerator.is_main_process:
            print(spread_of(rates), flush=True)
        try:
            trainer.order_by(rates)
        except ValueError as error:
            fail(f"{error}; {spread_of(rates)}")

    def _rates(self, path: Path) -> dict[str, float]:
        trainer = self.trainer
        first_places = {row.question_id: place for place, row in reversed(list(enumerate(trainer.asked)))}
        rows = [trainer.train_dataset[place] for place in sorted(first_places.values())]
        known = _main_decides(trainer, lambda: read_pass_rates(path, list(first_places), self.options))
        if known is not None:
            return known
        if trainer.state.global_step:
            fail(f"{path} is gone, and with it the order this run was trained in; start anew with --overwrite")
        if trainer.accelerator.is_main_process:
            samples = len(rows) * trainer.num_generations
            print(f"measuring the pass rate of {len(rows)} questions: {samples} completions", flush=True)
        rates = self._measured(rows)
        if trainer.accelerator.is_main_process:
            write_pass_rates(path, rates, self.options)
        trainer.accelerator.wait_for_everyone()
        return rates

    def _measured(self, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
        """The rates; log, token count and random numbers are afterwards as if nothing had been measured."""
        trainer = self.trainer
        tokens, was_training = trainer.state.num_input_tokens_seen, trainer.model.training
        trainer.model.train()
        rates = measure_pass_rates(trainer, rows, self.frame)
        trainer.model.train(was_training)
        trainer.state.num_input_tokens_seen = tokens
        trainer._metrics["train"].clear()
        trainer._pending_metrics.clear()
        set_seed(trainer.args.seed, device_specific=True)
        return rates


def _main_decides(trainer: Any, read: Any) -> dict[str, float] | None:
    """What the main process reads, for all. Every process exits with 2 when it cannot be used."""
    decision: list[Any] = [(None, None)]
    if trainer.accelerator.is_main_process:
        try:
            decision = [(read(), None)]
        except UsageError as error:
            decision = [(None, str(error))]
    rates, problem = broadcast_object_list(decision)[0]
    if problem:
        fail(problem)
    return rates  # type: ignore[no-any-return]
