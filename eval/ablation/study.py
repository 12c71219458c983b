"""Evaluation runs of a row -> what is kept: the questions of the study, the scores of the row, its answers to a few."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_gen.command_line import UsageError, read_options
from data_gen.floors import units_of
from data_gen.records import Question, question_to_row
from eval.ablation.records import Example, ModeScores, ScoredUnits, TestQuestions
from eval.finished_run import FinishedRun, asked_questions, read_run
from eval.runner import CONFIG_FILE, digest
from rewards.grading import TASKS

SHOWN_QUESTIONS = 20
SHOWN_SEED = 0


@dataclass(frozen=True)
class Part:
    """One question file, such as the one with matched or with official depth ranges, and a row's runs on it.

    runs: `greedy` and `sampled`. temperatures: of each.
    """

    name: str
    questions: tuple[Question, ...]
    runs: dict[str, FinishedRun]
    temperatures: dict[str, float]


def read_part(name: str, greedy: Path, sampled: Path) -> Part:
    """The runs of one part. Raises UsageError when they are not finished, or not of the same questions and scoring."""
    folders = {"greedy": greedy, "sampled": sampled}
    runs = {mode: read_run(folder) for mode, folder in folders.items()}
    temperatures = {mode: _temperature(folder) for mode, folder in folders.items()}
    one, two = runs["greedy"], runs["sampled"]
    if _terms(one) != _terms(two):
        raise UsageError(
            f"{greedy} and {sampled} are not of the same questions, scoring and frame: {_terms(one)}, {_terms(two)}"
        )
    if temperatures["greedy"] or not temperatures["sampled"]:
        raise UsageError(
            f"--part {name}: the first run must be greedy and the second sampled, their temperatures are "
            f"{temperatures['greedy']} and {temperatures['sampled']}"
        )
    return Part(name, tuple(asked_questions(one)), runs, temperatures)


def questions_of_study(study: str, parts: Sequence[Part]) -> TestQuestions:
    """What the rows of a study are scored on. Raises UsageError when the main part lacks a task."""
    main = parts[0]
    missing = [task for task in TASKS if task not in main.runs["greedy"].summary.tasks]
    if missing:
        raise UsageError(f"the first --part, {main.name}, must hold all six tasks; it has no {', '.join(missing)}")
    run = main.runs["greedy"]
    images: dict[str, int] = {}
    return TestQuestions(
        study=study,
        fingerprint=digest("\n".join(f"{part.name}: {_terms(part.runs['greedy'])}" for part in parts)),
        source=run.summary.source,
        parts=tuple(part.name for part in parts),
        units=tuple(group for part in parts for group in scored_units(part.name, part.questions, images)),
        floors={part.name: {t: f.floors for t, f in part.runs["greedy"].summary.tasks.items()} for part in parts},
        shown=tuple(question_to_row(question) for question in shown_questions(main.questions)),
        frame=run.facts.frame,
        style=run.facts.prompt_style,
    )


def scored_units(part: str, questions: Sequence[Question], images: dict[str, int]) -> list[ScoredUnits]:
    """The units of a part, task by task, in file order. images: image -> its number; new ones are added."""
    units = units_of(questions)
    groups = []
    for task in TASKS:
        names = tuple(name for name, unit in units.items() if unit[0].task == task)
        numbers = tuple(images.setdefault(units[name][0].image, len(images)) for name in names)
        groups += [ScoredUnits(part, task, names, numbers)] if names else []
    return groups


def shown_questions(questions: Sequence[Question]) -> list[Question]:
    """Twenty questions, drawn by these questions alone: the tasks by turns, no image twice; fewer if there are not."""
    rng = random.Random(SHOWN_SEED)
    left = {task: [question for question in questions if question.task == task] for task in TASKS}
    for waiting in left.values():
        rng.shuffle(waiting)
    chosen: dict[str, Question] = {}
    while len(chosen) < SHOWN_QUESTIONS and any(left.values()):
        for waiting in left.values():
            waiting[:] = [question for question in waiting if question.image not in chosen]
            if waiting and len(chosen) < SHOWN_QUESTIONS:
                chosen[waiting[0].image] = waiting[0]
    return sorted(chosen.values(), key=lambda question: TASKS.index(question.task))


def mode_scores(mode: str, parts: Sequence[Part]) -> ModeScores:
    """The scores of a row under one way of decoding, units in the order of `questions_of_study`."""
    main = parts[0].runs[mode]
    tasks = main.summary.tasks
    return ModeScores(
        temperature=parts[0].temperatures[mode],
        samples=len(main.samples),
        unit_scores=tuple(score for part in parts for score in _unit_scores(part, mode)),
        well_formed={task: figures.well_formed for task, figures in tasks.items()},
        valid={task: figures.valid_rate for task, figures in tasks.items()},
        loc={task: figures.loc for task, figures in tasks.items() if figures.loc is not None},
        single={task: figures.single_question for task, figures in tasks.items()},
        mean_tokens=main.summary.mean_tokens or 0.0,
    )


def examples_of(part: Part, shown: Sequence[str]) -> tuple[Example, ...]:
    """The greedy outputs to some questions, by id."""
    rows = part.runs["greedy"].predictions
    return tuple(Example(name, rows[name]["output"]) for name in shown)


def _unit_scores(part: Part, mode: str) -> list[float]:
    known = part.runs[mode].unit_scores(part.questions)
    return [known[name] for group in scored_units(part.name, part.questions, {}) for name in group.names]


def _terms(run: FinishedRun) -> str:
    """What two runs must share for their scores to be held against each other."""
    summary = run.summary
    frame = run.facts.identity.get("frame", "")
    return f"{summary.asked}, {summary.scoring} scoring {summary.scoring_version}, {summary.prompt_style}, {frame}"


def _temperature(folder: Path) -> float:
    return float(read_options(folder / CONFIG_FILE).get("temperature") or 0.0)
