"""Made-up results of an ablation, for tests: questions, rows of chosen scores, and the files that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from small_questions import make_questions, perfect_output

from data_gen.floors import task_floors, units_of
from data_gen.records import question_to_row
from eval.ablation.records import Cost, Example, ModeScores, RowResult, TestQuestions
from eval.ablation.store import keep_questions, row_file, to_json
from eval.ablation.study import scored_units, shown_questions
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS

HOSTILE = '<script>alert("x")</script> & "quoted"'


def study_questions(images: int = 40) -> TestQuestions:
    """Questions about small images, with the depth questions once more as a second part."""
    asked = make_questions(images)
    depth = [question for question in asked if question.task == "depth"]
    numbers: dict[str, int] = {}
    units = [*scored_units("matched", asked, numbers), *scored_units("official", depth, numbers)]
    by_task = {task: [unit for unit in units_of(asked).values() if unit[0].task == task] for task in TASKS}
    floors = {task: task_floors(task, members) for task, members in by_task.items()}
    return TestQuestions(
        study="made-up",
        fingerprint="0123456789abcdef",
        source="synthetic",
        parts=("matched", "official"),
        units=tuple(units),
        floors={"matched": floors, "official": {"depth": floors["depth"]}},
        shown=tuple(question_to_row(question) for question in shown_questions(asked)),
        frame=CoordinateFrame(),
        style="located",
    )


def units_in(questions: TestQuestions) -> int:
    """How many units there are."""
    return sum(len(group.names) for group in questions.units)


def row_result(
    questions: TestQuestions, row: str, seed: int, units: Sequence[float],
    curves: Mapping[str, Sequence[tuple[int, float]]] | None = None, output: str = HOSTILE,
) -> RowResult:  # fmt: skip
    """A row whose unit scores are `units`, greedy and sampled alike. output: to every question that is shown."""
    shares = dict.fromkeys(TASKS, 0.5)
    scores = {
        mode: ModeScores(heat, count, tuple(units), shares, shares, shares, shares, 80.0)
        for mode, heat, count in (("greedy", 0.0, 1), ("sampled", 1.0, 4))
    }
    return RowResult(
        study=questions.study,
        row=row,
        seed=seed,
        commands="c0ffee",
        questions=questions.fingerprint,
        scores=scores,
        curves={name: tuple(points) for name, points in (curves or {}).items()},
        examples=tuple(Example(item["id"], output) for item in questions.shown),
        cost=Cost(100, 600.0, "a machine", "2026-11-30"),
    )


def write_study(folder: Path, questions: TestQuestions, rows: Sequence[RowResult]) -> Path:
    """The files of a study; the folder."""
    keep_questions(questions, folder)
    for result in rows:
        row_file(folder, result.row, result.seed).write_text(to_json(result))
    return folder


def perfect_outputs(images: int = 40) -> dict[str, str]:
    """Question id -> the output of a model that knows everything."""
    return {question.id: perfect_output(question) for question in make_questions(images)}
