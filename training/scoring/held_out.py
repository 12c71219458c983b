"""A score on questions of other scenes while GRPO runs, by the functions that the evaluator scores with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from accelerate.utils import gather_object, is_peft_model
from transformers import TrainerCallback
from trl.data_utils import prepare_multimodal_messages

from rewards.grading import TASKS, grade_text, unit_score
from training.scoring.task_log import truth_of

# Unset values would be filled from the checkpoint's own settings; these leave the arg-max as the evaluator takes it.
GREEDY: dict[str, Any] = {
    "do_sample": False, "temperature": None, "top_p": None, "top_k": None, "min_p": None, "repetition_penalty": 1.0,
    "suppress_tokens": None,
}  # fmt: skip
GREEDY_VLLM: dict[str, Any] = {"temperature": 0.0, "repetition_penalty": 1.0, "generation_kwargs": {}}


@dataclass(frozen=True)
class Graded:
    """The strict grade of one held-out question; `place` is its row in the dataset."""

    place: int
    score: float
    valid: bool


class EvaluateAtEnd(TrainerCallback):
    """Asks for an evaluation after the last step, whatever --eval_steps is."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer after every step."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True


class HeldOutScore:
    """Mix-in for TRL's GRPOTrainer: its evaluation asks each row of `eval_dataset` once, greedily, and scores units.

    Logged: `held_out/score` (the mean of the tasks), `held_out/TASK` (the mean of its units) and `held_out/TASK/valid`
    (the share of its questions with a usable answer). The trainer finds them under `eval_held_out/score` and so on,
    where `--metric_for_best_model held_out/score` looks. Nothing random is drawn.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.eval_dataset is not None:  # type: ignore[attr-defined]
            self.add_callback(EvaluateAtEnd())  # type: ignore[attr-defined]

    def evaluate(self: Any, *_: Any, **__: Any) -> dict[str, float]:
        """The held-out figures under the names that `Trainer` expects. All processes must call this."""
        trained = self.model.training
        self.model.eval()  # so that what training has measured since its last log line is not logged here
        rows = list(self.eval_dataset)
        figures = held_out_figures(rows, self._graded(rows))
        self._metrics["eval"].clear()
        self.log(dict(figures))
        self.model.train(trained)
        metrics = {f"eval_{name}": value for name, value in figures.items()}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _graded(self: Any, rows: Sequence[dict[str, Any]]) -> list[Graded]:
        """The grades of all rows, in order. Every process asks as many batches, of the same sizes."""
        share, size = -(-len(rows) // self.accelerator.num_processes), self.args.per_device_eval_batch_size
        first = share * self.accelerator.process_index
        # Beyond the last row: the first one again, which is left out below.
        places = [place if place < len(rows) else -1 for place in range(first, first + share)]
        graded = list[Graded]()
        with _greedy(self):
            for start in range(0, share, size):
                batch = places[start : start + size]
                graded += map(self._grade, batch, [rows[max(place, 0)] for place in batch], self._answers(rows, batch))
        return sorted((item for item in gather_object(graded) if item.place >= 0), key=lambda item: item.place)

    def _answers(self: Any, rows: Sequence[dict[str, Any]], places: Sequence[int]) -> list[str]:
        """What the policy answers to some rows, with special tokens, by the engine that samples for training."""
        asked = [rows[max(place, 0)] for place in places]
        prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in asked]
        ends, decode = set(self.eos_token_ids), self._tokenizer.decode
        return [
            decode([token for token in ids if token not in ends], skip_special_tokens=False)
            for ids in self._generate(prompts)[1]
        ]

    def _grade(self: Any, place: int, row: dict[str, Any], text: str) -> Graded:
        grade = grade_text(text, truth_of(row), self.settings.frame)
        return Graded(place, grade.score, grade.valid)

    def _load_best_model(self: Any) -> None:
        """Load the checkpoint with the best score, under the names of the live model (see `StrictResume`)."""
        if self.is_deepspeed_enabled or self.is_fsdp_enabled or is_peft_model(self.model):
            super()._load_best_model()  # type: ignore[misc]
        else:
            self._load_from_checkpoint(self.state.best_model_checkpoint)


def held_out_figures(rows: Sequence[Mapping[str, Any]], grades: Sequence[Graded]) -> dict[str, float]:
    """Score, in all and per task, and share of usable answers. rows: of the dataset, grades: one for each.

    A mirrored unit counts only when both of its questions are right; the score is the mean of the tasks that occur.
    """
    units: dict[tuple[str, str], list[Graded]] = {}
    for row, grade in zip(rows, grades, strict=True):
        units.setdefault((row["task"], row["pair_id"] or row["question_id"]), []).append(grade)
    figures = {}
    tasks = [task for task in TASKS if any(name == task for name, _ in units)]
    for task in tasks:
        of_task = [members for (name, _), members in units.items() if name == task]
        figures[f"held_out/{task}"] = fmean(unit_score(task, [item.score for item in unit]) for unit in of_task)
        figures[f"held_out/{task}/valid"] = fmean(item.valid for unit in of_task for item in unit)
    return {"held_out/score": fmean(figures[f"held_out/{task}"] for task in tasks), **figures}


@contextmanager
def _greedy(trainer: Any) -> Iterator[None]:
    """The trainer's engine decodes greedily, one answer per prompt, as long as this is open."""
    # What the engine counts meanwhile would be averaged into the next line about training.
    changes: list[tuple[Any, str, Any]] = [
        (trainer, "num_generations_eval", 1), (trainer, "_pending_metrics", defaultdict(list))
    ]  # fmt: skip
    if trainer.use_vllm:
        changes += [(trainer.vllm_generation, name, value) for name, value in GREEDY_VLLM.items()]
    else:
        config = deepcopy(trainer.generation_config)
        config.update(**GREEDY)
        changes.append((trainer, "generation_config", config))
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    try:
        for place, name, value in changes:
            setattr(place, name, value)
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
