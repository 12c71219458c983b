"""What a finished run says of itself: `summary.json`, and the lines that qualify its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from eval.decoding import Decoding
from eval.metrics import SCORING_VERSION, Figures, Interval, TaskFigures
from eval.published import OWN_PROMPTS, Published, published_beside
from eval.runner import RunFacts

SYNTHETIC_NOTE = "synthetic world: rendered scenes, not comparable with results on nuScenes"
TINY_NOTE = "tiny model: shows that the chain works, not what a real model scores"


@dataclass(frozen=True)
class Summary:
    """The scores of a run, fractions, under its main scoring; `other_scorings` holds the rest in short.

    source: where the questions come from (`real`, `synthetic`, `metadata`; several joined by `+`).
    other_scorings: scoring -> task or `score` -> score. prompts: `own`, `templates SHA`, `official (...)` or
    `unknown (...)`. unanswered: questions with empty outputs alone, as of missing images. published: the paper's rows,
    with what keeps them from being held against the run. decoding: None of guesses, and of outputs of which nothing
    tells it.
    """

    benchmark: str
    source: str
    scoring: str
    scoring_version: int
    score: float
    ci95: Interval
    tasks: dict[str, TaskFigures]
    floors: dict[str, float]
    well_formed: float
    loc: float | None
    questions: int
    mean_tokens: float | None
    other_scorings: dict[str, dict[str, float]]
    label: str
    engine: str
    model: str
    tiny: bool
    prompt_style: str
    asked: str
    fingerprint: str
    prompts: str = OWN_PROMPTS
    published: Published | None = None
    unanswered: int = 0
    decoding: Decoding | None = None


def make_summary(facts: RunFacts, source: str, figures_of: dict[str, Figures], scoring: str) -> Summary:
    """Facts and figures of a run as its summary. figures_of: the figures under every scoring."""
    others = {
        name: {"score": figures.score, **{task: item.score for task, item in figures.tasks.items()}}
        for name, figures in figures_of.items()
        if name != scoring
    }
    units = {task: item.units for task, item in figures_of[scoring].tasks.items()}
    return Summary(
        source=source,
        scoring=scoring,
        scoring_version=SCORING_VERSION,
        other_scorings=others,
        prompts=facts.prompts,
        decoding=facts.decoding,
        published=published_beside(facts.prompts, source, facts.benchmark, units),
        **facts.in_summary,
        **vars(figures_of[scoring]),
    )


def notes(summaries: list[Summary]) -> list[str]:
    """What a reader has to know before comparing the numbers of these runs."""
    lines = []
    if any("synthetic" in summary.source for summary in summaries):
        lines.append(SYNTHETIC_NOTE)
    tiny = [summary.label for summary in summaries if summary.tiny]
    if tiny:
        lines.append(f"{TINY_NOTE} ({', '.join(tiny)})")
    lines += [
        f"{summary.label}: {summary.unanswered} of {summary.questions} questions have no output (missing images or "
        "stored outputs) and count as wrong"
        for summary in summaries
        if summary.unanswered
    ]
    lines += [
        f"{summary.label}: {summary.decoding}; scores and rates are means over all answers"
        for summary in summaries
        if summary.decoding and summary.decoding.temperature
    ]
    if len({summary.asked for summary in summaries}) > 1:
        asked = "; ".join(f"{summary.label}: {summary.asked}" for summary in summaries)
        lines.append(f"these runs did not answer the same questions ({asked}); the floors are those of the first")
    if len({summary.scoring for summary in summaries}) > 1:
        lines.append("these runs are scored differently: " + ", ".join(f"{s.label} {s.scoring}" for s in summaries))
    styles = {summary.prompt_style for summary in summaries if summary.engine != "random"}
    if len(styles) > 1:
        lines.append("these runs were prompted differently: " + ", ".join(sorted(styles)))
    return lines
