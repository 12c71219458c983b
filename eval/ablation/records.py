"""What an ablation keeps of a finished row of one seed, and of the questions that all rows were scored on.

Both are JSON files under `results/STUDY/`, small enough to be committed: `questions.json` once for a study, and
`ROW-SEED.json` for every row of every seed. The tables and the page need nothing else, but for the images shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rewards.boxes import CoordinateFrame

RESULT_VERSION = 1
QUESTIONS_FILE = "questions.json"
MODES = ("greedy", "sampled")


@dataclass(frozen=True)
class ScoredUnits:
    """The units of one task of one part. part: the question file they are from, such as `matched` or `official`.

    images: for each unit a number that only units of the same image share.
    """

    part: str
    task: str
    names: tuple[str, ...]
    images: tuple[int, ...]


@dataclass(frozen=True)
class TestQuestions:
    """The units that every row of a study is scored on, in the order of the scores of its rows.

    parts: the first one is the main one, whose six tasks make the score. floors: part -> task -> name of a floor ->
    fraction, as in a run's summary.json. shown: rows of the questions whose outputs are kept, as in questions.jsonl.
    source: where the main part is from, as in a run's summary.json. frame, style: how the rows' outputs are read.
    """

    __test__ = False  # no test, whatever pytest makes of the name

    study: str
    fingerprint: str
    source: str
    parts: tuple[str, ...]
    units: tuple[ScoredUnits, ...]
    floors: dict[str, dict[str, dict[str, float]]]
    shown: tuple[dict[str, Any], ...]
    frame: CoordinateFrame
    style: str
    version: int = RESULT_VERSION


@dataclass(frozen=True)
class ModeScores:
    """How a row did under one way of decoding: temperature and samples per question, and what came of it.

    unit_scores: 0..1 for each unit of TestQuestions, the mean over the samples. well_formed, valid, loc, single:
    shares of the questions' answers, per task of the first part: format kept, usable answer, boxes with IoU > 0.5,
    questions right (not pairs).
    """

    temperature: float
    samples: int
    unit_scores: tuple[float, ...]
    well_formed: dict[str, float]
    valid: dict[str, float]
    loc: dict[str, float]
    single: dict[str, float]
    mean_tokens: float


@dataclass(frozen=True)
class Example:
    """What a row answered to one question of the test, greedily."""

    question_id: str
    output: str


@dataclass(frozen=True)
class Cost:
    """What a row took, its own training alone: steps, seconds (without a GPU those of its process), and on what."""

    steps: int
    seconds: float
    machine: str
    date: str


@dataclass(frozen=True)
class RowResult:
    """A finished row of one seed.

    commands: digest of the commands it is the result of, those of its start included. curves: figure of the training
    log -> (step, value) pairs, such as `rewards/loc/mean` and `held_out/yaw`. scores: `greedy` and `sampled`.
    questions: the fingerprint of the TestQuestions.
    """

    study: str
    row: str
    seed: int
    commands: str
    questions: str
    scores: dict[str, ModeScores]
    curves: dict[str, tuple[tuple[int, float], ...]]
    examples: tuple[Example, ...]
    cost: Cost
    version: int = RESULT_VERSION
