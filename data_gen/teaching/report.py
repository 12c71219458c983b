"""The report on runs of data_gen/build_cot.py: their figures side by side, their rules, and random traces, on one page.

Files are read line by line; pictures are only held of the questions that are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.columns import NONE, aligned, decimal, percent
from data_gen.command_line import UsageError
from data_gen.files import write_whole
from data_gen.images import MANIFEST, image_root
from data_gen.pages import TASK_TITLES, page_template
from data_gen.records import Question
from data_gen.teaching.comparison import Comparison, compare, read_outcomes
from data_gen.teaching.costs import cost_of, total_cost
from data_gen.teaching.report_cards import Card, Source, choose, make_cards
from data_gen.teaching.rules import Rules, read_rules, rules_path
from data_gen.teaching.state import TRACES_FILE
from data_gen.teaching.summary import STEPS, RunSummary, priced, read_summary, write_summary
from rewards.grading import TASKS

TEMPLATE = Path(__file__).with_name("report.html")
PAGE = "report.html"
# Okabe and Ito's colours, told apart by colour-blind readers too.
RUN_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#555555")
SHOWN, SHOWN_DROPPED = 20, 8
# What is told of a run's settings, where it has them.
TOLD_SETTINGS = (
    "data", "tasks", "limit", "balance_tasks", "seed", "erring_share", "blind", "samples", "attempts", "k",
    "temperature", "max_words", "max_tokens", "tokenizer",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A finished run as the page shows it. rules: by task, none where there are none."""

    folder: Path
    label: str
    colour: str
    summary: RunSummary
    rules: dict[str, Rules]

    @property
    def cost(self) -> float | None:
        """What it cost at its prices; None where they are not known."""
        return total_cost(self.summary.stages, self.summary.prices)

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens read and written, of all stages."""
        stages = self.summary.stages.values()
        return sum(stage.tokens_in for stage in stages), sum(stage.tokens_out for stage in stages)


@dataclass(frozen=True)
class Bars:
    """A histogram of several runs: names of the bins, and per run the share of its traces in each."""

    bins: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]

    @property
    def top(self) -> float:
        """The highest share."""
        return max((share for shares in self.shares for share in shares), default=0.0) or 1.0


def write_report(
    folders: Sequence[Path],
    out: Path,
    prices: Mapping[str, float] | None = None,
    images: Path | None = None,
    seed: int = 0,
) -> list[Run]:
    """Write the page on some finished runs, the first of which the others are held against. Returns them.

    prices: per million tokens, as `costs.PRICES` names them; those of a run itself are overruled. images: their folder,
    where the manifest of a run does not lead there. Raises UsageError and RecordError.
    """
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out names the page, a file that ends in .html; got {out}")
    summaries = [priced(read_summary(folder), prices or {}) for folder in folders]
    runs = make_runs(folders, summaries)
    _write_page(runs, out, {}, images, seed)
    return runs


def finish_run(folder: Path, summary: RunSummary, questions: Sequence[Question], images: Path | None) -> None:
    """Write the page on a run, then summary.json, which marks a finished one, and tell both on the terminal.

    questions: all that were asked. images: their folder, None where it is not known.
    """
    page = folder / PAGE
    _write_page(make_runs([folder], [summary]), page, {question.id: question for question in questions}, images)
    write_summary(folder, summary)
    print(f"{told(folder.name, summary)}\nwritten to {folder / TRACES_FILE}; {page} shows some")


def _write_page(
    runs: Sequence[Run], out: Path, questions: Mapping[str, Question], images: Path | None, seed: int = 0
) -> None:
    """questions: by id, those of dropped traces, as the folders only hold those of kept ones."""
    outcomes = [read_outcomes(run.folder) for run in runs]
    comparisons = [compare(other, outcomes[0]) for other in outcomes[1:]]
    chosen = choose(outcomes, SHOWN, SHOWN_DROPPED, seed)
    sources = [Source(run.folder, images or _images(run.folder), questions) for run in runs]
    cards, dropped = make_cards(sources, [*chosen.kept, *chosen.dropped]), set(chosen.dropped)
    sections = (
        [card for card in cards if card.question.id not in dropped],
        [card for card in cards if card.question.id in dropped],
    )
    write_whole(out, render(runs, comparisons, sections, seed))


def told(label: str, summary: RunSummary) -> str:
    """A run in a few lines for the terminal."""
    head = ["Task", "questions", "kept", "%", "words", "hold answer %", "end with it %"]
    rows = [
        [
            TASK_TITLES[task], str(f.questions), str(f.kept), percent(f.kept_share), decimal(f.mean_words, 1),
            percent(f.holds_answer), percent(f.ends_with_answer),
        ]
        for task, f in summary.tasks.items()
    ]  # fmt: skip
    total = ["all", str(summary.questions), str(summary.kept), percent(summary.kept / summary.questions), "", "", ""]
    reasons = sum((Counter(figures.dropped) for figures in summary.tasks.values()), Counter[str]())
    lines = [f"{label}: {summary.teacher}", *aligned([head, *rows, total])]
    if erring := sum(figures.erring for figures in summary.tasks.values()):
        lines.append(f"of the kept ones {erring} reason to a wrong answer on purpose")
    if reasons:
        lines.append("dropped: " + ", ".join(f"{count} {in_words(reason)}" for reason, count in reasons.most_common()))
    if summary.stages:
        lines.append(_told_expenses(summary))
    return "\n".join(lines) + "\n"


def _told_expenses(summary: RunSummary) -> str:
    stages, cost = summary.stages.values(), total_cost(summary.stages, summary.prices)
    parts = [
        f"{sum(stage.requests for stage in stages)} requests ({sum(stage.retries for stage in stages)} retries)",
        f"{sum(stage.tokens_in for stage in stages)} tokens read, {sum(stage.tokens_out for stage in stages)} written",
        span(summary.wall_s),
    ]
    if summary.kept_per_minute:
        parts.append(f"{summary.kept_per_minute:.1f} kept traces a minute")
    return ", ".join(parts if cost is None else [*parts, f"cost {cost:.2f}"])


def make_runs(folders: Sequence[Path], summaries: Sequence[RunSummary]) -> list[Run]:
    """The runs of some folders, named apart, with their rules."""
    labels = [folder.resolve().name for folder in folders]
    if len(set(labels)) < len(labels):
        labels = [str(folder) for folder in folders]
    runs = []
    for place, (folder, summary) in enumerate(zip(folders, summaries, strict=True)):
        tasks = [task for task in summary.tasks if rules_path(folder, task).is_file()]
        colour = RUN_COLOURS[place % len(RUN_COLOURS)]
        runs.append(Run(folder, labels[place], colour, summary, read_rules(folder, tasks)))
    return runs


def render(
    runs: Sequence[Run],
    comparisons: Sequence[Mapping[str, Comparison]],
    sections: tuple[Sequence[Card], Sequence[Card]],
    seed: int,
) -> str:
    """The page as text; everything that comes from a file is escaped. sections: cards of kept and of dropped traces."""
    tasks = [task for task in TASKS if any(task in run.summary.tasks for run in runs)]
    kept, dropped = sections
    return page_template(TEMPLATE).render(
        runs=runs,
        tasks=tasks,
        titles={**TASK_TITLES, "all": "All"},
        comparisons=[(run, compared) for run, compared in zip(runs[1:], comparisons, strict=True) if compared],
        apart=[run.label for run, compared in zip(runs[1:], comparisons, strict=True) if not compared],
        words=bars(runs, tasks, "words"),
        tokens=bars(runs, tasks, "tokens"),
        counted=any(figures.tokens for run in runs for figures in run.summary.tasks.values()),
        reasons=reason_rows,
        cost_of=cost_of,
        told_settings=told_settings,
        in_words=in_words,
        span=span,
        kept=kept,
        dropped=dropped,
        pictures={card.picture.key: card.picture for card in [*kept, *dropped]}.values(),
        seed=seed,
    )


def bars(runs: Sequence[Run], tasks: Sequence[str], kind: str) -> dict[str, Bars]:
    """The histograms of `words` or `tokens` of each task, in shares of a run's kept traces; all with the same bins."""
    histograms: dict[str, list[dict[str, int]]] = {
        task: [getattr(run.summary.tasks[task], kind) if task in run.summary.tasks else {} for run in runs]
        for task in tasks
    }
    last = max((int(name.split("-")[1]) for rows in histograms.values() for row in rows for name in row), default=0)
    step = STEPS[kind]
    bins = tuple(f"{low}-{low + step - 1}" for low in range(1, last, step))
    return {task: Bars(bins, tuple(_shares(row, bins) for row in rows)) for task, rows in histograms.items()}


