"""The figures of traces: kept and dropped by reason, lengths, how many hold the answer; the same for every teacher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_gen.records import Question
from data_gen.trace_checks import ends_with_answer, holds_answer
from rewards.grading import TASKS

HISTOGRAM_STEP = 10
Kept = tuple[Question, str]


def figures_by_task(
    questions: Sequence[Question], kept: Iterable[Kept], dropped: Mapping[str, Counter[str]]
) -> dict[str, dict[str, Any]]:
    """The figures of each task that has questions. kept: (question, trace); dropped: reasons counted, by task."""
    asked = Counter(question.task for question in questions)
    by_task: dict[str, list[Kept]] = {task: [] for task in asked}
    for question, reasoning in kept:
        by_task[question.task].append((question, reasoning))
    return {
        task: _task_figures(asked[task], by_task[task], dropped.get(task, Counter())) for task in TASKS if asked[task]
    }


def told(tasks: Mapping[str, Mapping[str, Any]], path: Path) -> str:
    """The figures in a few lines for the terminal. path: of the traces."""
    lines = [
        f"{task}: {figures['kept']} of {figures['questions']} traces kept, "
        f"{figures['ends_with_answer']:.0%} end with the literal answer"
        + "".join(f"; {count} {reason}" for reason, count in figures["dropped"].items())
        for task, figures in tasks.items()
    ]
    return "\n".join([*lines, f"written to {path}"])


def _task_figures(questions: int, kept: Sequence[Kept], dropped: Counter[str]) -> dict[str, Any]:
    steps = Counter((len(reasoning.split()) - 1) // HISTOGRAM_STEP for _, reasoning in kept)
    return {
        "questions": questions,
        "kept": len(kept),
        "dropped": dict(dropped),
        "words": {f"{k * HISTOGRAM_STEP + 1}-{(k + 1) * HISTOGRAM_STEP}": steps[k] for k in sorted(steps)},
        "holds_answer": _share([holds_answer(question, reasoning) for question, reasoning in kept]),
        "ends_with_answer": _share([ends_with_answer(question, reasoning) for question, reasoning in kept]),
    }


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0
