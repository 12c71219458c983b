"""Traces that err: their premises tell another answer, read from the words alone; boxes and answer stay true."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sample_questions import CLOSER, FACING, questions

from data_gen.build_cot import main
from data_gen.compass import DIRECTIONS, opposite
from data_gen.oracle import TIE, ending_of, oracle_trace
from data_gen.oracle_misread import misread
from data_gen.oracle_wording import POINTINGS
from data_gen.records import Question, Trace, question_to_row, read_traces, write_rows
from data_gen.teaching.selection import Selection, choose
from data_gen.trace_checks import ends_with_answer, trace_problems
from rewards.boxes import CoordinateFrame
from rewards.grading import TASKS, grade_text
from rewards.response import numbers_in, parse
from rewards.trace_text import concluded_option, coordinates_in
from training.data import target_response

ORIGINAL = CoordinateFrame("original")


def told_yaw(question: Question, reasoning: str) -> str | None:
    words = sorted(POINTINGS, key=len, reverse=True)
    turned = re.search(rf"(?:points?|turned) ({'|'.join(words)})\.", reasoning)
    if turned is None:
        return None
    heading = DIRECTIONS[POINTINGS.index(turned[1])]
    return heading if question.variant == 0 else opposite(heading)


def told_pixel(question: Question, reasoning: str) -> str:
    """Whether the box of the trace is the true one."""
    (box, *_) = coordinates_in(reasoning)
    true = tuple(float(round(value)) for value in question.objects[0].bbox)
    return question.answer_text if box == true else "another place"


def told_depth(question: Question, reasoning: str) -> str | None:
    """The only option that holds the metres that the trace says first."""
    metres, *_ = numbers_in(reasoning)
    fitting = [option for option in question.options if numbers_in(option)[0] <= metres <= numbers_in(option)[1]]
    return fitting[0] if len(fitting) == 1 else None


def told_comparison(question: Question, reasoning: str) -> str | None:
    """What follows from the two numbers, and from words that say that both are alike."""
    if re.search(r"\b(equally|same|neither|no clear)\b", reasoning, re.IGNORECASE):
        return question.options[TIE]
    first, second = (int(re.findall(rf"(\d+) {item.name}\b", reasoning)[0]) for item in question.objects)
    if first == second:
        return None
    more = (question.variant == 1) != (question.task == "front_behind")
    return question.options[int((first > second) != more)]


READERS = {
    "yaw": told_yaw, "pixel": told_pixel, "depth": told_depth, "distance": told_comparison,
    "front_behind": told_comparison, "left_right": told_comparison,
}  # fmt: skip


def share_told_true(asked: list[Question], seen: list[Question]) -> dict[str, tuple[float, float]]:
    """Per task: the share of traces that can be read, and the share of these that tell the true answer."""
    counts: Counter[tuple[str, str]] = Counter()
    for question, looked in zip(asked, seen, strict=True):
        told = READERS[question.task](question, oracle_trace(looked).reasoning)
        counts[question.task, "asked"] += 1
        counts[question.task, "read"] += told is not None
        counts[question.task, "true"] += told == question.answer_text
    return {
        task: (counts[task, "read"] / counts[task, "asked"], counts[task, "true"] / counts[task, "read"])
        for task in TASKS
    }


def test_premises_of_a_misread_picture_tell_another_answer_in_every_task() -> None:
    asked = questions(400)
    for task, (read, true) in share_told_true(asked, asked).items():
        assert read > 0.55 and true > 0.94, (task, read, true)
    for task, (read, true) in share_told_true(asked, list(map(misread, asked))).items():
        assert read > 0.55 and true < 0.03, (task, read, true)


def test_a_misread_question_keeps_its_words_and_is_no_worse_a_question() -> None:
    for question in questions(400):
        seen = misread(question)
        kept = ("id", "pair_id", "variant", "task", "image", "width", "height", "question", "options", "split")
        assert all(getattr(question, name) == getattr(seen, name) for name in kept)
        assert seen.answer != question.answer and [o.name for o in seen.objects] == [o.name for o in question.objects]
        assert trace_problems(seen, oracle_trace(seen).reasoning) == ()
        if question.task == "pixel":
            assert grade_text(f"<answer>{seen.answer_text}</answer>", question.truth, ORIGINAL).score == 0


def test_the_conclusion_errs_too_and_the_answer_does_not() -> None:
    for question in questions():
        seen = misread(question)
        trace = replace(oracle_trace(seen), question=question)
        target = target_response(trace, ORIGINAL)
        assert grade_text(target, question.truth, ORIGINAL).score > 0 and parse(target).well_formed
        located = target_response(oracle_trace(question), ORIGINAL).split("<think>")[0]
        assert target.startswith(located)
        assert not ends_with_answer(question, trace.reasoning)
        if ending_of(question.id) == "literal" and question.task != "pixel":
            assert concluded_option(trace.reasoning, question.options) is not None


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("surds") / "questions.jsonl"
    write_rows(path, map(question_to_row, questions(160)))
    return path


def traces_of(data: Path, out: Path, *options: str) -> list[Trace]:
    assert main(["--data", str(data), "--out", str(out), *options]) == 0
    return read_traces(out / "cot.jsonl")


def test_the_share_errs_and_is_told_and_the_rest_is_as_ever(data: Path, tmp_path: Path) -> None:
    plain = traces_of(data, tmp_path / "plain")
    traces_of(data, tmp_path / "none", "--erring-share", "0")
    assert (tmp_path / "none" / "cot.jsonl").read_bytes() == (tmp_path / "plain" / "cot.jsonl").read_bytes()
    some = traces_of(data, tmp_path / "some", "--erring-share", "0.3")
    erring = [trace.question.extra.get("erring") for trace in some]
    count, noise = sum(name is not None for name in erring), (0.3 * 0.7 * len(plain)) ** 0.5
    assert len(some) == len(plain) and abs(count - 0.3 * len(plain)) < 4 * noise
    for before, after, answer in zip(plain, some, erring, strict=True):
        assert replace(after.question, extra={}) == before.question and answer != after.question.answer_text
        assert (after.reasoning == before.reasoning) <= (answer is None or before.question.task == "depth")
        assert answer is not None or after == before
    summary = json.loads((tmp_path / "some" / "summary.json").read_text())
    assert sum(figures["erring"] for figures in summary["tasks"].values()) == count
    assert traces_of(data, tmp_path / "again", "--erring-share", "0.3") == some


def test_a_share_that_cannot_be_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--data", str(data), "--out", str(tmp_path / "a"), "--erring-share", "1.5"])
    assert "from 0 to 1" in capsys.readouterr().err
    servers = ("--erring-share", "0.5", "--teacher", "servers")
    assert main(["--data", str(data), "--out", str(tmp_path / "a"), *servers]) == 2
    assert "for the oracle" in capsys.readouterr().err


def test_a_run_is_not_gone_on_with_by_another_share(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces_of(data, tmp_path, "--erring-share", "0.5", "--overwrite")
    assert main(["--data", str(data), "--out", str(tmp_path), "--erring-share", "0.2", "--resume"]) == 2
    assert "erring_share 0.5 -> 0.2" in capsys.readouterr().err


def test_balanced_tasks_have_as_many_traces_each(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, options in {"drawn": (), "balanced": ("--balance-tasks",)}.items():
        traces = traces_of(data, tmp_path / name, "--limit", "120", *options)
        counts = Counter(trace.question.task for trace in traces)
        halves = Counter(trace.question.pair_id for trace in traces if trace.question.pair_id)
        assert set(halves.values()) == {2}
        assert (set(counts.values()) == {20}) == (name == "balanced"), counts
    assert main(["--data", str(data), "--out", str(tmp_path / "no"), "--balance-tasks"]) == 2
    assert "give one" in capsys.readouterr().err


def test_tasks_draw_units_of_pictures_of_their_own() -> None:
    """Tasks have as many units, in the order of the same pictures; still, each draws for itself."""
    kinds = (FACING, CLOSER)
    asked = [
        replace(kind, pair_id=f"{kind.task}-{index}", image=f"{index}.jpg") for kind in kinds for index in range(200)
    ]
    drawn = choose(asked, Selection("questions.jsonl", "", 0, ("yaw", "distance"), 80, balance_tasks=True))
    yaw, distance = ({question.image for question in drawn if question.task == kind.task} for kind in kinds)
    assert len(yaw) == len(distance) == 40
    assert len(yaw & distance) < 20  # 8 are expected