def reason_rows(run: Run) -> list[tuple[str, list[tuple[int, int]], tuple[int, int]]]:
    """Reason, per task how many first drafts had it and how many dropped ones, and the same in all; the worst first."""
    figures = list(run.summary.tasks.values())
    rows = []
    for reason in dict.fromkeys(name for item in figures for name in (*item.dropped, *item.first_dropped)):
        counts = [(item.first_dropped.get(reason, 0), item.dropped.get(reason, 0)) for item in figures]
        rows.append((reason, counts, (sum(first for first, _ in counts), sum(last for _, last in counts))))
    return sorted(rows, key=lambda row: (-row[2][1], -row[2][0], row[0]))


def told_settings(settings: Mapping[str, Any]) -> str:
    """The settings that a reader asks about, in one line."""
    told = [(name, settings[name]) for name in TOLD_SETTINGS if settings.get(name) not in (None, False, "")]
    words = [(name, ", ".join(value) if isinstance(value, list | tuple) else value) for name, value in told]
    return "; ".join(in_words(name) if value is True else f"{in_words(name)} {value}" for name, value in words)


def span(seconds: float) -> str:
    """A time by the clock in words, or a dash where none was measured."""
    if not seconds:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def in_words(code: str) -> str:
    """A code as words."""
    return code.replace("_", " ")


def _shares(histogram: Mapping[str, int], bins: Sequence[str]) -> tuple[float, ...]:
    total = sum(histogram.values())
    return tuple(histogram.get(name, 0) / total if total else 0.0 for name in bins)


def _images(folder: Path) -> Path | None:
    """The folder of a run's images, where its manifest leads there."""
    return image_root(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
