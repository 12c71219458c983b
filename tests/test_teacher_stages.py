"""Teachers behind servers, stage by stage: what they are shown, what becomes of their words, what is kept."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, image_of
from small_questions import SIZE, write_small_set
from teacher_stub import Asked, build, shown_answer, teaching, trace_of, written, wrong_answer

from data_gen.build_cot import main
from data_gen.oracle import oracle_trace
from data_gen.records import question_to_row, read_questions, read_traces, write_rows
from data_gen.teaching import prompts
from data_gen.teaching.records import Draft, Reasoned, Verified, read_lines
from rewards.boxes import CoordinateFrame
from training.data import target_response


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_set(tmp_path_factory.mktemp("small"), images=4)


@pytest.fixture(scope="module")
def own_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    for task in prompts.MEANINGS:
        (folder / f"{task}.md").write_text(f"# heading\n\n1. Look at the {task}.\n")
    return folder


def summary_of(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary


def verified_of(out: Path) -> dict[tuple[str, int], Verified]:
    return {(item.id, item.sample): item for item in read_lines(out / "verify.jsonl", Verified)}


# --- all stages ---


def test_all_stages_lead_from_questions_to_traces_in_file_order(data: Path, tmp_path: Path) -> None:
    asked, out = read_questions(data), tmp_path / "deep" / "cot"
    with teaching(data) as (stub, server):
        assert build(data, out, server.url) == 0
    traces = read_traces(out / "cot.jsonl")
    assert [trace.question for trace in traces] == asked
    assert [trace.reasoning for trace in traces] == [oracle_trace(question).reasoning for question in asked]
    assert {(trace.teacher, trace.attempts, trace.verdict) for trace in traces} == {("scribe", 1, ())}
    for trace in traces:
        rules = (out / "rules" / f"{trace.question.task}.md").read_bytes()
        assert trace.rules == hashlib.sha256(rules).hexdigest()
    assert len(stub.counts("write")) == len(stub.counts("judge")) == len(asked)
    assert len(stub.counts("rules")) == 6 and not stub.counts("again")
    reasoned = list(read_lines(out / "reason.jsonl", Reasoned))
    assert {item.right for item in reasoned} == {True} and {item.model for item in reasoned} == {"thinker"}
    assert Counter(item.task for item in reasoned) == {
        task: 2 * (1 if task in ("pixel", "depth") else 2) for task in prompts.MEANINGS
    }
    figures = summary_of(out)["tasks"]
    assert {task: row["kept"] for task, row in figures.items()} == Counter(question.task for question in asked)
    root = json.loads((out / "manifest.json").read_text())["image_root"]
    assert (out / root).resolve() == data.parent.resolve()


def test_every_request_about_a_picture_holds_it_and_only_the_rules_are_text_alone(data: Path, tmp_path: Path) -> None:
    with teaching(data) as (stub, server):
        assert build(data, tmp_path / "cot", server.url, "--tasks", "pixel") == 0
    for asked in stub.asked:
        image = image_of(asked.request)
        assert (image is None) == (asked.stage == "rules") and (image is None or image.size == SIZE)
        assert asked.request["temperature"] == (0.7 if asked.stage in ("reason", "write") else 0.0)


def test_teachers_see_coordinates_up_to_1000_and_files_hold_pixels(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "cot"
    with teaching(data) as (stub, server):
        assert build(data, out, server.url, "--tasks", "pixel") == 0
    frame = CoordinateFrame("thousand")
    for asked in stub.asked:
        if asked.question is None:
            continue
        box, point = (
            ", ".join(str(round(value)) for value in frame.to_model(values, SIZE))
            for values in (asked.question.objects[0].bbox, asked.question.answer)
        )
        assert f"[[{box}]]" in asked.text and f"Right answer: [{point}]" in asked.text
    for draft in read_lines(out / "write.jsonl", Draft):
        question = next(item for item in read_questions(data) if item.id == draft.id)
        assert (draft.reasoning, draft.answer) == (oracle_trace(question).reasoning, question.answer_text)


def test_the_location_part_is_that_of_the_true_boxes(data: Path, tmp_path: Path) -> None:
    def override(asked: Asked) -> Answer | None:
        located = asked.question and asked.stage == "write"
        return f"<location>car: [1, 2, 3, 4]</location>{written(asked.question)}" if located else None

    with teaching(data, override) as (_, server):
        assert build(data, tmp_path / "cot", server.url, "--tasks", "depth") == 0
    for trace in read_traces(tmp_path / "cot" / "cot.jsonl"):
        box = ", ".join(str(round(value)) for value in trace.question.objects[0].bbox)
        assert target_response(trace, CoordinateFrame("original")).startswith(
            f"<location>{trace.question.objects[0].name}: [{box}]</location>"
        )


# --- rules ---


def test_wrong_reasoning_is_marked_and_comes_last(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = next(question for question in read_questions(data) if question.task == "depth").id

    def override(asked: Asked) -> Answer | None:
        if asked.stage == "reason" and asked.question and asked.question.id == wrong:
            return f"It looks small, so the answer is {wrong_answer(asked.question)}."  # without any tag
        return None

    with teaching(data, override) as (stub, server):
        assert build(data, tmp_path / "cot", server.url, "--tasks", "depth") == 0
    right = {item.id: item.right for item in read_lines(tmp_path / "cot" / "reason.jsonl", Reasoned)}
    assert sorted(right.values()) == [False, True] and not right[wrong]
    assert "explanations on" not in capsys.readouterr().err
    (asked,) = (asked for asked in stub.asked if asked.stage == "rules")
    assert asked.text.index(prompts.RIGHT_EXAMPLE) < asked.text.index(prompts.WRONG_EXAMPLE)
    assert "It looks small" in asked.text.partition(prompts.WRONG_EXAMPLE)[2]


def test_rules_from_wrong_reasoning_alone_are_announced(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with teaching(data, lambda asked: "I cannot tell." if asked.stage == "reason" else None) as (_, server):
        assert build(data, tmp_path / "cot", server.url, "--tasks", "depth", "--stages", "reason,rules") == 0
    assert "none of the 2 explanations on depth reached the right answer" in capsys.readouterr().err


def test_rules_may_be_edited_before_the_traces_are_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cot"
    with teaching(data) as (stub, server):
        assert build(data, out, server.url, "--stages", "reason,rules", "--tasks", "yaw,depth") == 0
        assert "may be edited now; left to do: write, verify" in capsys.readouterr().out
        assert (out / "rules" / "yaw.md").read_text().splitlines()[2:] == [
            "1. Look where the objects touch the ground (4).", "2. **Compare** their sizes."
        ]  # fmt: skip
        (out / "rules" / "yaw.md").write_text("# mine\n1. Count the wheels.\n")
        digest = hashlib.sha256(b"# mine\n1. Count the wheels.\n").hexdigest()
        writer = (
            "--writer",
            server.url,
            "--writer-model",
            "scribe",
            "--tasks",
            "yaw,depth",
        )  # and no reasoner any more
        assert main(["--data", str(data), "--out", str(out), "--resume", *writer]) == 0
    told = capsys.readouterr().err
    assert f"yaw.md was edited by hand and is used as it is (sha256 {digest})" in told and "depth.md" not in told
    for trace in read_traces(out / "cot.jsonl"):
        assert (trace.rules == digest) == (trace.question.task == "yaw")
    for asked in stub.asked:
        if asked.stage == "write" and asked.question:
            assert ("\n1. Count the wheels.\n" in asked.text) == (asked.question.task == "yaw")
            assert "# " not in asked.text


def test_own_rules_need_no_reasoner(data: Path, own_rules: Path, tmp_path: Path) -> None:
    out = tmp_path / "cot"
    with teaching(data) as (stub, server):
        options = ["--data", str(data), "--out", str(out), "--writer", server.url, "--writer-model", "scribe"]
        assert main([*options, "--rules", str(own_rules), "--stages", "write"]) == 0
        assert main([*options, "--resume"]) == 0
    assert {asked.stage for asked in stub.asked} == {"write", "judge"}
    assert len(read_traces(out / "cot.jsonl")) == len(read_questions(data))
    assert (out / "rules" / "yaw.md").read_bytes() == (own_rules / "yaw.md").read_bytes()


# --- blind ---


def test_a_blind_writer_is_shown_neither_answer_nor_boxes(data: Path, own_rules: Path, tmp_path: Path) -> None:
    with teaching(data) as (stub, server):
        assert build(data, tmp_path / "cot", server.url, "--blind", "--rules", str(own_rules)) == 0
    assert {asked.stage for asked in stub.asked} == {"write", "judge"}
    for asked in stub.asked:
        assert "Right answer" not in asked.text and "Where the named" not in asked.text
        assert "[[" not in asked.text.partition("<think>")[0].replace(prompts.BLIND_FRAME, "")
        assert (
            asked.stage == "judge" or not asked.question or f"answer>{shown_answer(asked.question)}" not in asked.text
        )


def test_of_blind_samples_the_first_right_one_is_kept(data: Path, own_rules: Path, tmp_path: Path) -> None:
    """Of the even questions only the second and third sample is right, of the others none."""
    asked = [question for question in read_questions(data) if question.task in ("pixel", "depth")]
    lucky = {question.id for question in asked[::2]}

    def override(request: Asked) -> Answer | None:
        if request.stage == "write" and request.question and (request.seed == 0 or request.question.id not in lucky):
            return written(request.question, "I see it.", wrong_answer(request.question))
        return None

    out, tasks = tmp_path / "cot", ("--tasks", "pixel,depth")
    with teaching(data, override) as (stub, server):
        rules = ("--rules", str(own_rules))
        assert build(data, out, server.url, "--blind", "--samples", "3", *rules, *tasks) == 0
    assert {trace.question.id for trace in read_traces(out / "cot.jsonl")} == lucky
    verified = verified_of(out)
    for question in asked:
        verdicts = [verified[question.id, sample].verdict for sample in range(3)]
        assert [verdict[-1:] for verdict in verdicts] == (
            [("wrong_answer",), (), ("surplus",)] if question.id in lucky else [("wrong_answer",)] * 3
        )
    assert len(stub.counts("judge")) == len(lucky) and not stub.counts("again")


# --- verify ---


def test_a_faulty_trace_goes_back_with_its_reasons_in_words(data: Path, own_rules: Path, tmp_path: Path) -> None:
    faulty = "The answer is given, see [10, 20]."

    def override(asked: Asked) -> Answer | None:
        return written(asked.question, faulty) if asked.question and asked.stage == "write" else None

    out = tmp_path / "cot"
    with teaching(data, override) as (stub, server):
        assert build(data, out, server.url, "--rules", str(own_rules), "--tasks", "yaw") == 0
    for item in verified_of(out).values():
        assert (item.attempts, item.verdict, item.first_verdict) == (2, (), ("bare_coordinates", "given_answer"))
    for asked in stub.asked:
        if asked.stage == "again":
            said = asked.text.partition(prompts.AGAIN.split("{")[0])[2]
            assert faulty in said and all(
                prompts.PROBLEMS[code] in said for code in ("bare_coordinates", "given_answer")
            )
    assert all(trace.attempts == 2 for trace in read_traces(out / "cot.jsonl"))


@pytest.mark.parametrize("attempts", [1, 2])
def test_what_stays_faulty_is_dropped_with_its_last_reasons(
    attempts: int, data: Path, own_rules: Path, tmp_path: Path
) -> None:
    lost = next(question for question in read_questions(data) if question.task == "yaw").id

    def override(asked: Asked) -> Answer | None:
        if asked.question and asked.question.id == lost and asked.stage in ("write", "again"):
            return written(asked.question, answer=wrong_answer(asked.question))
        return None

    out = tmp_path / "cot"
    with teaching(data, override) as (stub, server):
        options = ("--rules", str(own_rules), "--tasks", "yaw", "--attempts", str(attempts))
        assert build(data, out, server.url, *options) == 0
    item = verified_of(out)[lost, 0]
    assert (item.verdict, item.attempts) == (("wrong_answer",), attempts)
    figures = summary_of(out)["tasks"]["yaw"]
    assert figures["dropped"] == {"wrong_answer": 1} and figures["kept"] == figures["questions"] - 1
    assert lost not in {trace.question.id for trace in read_traces(out / "cot.jsonl")}
    assert sum(stub.counts("again").values()) == attempts - 1


def test_the_judge_may_correct_a_trace(data: Path, own_rules: Path, tmp_path: Path) -> None:
    def override(asked: Asked) -> Answer | None:
        if asked.question and asked.stage == "write":
            return written(asked.question, "It flies.")
        if asked.question and asked.stage == "judge" and "It flies." in asked.text:
            return f"Not fine, cars do not fly.\n{written(asked.question)}"
        return None

    out = tmp_path / "cot"
    with teaching(data, override) as (_, server):
        assert build(data, out, server.url, "--rules", str(own_rules), "--tasks", "depth") == 0
    assert all((item.corrected, item.attempts) == (True, 1) for item in verified_of(out).values())
    for trace in read_traces(out / "cot.jsonl"):
        assert trace.reasoning == oracle_trace(trace.question).reasoning


@pytest.mark.parametrize(
    ("judgement", "verdict"),
    [
        ("FINE", ()), ("**Fine.**", ()), ("<think>Let me see.</think>\nFINE", ()),
        ("Every step is borne out.\n\n**FINE**\n", ()), ("It cannot be called\nfine at all.", ("unjudged",)),
        ("It is wrong.", ("unjudged",)), ("Not fine.", ("unjudged",)), ("<think>I wonder", ("unjudged",)),
    ],
)  # fmt: skip
def test_a_judgement_is_fine_or_a_correction_and_nothing_else(
    judgement: str, verdict: tuple[str, ...], data: Path, own_rules: Path, tmp_path: Path
) -> None:
    with teaching(data, lambda asked: judgement if asked.stage == "judge" else None) as (_, server):
        options = ("--rules", str(own_rules), "--tasks", "depth", "--limit", "1", "--attempts", "1")
        assert build(data, tmp_path / "cot", server.url, *options) == 0
    (item,) = verified_of(tmp_path / "cot").values()
    assert (item.verdict, item.corrected) == (verdict, False)


# --- budgets ---


def test_the_budget_of_tokens_is_counted_by_the_tokenizer_of_the_student(
    data: Path, own_rules: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path / "student")
    question = next(question for question in read_questions(data) if question.task == "depth")
    one = tmp_path / "one.jsonl"
    write_rows(one, [question_to_row(question)])
    whole = target_response(oracle_trace(question), CoordinateFrame("original"))
    for spare, kept in ((0, 1), (-1, 0)):
        out = tmp_path / f"cot{kept}"
        with teaching(data) as (_, server):
            limit = str(len(whole.split()) + spare)
            options = ("--rules", str(own_rules), "--tokenizer", str(tmp_path / "student"), "--max-tokens", limit)
            assert build(one, out, server.url, *options, "--images", str(data.parent)) == 0
        assert summary_of(out)["kept"] == kept
        assert summary_of(out)["tasks"]["depth"]["dropped"] == ({} if kept else {"too_long": 1})


def test_without_a_tokenizer_a_token_is_three_characters(data: Path, own_rules: Path, tmp_path: Path) -> None:
    long = "It is there. " * 150  # 1950 characters, 450 words: 650 tokens by this measure

    def override(asked: Asked) -> Answer | None:
        return written(asked.question, long) if asked.question and asked.stage != "judge" else None

    with teaching(data, override) as (_, server):
        options = ("--rules", str(own_rules), "--tasks", "depth", "--attempts", "2")
        assert build(data, tmp_path / "cot", server.url, *options) == 0
    assert {item.verdict for item in verified_of(tmp_path / "cot").values()} == {("too_long",)}
    assert trace_of(read_questions(data)[0])
