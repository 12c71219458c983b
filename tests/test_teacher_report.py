"""The figures and the page on runs of data_gen/build_cot.py: what is counted, what it costs, and what is shown."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from chat_server import Answer
from sample_questions import CENTRE, CLOSER, FACING
from small_questions import write_small_set
from teacher_stub import Asked, TeacherStub, build, shown_answer, teaching, trace_of, written, wrong_answer

from data_gen.build_cot import main as build_cot
from data_gen.cot_report import main
from data_gen.records import Question, Trace, read_questions, read_traces
from data_gen.teaching.comparison import Outcome, compare, read_outcomes
from data_gen.teaching.costs import StageFigures, cost_of, total_cost
from data_gen.teaching.records import DRAFTS_FILE, SURPLUS, VERIFIED_FILE, Draft, Spent, Verified, read_lines
from data_gen.teaching.report import SHOWN, SHOWN_DROPPED, span, write_report
from data_gen.teaching.summary import Corrections, Expense, RunSummary, read_summary, summarise_run

PRICES = ("--price-in", "2", "--price-out", "1000")
MARKUP = "Here <b>bold</b> & <script>alert(1)</script> {{ 7 * 7 }} \"quoted\" 'text'. "


def place_of(text: str, places: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % places


def sloppy(asked: Asked) -> Answer | None:
    """Spoils about half of the drafts, each in its own way; on every sixth question all of them are wrong."""
    question, place = asked.question, place_of(asked.key, 8)
    if asked.stage == "write" and question:
        if place_of(question.id, 6) == 0:
            return written(question, answer=wrong_answer(question))
        return {
            0: written(question, "The given answer says so. " + trace_of(question)),
            1: "no tags at all",
            2: written(question, MARKUP + trace_of(question)),
        }.get(place)
    if asked.stage == "judge" and question and place < 2:
        return written(question, "Seen again: " + trace_of(question))
    return None


@dataclass(frozen=True)
class Runs:
    data: Path
    seen: Path
    blind: Path
    oracle: Path
    stub: TeacherStub


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The same questions by a writer who sees the answers, by a blind one, and by the oracle."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_small_set(folder / "data", images=10)
    with teaching(data, sloppy) as (stub, server):
        assert build(data, folder / "seen", server.url, "--attempts", "1", *PRICES) == 0
    with teaching(data, sloppy) as (_, server):
        assert build(data, folder / "blind", server.url, "--blind", "--samples", "2") == 0
    assert build_cot(["--data", str(data), "--out", str(folder / "oracle")]) == 0
    yield Runs(data, folder / "seen", folder / "blind", folder / "oracle", stub)


# --- figures ---


def verified(question: Question, first: tuple[str, ...] = (), last: tuple[str, ...] = (), **more: object) -> Verified:
    plain = Verified(
        question.id, question.task, 0, "m", "", False, "Words.", question.answer_text, False, 1, last, first
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def summary_of(items: list[Verified], traces: list[Trace], **more: object) -> RunSummary:
    return summarise_run({}, {"distance": 4, "yaw": 1}, items, traces, **more)  # type: ignore[arg-type]


def test_what_corrections_were_worth_is_counted_draft_by_draft() -> None:
    items = [
        verified(CLOSER),
        verified(CLOSER, ("given_answer", "too_long"), attempts=2, corrected=True),
        verified(CLOSER, (), ("bare_coordinates",), corrected=True),
        verified(CLOSER, ("given_answer",), ("given_answer", "no_trace"), attempts=3),
        verified(CLOSER, (), (SURPLUS,)),
        verified(FACING, ("wrong_answer",), ("wrong_answer",)),
    ]
    kept = [Trace(CLOSER, "So the answer is the red truck.", "m"), Trace(CLOSER, "It is big.", "m")]
    tasks = summary_of(items, kept).tasks
    figures = tasks["distance"]
    assert figures.corrections == Corrections(sound=1, mended=1, spoiled=1, lost=1, changed=2)
    assert (figures.questions, figures.kept, figures.drafts, figures.surplus) == (4, 2, 5, 1)
    assert figures.first_dropped == {"given_answer": 2, "too_long": 1}
    assert figures.dropped == {"bare_coordinates": 1, "given_answer": 1, "no_trace": 1}
    assert figures.kept_after == {"1": 1, "2": 1}
    assert (figures.kept_share, figures.holds_answer, figures.ends_with_answer) == (0.5, 0.5, 0.5)
    assert (figures.words, figures.mean_words, figures.longest_words) == ({"1-10": 2}, 5.0, 7)
    assert (tasks["yaw"].kept, tasks["yaw"].mean_words, tasks["yaw"].ends_with_answer) == (0, None, None)


def test_lengths_are_put_into_bins_and_tokens_counted_where_it_can_be_done() -> None:
    kept = [Trace(CLOSER, " ".join(["word"] * length), "m") for length in (1, 10, 11, 20, 21, 35)]
    plain, counted = summary_of([], kept), summary_of([], kept, count_tokens=lambda text: 2 * len(text.split()))
    assert plain.tasks["distance"].words == {"1-10": 2, "11-20": 2, "21-30": 1, "31-40": 1}
    assert plain.tasks["distance"].tokens == {} and plain.tasks["distance"].mean_tokens is None
    assert counted.tasks["distance"].tokens == {"1-20": 2, "21-40": 2, "41-60": 1, "61-80": 1}
    assert counted.tasks["distance"].longest_tokens == 70


def test_expenses_are_summed_by_stage_and_divided_by_the_clock() -> None:
    expenses = [
        Expense("write", "scribe", Spent(2, 1, 100, 10, 3.0)),
        Expense("reason", "thinker", Spent(1, 0, 50, 500, 9.0)),
        Expense("write", "scribe", Spent(1, 0, 200, 20, 1.0)),
    ]
    summary = summary_of([], [Trace(CLOSER, "Words.", "m")], expenses=expenses, wall_s={"write": 30.0, "reason": 10.0})
    assert list(summary.stages) == ["reason", "write"]
    assert summary.stages["write"] == StageFigures("scribe", 3, 1, 300, 30, 4.0, 30.0)
    assert summary.stages["write"].requests_per_minute == 6
    assert (summary.wall_s, summary.kept_per_minute) == (40.0, 1.5)
    assert summary_of([], []).kept_per_minute is None


@pytest.mark.parametrize(
    ("prices", "reason", "write"),
    [
        ({}, None, None),
        ({"price_in": 1.0}, None, None),
        ({"price_in": 1.0, "price_out": 10.0}, 12.0, 12.0),
        ({"price_in": 1.0, "price_out": 10.0, "reasoner_price_out": 20.0}, 22.0, 12.0),
        ({"reasoner_price_in": 3.0, "reasoner_price_out": 20.0}, 26.0, None),
    ],
)
def test_costs_come_from_prices_per_million_tokens(
    prices: dict[str, float], reason: float | None, write: float | None
) -> None:
    figures = StageFigures("m", 1, 0, 2_000_000, 1_000_000, 1.0, 1.0)
    assert (cost_of("reason", figures, prices), cost_of("write", figures, prices)) == (reason, write)
    total = total_cost({"reason": figures, "write": figures}, prices)
    assert total == (None if reason is None or write is None else reason + write)


def test_the_summary_of_a_run_agrees_with_its_files_and_with_the_server(runs: Runs) -> None:
    summary, traces = read_summary(runs.seen), read_traces(runs.seen / "cot.jsonl")
    asked = read_questions(runs.data)
    assert {task: figures.kept for task, figures in summary.tasks.items()} == Counter(t.question.task for t in traces)
    assert summary.kept == len(traces) < summary.questions == len(asked)
    items = list(read_lines(runs.seen / VERIFIED_FILE, Verified))
    for name in ("verdict", "first_verdict"):
        counted = Counter(code for item in items for code in getattr(item, name))
        told = [figures.dropped if name == "verdict" else figures.first_dropped for figures in summary.tasks.values()]
        assert sum(map(Counter, told), Counter()) == counted
    assert all(sum(figures.words.values()) == figures.kept for figures in summary.tasks.values())
    requests = Counter(
        {"again": "verify", "judge": "verify"}.get(asked.stage, asked.stage) for asked in runs.stub.asked
    )
    assert {stage: figures.requests for stage, figures in summary.stages.items()} == requests
    drafts = list(read_lines(runs.seen / DRAFTS_FILE, Draft))
    assert summary.stages["write"].tokens_out == sum(draft.spent.new_tokens for draft in drafts) > len(drafts)
    assert {stage: figures.model for stage, figures in summary.stages.items()} == {
        "reason": "thinker", "rules": "scribe", "write": "scribe", "verify": "scribe"
    }  # fmt: skip
    tokens = [(figures.tokens_in, figures.tokens_out) for figures in summary.stages.values()]
    cost = total_cost(summary.stages, summary.prices)
    assert cost == pytest.approx(sum(2 * read + 1000 * wrote for read, wrote in tokens) / 1e6)


def test_samples_of_questions_with_a_kept_one_are_surplus_not_dropped(runs: Runs) -> None:
    summary = read_summary(runs.blind)
    assert sum(figures.surplus for figures in summary.tasks.values()) > 0
    for figures in summary.tasks.values():
        fates = figures.corrections
        assert SURPLUS not in figures.dropped
        assert figures.drafts == 2 * figures.questions
        assert fates.sound + fates.mended + fates.spoiled + fates.lost + figures.surplus == figures.drafts
        assert fates.sound + fates.mended == figures.kept


# --- comparison ---


def test_runs_are_compared_on_the_questions_of_both(runs: Runs) -> None:
    oracle, blind = read_outcomes(runs.oracle), read_outcomes(runs.blind)
    compared = compare(blind, oracle)
    assert compared["all"].questions == len(oracle) == sum(c.questions for task, c in compared.items() if task != "all")
    kept = {trace.question.id for trace in read_traces(runs.blind / "cot.jsonl")}
    assert (compared["all"].run.kept, compared["all"].against.kept) == (len(kept), len(oracle))
    # A blind writer's wrong answers are the questions where it disagrees with the geometry.
    truth = {question.id: question for question in read_questions(runs.data)}
    written_answers = {name: outcome.answer for name, outcome in blind.items() if outcome.answer}
    wrong = [name for name in written_answers if name not in kept and "wrong_answer" in verdict_of(runs.blind, name)]
    assert wrong and {truth[name].task for name in written_answers} == set(compared) - {"all"}
    assert compared["all"].agreement == pytest.approx(1 - len(wrong) / len(written_answers))
    some = {name: outcome for name, outcome in oracle.items() if outcome.task == "pixel"}
    assert list(compare(blind, some)) == ["pixel", "all"]
    assert compare(blind, {}) == {}


def verdict_of(folder: Path, name: str) -> tuple[str, ...]:
    return next(item.verdict for item in read_lines(folder / VERIFIED_FILE, Verified) if item.id == name)


def test_points_agree_within_a_hundredth_of_the_image() -> None:
    def outcome_of(answer: str, kept: bool) -> dict[str, Outcome]:
        return {"x": Outcome("pixel", answer, kept, image_size=CENTRE.image_size if kept else None)}

    pairs = [("[200, 400]", "[215, 408]", 1.0), ("[200, 400]", "[217, 400]", 0.0), ("[200, 400]", "", None)]
    for one, other, agreement in pairs:
        compared = compare(outcome_of(one, True), outcome_of(other, False))
        assert compared["pixel"].agreement == agreement


# --- the page ---


class Page(HTMLParser):
    """What a page refers to, its scripts, and the text it shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: Counter[str] = Counter()
        self.shown = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.references += [value or "" for name, value in attrs if name in ("href", "src")]

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        self.shown += data


