"""The questions that a GRPO run is scored on while it goes: read, cut to a number of units, apart from the trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers.trainer_utils import IntervalStrategy

from data_gen.floors import units_of
from data_gen.records import Question
from training.arguments import DataArguments, fail
from training.grpo_arguments import ScheduleArguments, SurdsGRPOConfig

_SHOWN = 5


@dataclass(frozen=True)
class HeldOut:
    """Questions in whole units, and the folder of their images."""

    questions: tuple[Question, ...]
    root: Path


def check_schedule(schedule: ScheduleArguments, config: SurdsGRPOConfig) -> None:
    """Turn TRL's evaluation on for `--held_out`. Exits with 2 for options that need it and do not have it."""
    if schedule.held_out is None:
        if config.eval_strategy != IntervalStrategy.NO or config.load_best_model_at_end:
            fail("--eval_strategy and --load_best_model_at_end need questions: give --held_out questions.jsonl")
        if schedule.held_out_limit is not None:
            fail("--held_out_limit without --held_out questions.jsonl")
        return
    if schedule.held_out_limit is not None and schedule.held_out_limit < 1:
        fail(f"--held_out_limit must be at least 1, got {schedule.held_out_limit}")
    if config.num_generations_eval not in (None, 1):
        fail(f"--num_generations_eval {config.num_generations_eval}: held-out questions are answered once, greedily")
    if Path(config.output_dir).resolve() in Path(schedule.held_out).resolve().parents:
        fail(f"--held_out {schedule.held_out} lies in the folder of the run, {config.output_dir}; take another --out")
    if config.eval_strategy == IntervalStrategy.NO:
        config.eval_strategy, config.do_eval = IntervalStrategy.STEPS, True


def read_held_out(
    schedule: ScheduleArguments, trained: Sequence[Question], trained_root: Path, builder: str
) -> HeldOut | None:
    """The questions of `--held_out`, or None without it; their images lie where the manifest beside them says.

    Exits with 2 on bad data, and when a scene or an image of theirs is also trained on.
    """
    from training.run import read_questions_and_root

    if schedule.held_out is None:
        return None
    questions, root = read_questions_and_root(DataArguments(data=schedule.held_out), builder)
    chosen = first_units(questions, schedule.held_out_limit)
    if leaked := leaks(chosen, root, trained, trained_root):
        more = f" and {len(leaked) - _SHOWN} more" if len(leaked) > _SHOWN else ""
        fail(
            f"{schedule.held_out} is not held out, the run trains on the same {', '.join(leaked[:_SHOWN])}{more}; "
            "give questions of other scenes, such as those of the val split"
        )
    return HeldOut(tuple(chosen), root)


def first_units(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """The questions of the first `limit` units of every task, in file order, as the evaluator's --limit takes them."""
    of_task: dict[str, list[str]] = {}
    for name, members in units_of(questions).items():
        of_task.setdefault(members[0].task, []).append(name)
    kept = {name for names in of_task.values() for name in names[:limit]}
    return [question for question in questions if question.unit in kept]


def leaks(questions: Sequence[Question], root: Path, trained: Sequence[Question], trained_root: Path) -> list[str]:
    """`scene NAME` and `image FILE` of every scene, and of every image without a scene, in both sets, sorted."""
    return sorted(_places(questions, root) & _places(trained, trained_root))


def _places(questions: Sequence[Question], root: Path) -> set[str]:
    return {
        f"scene {question.scene}" if question.scene else f"image {(root / question.image).resolve()}"
        for question in questions
    }
