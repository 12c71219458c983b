"""A run of teachers that is killed, gone on with, repeated or changed: nothing is asked twice, nothing is mixed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chat_server import Answer
from small_questions import write_small_set
from teacher_stub import Asked, build, command, teaching, written

from data_gen.append_file import AppendFile, cut_unfinished_line, records_with_offsets
from data_gen.build_cot import main
from data_gen.folders import alone_in
from data_gen.records import RecordError, read_questions, read_traces
from data_gen.teaching.state import read_state

ROOT = Path(__file__).parents[1]
CONCURRENCY = 8  # of teacher_stub.command


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_set(tmp_path_factory.mktemp("small"), images=4)


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed; not to be written to."""
    out = tmp_path_factory.mktemp("finished") / "cot"
    with teaching(data, sometimes_faulty) as (_, server):
        assert build(data, out, server.url) == 0
    return out


def sometimes_faulty(asked: Asked) -> Answer | None:
    """First drafts of yaw are to be written anew."""
    faulty = asked.stage == "write" and asked.question and asked.question.task == "yaw"
    return written(asked.question, "The answer was given.") if faulty and asked.question else None


@dataclass
class Hold:
    """Answers the first requests of a stage, and holds back all after them until released."""

    stage: str
    answered: int
    released: threading.Event = field(default_factory=threading.Event)
    held: list[str] = field(default_factory=list)
    _seen: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, asked: Asked) -> Answer | None:
        with self._lock:
            self._seen += asked.stage == self.stage
            holds = self._seen > self.answered and not self.released.is_set()
            if holds:
                self.held.append(asked.key)
        if holds:
            self.released.wait(60)
        return sometimes_faulty(asked)


@pytest.mark.parametrize(("stage", "answered"), [("reason", 5), ("rules", 2), ("write", 7), ("judge", 9), ("again", 3)])
def test_a_killed_run_goes_on_and_asks_nothing_twice_but_what_was_in_flight(
    stage: str, answered: int, data: Path, finished: Path, tmp_path: Path
) -> None:
    out, hold = tmp_path / "cot", Hold(stage, answered)
    with teaching(data, hold) as (stub, server):
        words = [sys.executable, str(ROOT / "data_gen" / "build_cot.py"), *command(data, out, server.url)]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as run:
            _wait_until(lambda: bool(hold.held) or run.poll() is not None)
            time.sleep(0.1)  # what was answered is written meanwhile
            run.kill()
        assert hold.held and not (out / "cot.jsonl").exists()
        hold.released.set()
        assert build(data, out, server.url, "--resume") == 0
        counts = stub.counts()
    twice = {key for key, count in counts.items() if count > 1}
    assert set(hold.held) <= twice and max(counts.values()) == 2
    assert len(twice) <= CONCURRENCY
    if stage == "again":  # what came before it on the same draft is not asked once more
        names = {key.split()[1] for key in hold.held if key.startswith("again")}
        assert {count for key, count in stub.counts("judge").items() if key.split()[1] in names} == {1}
    assert (out / "cot.jsonl").read_bytes() == (finished / "cot.jsonl").read_bytes()
    assert len((out / "verify.jsonl").read_text().splitlines()) == len(read_questions(data))


def _wait_until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not true() and time.monotonic() < end_s:
        time.sleep(0.02)