def ids_on(path: Path) -> list[str]:
    return re.findall(r"<code>([\w-]+-\d)</code></div>", path.read_text(encoding="utf-8"))


def test_the_page_of_a_run_stands_alone_and_shows_twenty_traces_with_their_pictures(runs: Runs) -> None:
    path = runs.seen / "report.html"
    page, shown = Page(path), ids_on(path)
    assert page.references and all(text.startswith(("data:image/jpeg;base64,", "#")) for text in page.references)
    text = path.read_text(encoding="utf-8")
    assert "http" not in text and "@import" not in text and "image not found" not in text
    kept = {trace.question.id for trace in read_traces(runs.seen / "cot.jsonl")}
    assert len(kept & set(shown)) == min(SHOWN, len(kept)) == SHOWN
    dropped = set(shown) - kept
    assert 0 < len(dropped) <= SHOWN_DROPPED
    assert page.tags["article"] == len(shown) == len(set(shown))
    for trace in read_traces(runs.seen / "cot.jsonl"):
        if trace.question.id in shown:
            for said in (trace.question.question, trace.question.answer_text, trace.reasoning.strip()):
                assert said in page.shown
    for name in dropped:
        assert f"dropped: {', '.join(verdict_of(runs.seen, name)).replace('_', ' ')}" in page.shown
    for rules in (runs.seen / "rules").glob("*.md"):
        assert rules.read_text().splitlines()[-1] in page.shown
        assert hashlib.sha256(rules.read_bytes()).hexdigest()[:12] in page.shown


