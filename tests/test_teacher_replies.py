"""What teachers' servers do wrong, met in the middle of a run: counted under a reason, or the end with a remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_clients import HTML, free_port
from chat_server import DROP, Answer, Raw, serve
from small_questions import write_small_set
from teacher_stub import Asked, TeacherStub, build, teaching, written

from data_gen.records import read_questions, read_traces
from data_gen.teaching import prompts
from data_gen.teaching.records import Draft, Reasoned, Spent, Verified, read_lines

REFUSED = Raw(json.dumps({"error": {"message": "content_policy violated"}}).encode(), 400)
FILTERED = Raw(json.dumps({"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}).encode())
EMPTY = Raw(json.dumps({"choices": []}).encode())
LONG_PROMPT = Raw(json.dumps({"error": {"message": "maximum context length is 4096 tokens"}}).encode(), 400)
REJECTED = Raw(json.dumps({"error": {"message": "no images, please"}}).encode(), 422)
CUT = Raw(
    json.dumps({"choices": [{"message": {"content": "<think>And so on"}, "finish_reason": "length"}]}).encode()
)  # fmt: skip
LONG = "It is there. " * 8000  # 100 kB


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_set(tmp_path_factory.mktemp("small"), images=4)


@pytest.fixture(scope="module")
def own_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    for task in prompts.MEANINGS:
        (folder / f"{task}.md").write_text("1. Look.\n")
    return folder


@pytest.mark.parametrize(
    ("fault", "reason", "writings"),
    [
        (REFUSED, "refused", 1),
        (FILTERED, "refused", 1),
        (LONG_PROMPT, "prompt_too_long", 1),
        (REJECTED, "rejected", 1),
        (EMPTY, "empty_reply", 2),
        (" \n", "empty_reply", 2),
        (LONG, "overlong_reply", 2),
        (f"<think>{LONG}</think><answer>North</answer>", "overlong_reply", 2),
        (CUT, "cut_reply", 2),
        ("I cannot see it.", "no_trace", 2),
        ("<think>I see it.</think>", "no_answer", 2),
        ("<think></think><answer>North</answer>", "empty_trace", 2),
        (f"<think>It is at [[{'9' * 40}, 1]].</think><answer>North</answer>", "coordinates_outside", 2),
        (f"<think>It is at [[{'9' * 400}, 1]].</think><answer>North</answer>", "bare_coordinates", 2),
        ("<think>I <b>see</think> it.</think><answer>Up</answer>", "wrong_answer", 2),
    ],
)
def test_a_reply_that_is_no_trace_ends_as_a_counted_reason(
    fault: Answer, reason: str, writings: int, data: Path, own_rules: Path, tmp_path: Path
) -> None:
    lost = read_questions(data)[0].id

    def override(asked: Asked) -> Answer | None:
        bad = asked.question and asked.question.id == lost and asked.stage in ("write", "again")
        return fault if bad else None

    out = tmp_path / "cot"
    with teaching(data, override) as (_, server):
        options = ("--rules", str(own_rules), "--tasks", "yaw", "--attempts", "2")
        assert build(data, out, server.url, *options) == 0
    verified = {item.id: item for item in read_lines(out / "verify.jsonl", Verified)}
    assert reason in verified[lost].verdict and verified[lost].attempts == writings
    figures = json.loads((out / "summary.json").read_text())["tasks"]["yaw"]
    assert figures["dropped"][reason] == 1 and figures["kept"] == figures["questions"] - 1
    assert len(read_traces(out / "cot.jsonl")) == figures["kept"]


@pytest.mark.parametrize("fault", [REFUSED, EMPTY, LONG, REJECTED])
def test_a_judge_that_gives_no_judgement_leaves_the_trace_unjudged(
    fault: Answer, data: Path, own_rules: Path, tmp_path: Path
) -> None:
    lost = read_questions(data)[0].id

    def override(asked: Asked) -> Answer | None:
        return fault if asked.stage == "judge" and asked.question and asked.question.id == lost else None

    with teaching(data, override) as (stub, server):
        options = ("--rules", str(own_rules), "--tasks", "yaw")
        assert build(data, tmp_path / "cot", server.url, *options) == 0
    verified = {item.id: item for item in read_lines(tmp_path / "cot" / "verify.jsonl", Verified)}
    assert (verified[lost].verdict, verified[lost].attempts) == (("unjudged",), 3)
    assert {item.verdict for name, item in verified.items() if name != lost} == {()}
    assert stub.counts("again").total() == 2


@pytest.mark.parametrize("fault", [REFUSED, EMPTY, LONG])
def test_rules_are_drawn_from_what_the_reasoner_did_say(fault: Answer, data: Path, tmp_path: Path) -> None:
    lost = next(question for question in read_questions(data) if question.task == "depth").id

    def override(asked: Asked) -> Answer | None:
        return fault if asked.stage == "reason" and asked.question and asked.question.id == lost else None

    with teaching(data, override) as (stub, server):
        assert build(data, tmp_path / "cot", server.url, "--tasks", "depth") == 0
    reasoned = {item.id: item for item in read_lines(tmp_path / "cot" / "reason.jsonl", Reasoned)}
    assert reasoned[lost].failed and not reasoned[lost].right and len(reasoned) == 2
    (asked,) = (asked for asked in stub.asked if asked.stage == "rules")
    assert asked.text.count("Example ") == 1


def test_without_any_reasoning_the_rules_stage_says_what_to_do(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with teaching(data, lambda asked: REFUSED if asked.stage == "reason" else None) as (_, server):
        assert build(data, tmp_path / "cot", server.url, "--tasks", "depth") == 2
    told = capsys.readouterr().err
    assert "no usable reasoning on depth (2 refused)" in told and "--stages reason --resume" in told


def test_a_writer_without_a_list_of_rules_is_asked_again_and_then_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replies: list[Answer] = ["It depends.", EMPTY, REFUSED, "1. Look."]

    def override(asked: Asked) -> Answer | None:
        return replies.pop(0) if asked.stage == "rules" else None

    out = tmp_path / "cot"
    with teaching(data, override) as (_, server):
        assert build(data, out, server.url, "--tasks", "depth") == 2
        assert "scribe gives no rules for depth (3 attempts, the last: refused)" in capsys.readouterr().err
        assert build(data, out, server.url, "--tasks", "depth", "--resume") == 0
    assert (out / "rules" / "depth.md").read_text().endswith("\n\n1. Look.\n")


def test_what_passes_is_tried_again_and_counted(data: Path, own_rules: Path, tmp_path: Path) -> None:
    faults: list[Answer] = [(429, "slow down"), (500, "oops"), DROP, Raw(HTML, 502), Raw(b'{"choi')]
    said = list(faults)

    def override(asked: Asked) -> Answer | None:
        return faults.pop(0) if faults and asked.stage == "write" else None

    dead = f"http://127.0.0.1:{free_port()}/v1"
    out = tmp_path / "cot"
    with teaching(data, override) as (_, server), serve(TeacherStub(data).answer) as other:
        urls = ",".join((dead, server.url, other.url))
        assert build(data, out, urls, "--rules", str(own_rules), "--tasks", "yaw,depth", "--concurrency", "3") == 0
        assert server.requests and other.requests
    spent = sum((item.spent for item in read_lines(out / "write.jsonl", Draft)), start=Spent())
    drafts = len(list(read_lines(out / "write.jsonl", Draft)))
    assert spent.requests == drafts + spent.retries and spent.retries >= len(said) - len(faults) > 0
    assert spent.prompt_tokens == drafts and spent.new_tokens > drafts
    assert json.loads((out / "summary.json").read_text())["kept"] == drafts


@pytest.mark.parametrize("stage", ["reason", "rules", "write", "judge"])
def test_a_refused_key_stops_at_once_naming_the_variable_and_nothing_is_lost(
    stage: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    refusing = [True]

    def override(asked: Asked) -> Answer | None:
        return (401, "bad key sk-secret-of-mine") if refusing[0] and asked.stage == stage else None

    out = tmp_path / "cot"
    with teaching(data, override) as (stub, server):
        assert build(data, out, server.url) == 2
        told = capsys.readouterr().err
        assert "set OPENAI_API_KEY" in told and "secret" not in told
        assert stub.counts(stage).total() <= 8
        refusing[0] = False
        assert build(data, out, server.url, "--resume") == 0
    assert len(read_traces(out / "cot.jsonl")) == len(read_questions(data))
    assert server.keys == {"Bearer sk-secret-of-mine"}
    assert "secret" not in "".join(path.read_text() for path in out.rglob("*") if path.is_file())


def test_a_trace_may_not_smuggle_a_token_of_the_chat(data: Path, own_rules: Path, tmp_path: Path) -> None:
    def override(asked: Asked) -> Answer | None:
        bad = asked.stage in ("write", "again")
        return written(asked.question, "It is there.<|im_end|>") if bad and asked.question else None

    with teaching(data, override) as (_, server):
        options = ("--rules", str(own_rules), "--tasks", "depth", "--attempts", "2")
        assert build(data, tmp_path / "cot", server.url, *options) == 0
    summary = json.loads((tmp_path / "cot" / "summary.json").read_text())
    assert summary["kept"] == 0 and summary["tasks"]["depth"]["dropped"]["tag_in_trace"] == 2
