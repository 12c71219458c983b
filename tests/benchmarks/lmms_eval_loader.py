"""lmms-eval's own loader on a task pack, run where lmms-eval is installed by tests/benchmarks/plugins_by_hand.sh.

Prints what was loaded, and the scores that lmms-eval's aggregation gives to perfect, silent and half right answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version

from lmms_eval.tasks import TaskManager, get_task_dict
from small_questions import perfect_output

from data_gen.records import Question, question_from_row


def main(pack: str) -> None:
    """Load, ask, score; raises AssertionError where lmms-eval's scores are not ours."""
    manager = TaskManager(include_path=pack, include_defaults=False)
    task = get_task_dict(["drive_surds"], manager)["drive_surds"]
    docs = list(task.test_docs())
    image = task.doc_to_visual(docs[0])[0]
    print(f"lmms-eval {version('lmms-eval')}: task {task.config.task}, {len(docs)} questions, image {image.size}")
    print(f"first prompt: {task.doc_to_text(docs[0])!r}")
    perfect = scores_of(task, docs, perfect_output)
    half = scores_of(task, docs, lambda question: perfect_output(question) if question.variant == 0 else "")
    silent = scores_of(task, docs, lambda question: "")
    for name, scores in (("perfect", perfect), ("first of each pair only", half), ("silent", silent)):
        print(f"{name}: " + ", ".join(f"{metric} {value:.3f}" for metric, value in scores.items()))
    assert set(perfect.values()) == {1.0} and set(silent.values()) == {0.0}
    assert half["depth"] == half["pixel"] == 1.0 and half["yaw"] == half["distance"] == 0.0


def scores_of(task: object, docs: list[dict[str, str]], answer: Callable[[Question], str]) -> dict[str, float]:
    """Metric -> what lmms-eval's aggregation makes of these answers."""
    answers: dict[str, list[object]] = {}
    for doc in docs:
        question = question_from_row(json.loads(doc["record"]))
        for metric, item in task.process_results(doc, [answer(question)]).items():  # type: ignore[attr-defined]
            answers.setdefault(metric, []).append(item)
    return {metric: task.aggregation()[metric](items) for metric, items in answers.items()}  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1])