def test_the_time_of_a_stage_is_noted_while_it_runs_and_added_to(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = tmp_path / "cot", list[float]()
    monkeypatch.setattr("data_gen.teaching.pipeline.NOTED_EVERY_S", 0.02)

    def override(asked: Asked) -> Answer | None:
        if asked.stage != "reason" or seen:
            return None
        _wait_until(lambda: read_state(out).stages["reason"].wall_s >= 0.2)
        seen.append(read_state(out).stages["reason"].wall_s)
        return (401, "no longer yours")

    with teaching(data, override) as (_, server):
        options = ("--tasks", "depth", "--stages", "reason", "--concurrency", "1")
        assert build(data, out, server.url, *options) == 2
        assert build(data, out, server.url, *options, "--resume") == 0
    held = read_state(out).stages["reason"]
    assert held.finished and held.wall_s >= seen[0] >= 0.2


def test_a_finished_run_says_so_and_asks_nobody(data: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    nobody = "http://127.0.0.1:9/v1"
    assert build(data, finished, nobody, "--resume") == 0
    assert "holds a finished run; nothing to do" in capsys.readouterr().out
    assert build(data, finished, nobody) == 2
    assert "--resume" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--reasoner-model", "other"), "reasoner_model 'thinker' -> 'other'"),
        (("--writer-model", "other"), "writer_model 'scribe' -> 'other'"),
        (("--seed", "1"), "seed 0 -> 1"),
        (("--k", "1"), "k 2 -> 1"),
        (("--tasks", "yaw"), "tasks ["),
        (("--limit", "9"), "limit None -> 9"),
        (("--temperature", "1"), "temperature 0.7 -> 1.0"),
        (("--blind",), "blind False -> True"),
        (("--attempts", "9"), "attempts 3 -> 9"),
        (("--max-tokens", "99"), "words 235 -> 20"),
        (("--max-words", "300"), "max_words None -> 300"),
        (("--tokenizer", "x"), "tokenizer None -> 'x'"),
        (("--teacher", "oracle"), "needs no --reasoner"),
    ],
)
def test_other_settings_are_refused_with_what_differs(
    options: tuple[str, ...], told: str, data: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(data, finished, "http://127.0.0.1:9/v1", "--resume", *options) == 2
    assert told in capsys.readouterr().err


def test_other_data_and_other_prompts_are_refused(
    data: Path, finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "questions.jsonl"
    other.write_text("".join(data.read_text().splitlines(keepends=True)[2:]))
    images = ("--images", str(data.parent))
    assert build(other, finished, "http://127.0.0.1:9/v1", "--resume", *images) == 2
    assert "data_sha256" in capsys.readouterr().err
    monkeypatch.setattr("data_gen.teaching.settings.prompts_digest", lambda: "other")
    assert build(data, finished, "http://127.0.0.1:9/v1", "--resume") == 2
    assert "-> 'other'" in capsys.readouterr().err


def test_drafts_by_other_rules_are_refused_until_the_stage_is_made_anew(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, options = tmp_path / "cot", ("--tasks", "yaw,depth")
    with teaching(data) as (stub, server):
        assert build(data, out, server.url, "--stages", "reason,rules,write", *options) == 0
        (out / "rules" / "yaw.md").write_text("1. Count the wheels.\n")
        assert build(data, out, server.url, "--resume", *options) == 2
        told = capsys.readouterr().err
        assert "other rules than" in told and "--stages write" in told and not stub.counts("judge")
        old = (out / "write.jsonl").read_bytes()
        assert build(data, out, server.url, "--resume", "--stages", "write", *options) == 0
        assert (out / "earlier" / "1" / "write.jsonl").read_bytes() == old
        assert (out / "rules" / "yaw.md").read_text() == "1. Count the wheels.\n"
        assert build(data, out, server.url, "--resume", *options) == 0
        (out / "rules" / "yaw.md").write_text("1. Count the doors.\n")  # of a finished run
        assert build(data, out, server.url, "--resume", *options) == 2
        assert "other rules than" in capsys.readouterr().err
    assert max(stub.counts("write").values()) == 2 and max(stub.counts("reason").values()) == 1
    assert len(read_traces(out / "cot.jsonl")) == stub.counts("judge").total()


def test_a_named_stage_that_is_finished_is_made_anew_with_all_later_ones(data: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "cot", ("--tasks", "depth")
    with teaching(data) as (stub, server):
        assert build(data, out, server.url, *options) == 0
        first = (out / "cot.jsonl").read_bytes()
        assert build(data, out, server.url, *options, "--resume", "--stages", "verify", "--attempts", "1") == 0
        assert (out / "cot.jsonl").read_bytes() == first  # other settings are free then
        assert build(data, out, server.url, *options, "--resume", "--stages", "rules") == 0
        assert not (out / "write.jsonl").exists() and not (out / "summary.json").exists()
        assert {path.name for path in (out / "earlier" / "2").iterdir()} == {
            "rules", "rules.jsonl", "write.jsonl", "verify.jsonl", "cot.jsonl", "summary.json"
        }  # fmt: skip
        assert build(data, out, server.url, *options, "--resume") == 0
    assert (out / "cot.jsonl").read_bytes() == first
    assert [set(stub.counts(name).values()) for name in ("reason", "rules", "write", "judge")] == [{1}, {2}, {2}, {3}]


def test_two_runs_do_not_share_a_folder(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, options = tmp_path / "cot", ("--tasks", "depth", "--stages", "reason")
    with teaching(data) as (stub, server):
        assert build(data, out, server.url, *options) == 0
        asked = len(stub.asked)
        with alone_in(out):
            assert build(data, out, server.url, "--tasks", "depth", "--resume") == 2
        assert "another process writes to" in capsys.readouterr().err and len(stub.asked) == asked
        assert build(data, out, server.url, "--tasks", "depth", "--resume") == 0


def test_overwriting_starts_anew(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "cot"
    with teaching(data) as (stub, server):
        for _ in range(2):
            assert build(data, out, server.url, "--tasks", "depth", "--overwrite") == 0
    assert set(stub.counts("reason").values()) == {2}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--stages", "write"), "which the stage write needs; run the stages reason and rules first"),
        (("--stages", "verify"), "the stage verify needs the stage write"),
        (("--stages", "rules"), "the stage rules needs the stage reason"),
        (("--stages", "wash"), "known: reason, rules, write, verify"),
        (("--samples", "2"), "--samples above 1 is for --blind"),
        (("--samples", "2", "--blind", "--temperature", "0"), "needs a --temperature above 0"),
        (("--rules", "."), "lacks yaw.md"),
        (("--rules", ".", "--stages", "rules,write"), "leave rules out of --stages"),
        (("--writer-model", ""), "--writer needs --writer-model"),
        (("--writer", ""), "the stage rules needs --writer URL"),
        (("--reasoner", ""), "the stage reason needs --reasoner URL"),
        (("--writer", "localhost"), "an endpoint is a URL"),
        (("--images", "nowhere"), "is missing under nowhere"),
        (("--tokenizer", "nowhere"), "no tokenizer at 'nowhere'"),
    ],
)
def test_what_cannot_be_done_is_said_before_anybody_is_asked(
    options: tuple[str, ...], told: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(data, tmp_path / "cot", "http://127.0.0.1:9/v1", *options) == 2
    assert told in capsys.readouterr().err


def test_runs_of_the_oracle_and_of_servers_do_not_mix(
    data: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(data), "--resume"]
    assert main([*words, "--out", str(finished), "--teacher", "oracle"]) == 2
    assert "holds a run of teachers behind servers" in capsys.readouterr().err
    assert main(["--data", str(data), "--out", str(tmp_path / "cot")]) == 0
    assert build(data, tmp_path / "cot", "http://127.0.0.1:9/v1", "--resume") == 2
    assert "holds traces by the oracle" in capsys.readouterr().err


# --- the file that is appended to ---


@dataclass(frozen=True)
class Line:
    text: str


@pytest.mark.parametrize(
    ("there", "kept"),
    [
        ("", []),
        ('{"text": "a"}\n', ["a"]),
        ('{"text": "a"}\n{"te', ["a"]),
        ('{"te', []),
        ('{"text": "a"}\n' + "x" * 200_000, ["a"]),
        ("x" * 200_000, []),
    ],
)
def test_a_line_that_was_cut_is_removed_before_others_follow(there: str, kept: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(there)
    with AppendFile(path) as file:
        file.append([Line("é"), Line("b\nc")])
    found = list(records_with_offsets(path, Line))
    assert [line.text for _, line in found] == [*kept, "é", "b\nc"]
    with path.open("rb") as opened:
        for offset, line in found:
            opened.seek(offset)
            assert json.loads(opened.readline())["text"] == line.text


def test_a_broken_line_in_the_middle_is_no_matter_of_cutting(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    cut_unfinished_line(path)
    assert list(records_with_offsets(path, Line)) == []
    path.write_text('{"text": "a"}\n{"te\n{"text": "b"}\n')
    with pytest.raises(RecordError, match="line 2"):
        list(records_with_offsets(path, Line))