def test_what_models_write_is_shown_as_text(runs: Runs, tmp_path: Path) -> None:
    out = tmp_path / "all.html"
    write_report([runs.seen, runs.blind], out)
    text, page = out.read_text(encoding="utf-8"), Page(out)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text and page.tags["script"] == 1 and page.tags["b"] == text.count("</b>")
    assert "{{ 7 * 7 }}" in page.shown


def test_the_draw_follows_the_seed_and_not_the_run(runs: Runs, tmp_path: Path) -> None:
    first, again, other = (tmp_path / f"{name}.html" for name in ("first", "again", "other"))
    for path, seed in ((first, "0"), (again, "0"), (other, "1")):
        assert main([str(runs.oracle), "--out", str(path), "--seed", seed]) == 0
    assert first.read_text() == again.read_text()
    assert ids_on(first) != ids_on(other)
    both = tmp_path / "both.html"
    assert main([str(runs.oracle), str(runs.seen), "--out", str(both)]) == 0
    assert set(ids_on(both)) == set(ids_on(first))


def test_runs_side_by_side_show_every_writing_of_a_question(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "compare.html"
    words = [str(runs.oracle), str(runs.seen), str(runs.blind), "--out", str(out)]
    assert main([*words, "--price-in", "1", "--price-out", "2", "--reasoner-price-out", "3"]) == 0
    told = capsys.readouterr().out
    for word in ("oracle: oracle", "seen: scribe", "blind: scribe", "requests (0 retries)", "cost 0.", str(out)):
        assert word in told
    page = Page(out)
    assert "seen beside oracle" in page.shown and "blind beside oracle" in page.shown
    text = out.read_text(encoding="utf-8")
    assert text.count('<div class="writing"') == 3 * SHOWN
    one = ids_on(out)[0]
    for folder in (runs.seen, runs.blind):
        items = [item for item in read_lines(folder / VERIFIED_FILE, Verified) if item.id == one]
        assert any(item.reasoning.strip() in page.shown for item in items)


def test_a_run_on_other_questions_is_told_not_compared(runs: Runs, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert build_cot(["--data", str(runs.data), "--out", str(other), "--tasks", "pixel"]) == 0
    yaw = tmp_path / "yaw"
    assert build_cot(["--data", str(runs.data), "--out", str(yaw), "--tasks", "yaw"]) == 0
    out = tmp_path / "page.html"
    assert main([str(other), str(yaw), "--out", str(out)]) == 0
    assert "yaw was asked none of the questions of other" in Page(out).shown
    assert "Side by side" not in Page(out).shown


def test_runs_of_the_same_name_are_told_apart_and_missing_images_are_said(runs: Runs, tmp_path: Path) -> None:
    twin, out = tmp_path / "b" / "oracle", tmp_path / "page.html"
    assert build_cot(["--data", str(runs.data), "--out", str(twin), "--limit", "30"]) == 0
    assert main([str(runs.oracle), str(twin), "--out", str(out), "--images", str(tmp_path)]) == 0
    page = Page(out)
    assert str(runs.oracle) in page.shown and str(twin) in page.shown
    assert "image not found: 0" in page.shown and all(text.startswith("#") for text in page.references)


@pytest.mark.parametrize(
    ("content", "out", "message"),
    [
        (None, "page.html", "holds no finished run of traces"),
        ("{", "page.html", "is no summary of traces"),
        (json.dumps({"kept": 3}), "page.html", "is no summary of traces"),
        ("", "page", "a file that ends in .html"),
    ],
)
def test_what_cannot_be_reported_ends_with_2_and_the_reason(
    content: str | None, out: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    assert main([str(tmp_path), "--out", str(tmp_path / out)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / out).exists()


def test_a_run_that_kept_nothing_is_reported_too(runs: Runs, tmp_path: Path) -> None:
    out = tmp_path / "none"
    with teaching(runs.data, lambda asked: "nothing" if asked.stage in ("write", "again") else None) as (_, server):
        assert build(runs.data, out, server.url, "--tasks", "depth", "--attempts", "1") == 0
    summary = read_summary(out)
    assert (summary.kept, summary.tasks["depth"].dropped) == (0, {"no_trace": summary.questions})
    page = Page(out / "report.html")
    assert "dropped: no trace" in page.shown and "(no trace)" in page.shown and "Kept traces" not in page.shown


def test_a_point_in_a_trace_is_drawn_where_it_lies(runs: Runs) -> None:
    def pointing(asked: Asked) -> Answer | None:
        if asked.stage != "write" or not asked.question:
            return None
        return written(asked.question, f"The centre is at [{shown_answer(asked.question)}].")

    out = runs.data.parent / "pointing"
    with teaching(runs.data, pointing) as (_, server):
        assert build(runs.data, out, server.url, "--tasks", "pixel") == 0
    text = (out / "report.html").read_text()
    for trace in read_traces(out / "cot.jsonl"):
        found = re.search(r"\[\[([\d.]+), ([\d.]+)\]\]", trace.reasoning)
        assert found
        x, y = (float(value) for value in found.groups())
        assert f'<path class="box" d="M{x - 160 / 60:.1f}'.removesuffix(".0") in text and f" {y:g}H" in text


def test_a_run_that_lost_its_summary_gets_it_again_with_the_page(runs: Runs, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    shutil.copytree(runs.seen, out)
    wanted = json.loads((out / "summary.json").read_text())
    (out / "summary.json").unlink()
    (out / "report.html").unlink()
    with teaching(runs.data) as (stub, server):
        assert build(runs.data, out, server.url, "--attempts", "1", "--resume", *PRICES) == 0
    assert not stub.asked
    assert json.loads((out / "summary.json").read_text()) == wanted
    assert ids_on(out / "report.html") == ids_on(runs.seen / "report.html")


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "–"), (3.26, "3.3 s"), (60, "1 min"), (3599, "1 h 00 min"), (30_000, "8 h 20 min")]
)
def test_times_are_told_in_words(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_the_command_explains_itself(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[1] / "data_gen" / "cot_report.py"
    told = subprocess.run(
        [sys.executable, str(script), "--help"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert "data_gen/cot_report.py data/cot-oracle" in told.stdout and "--reasoner-price-in" in told.stdout
