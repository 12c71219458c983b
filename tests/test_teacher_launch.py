"""launch/teacher.sh, with a `vllm` on PATH that only lists its model: commands, waiting, deaths, and a clean end."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from chat_clients import free_port

SCRIPT = Path(__file__).resolve().parents[1] / "launch" / "teacher.sh"
STAND_IN = '''#!{python}
"""Serves /v1/models as `vllm serve MODEL --port P` does, after a while, with a worker process of its own."""
import http.server, json, os, subprocess, sys, time

port = int(sys.argv[sys.argv.index("--port") + 1])
print("GPUs", os.environ["CUDA_VISIBLE_DEVICES"], "key", os.environ.get("VLLM_API_KEY"), *sys.argv[1:], flush=True)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("worker", worker.pid, flush=True)
if str(port) == os.environ.get("DIES"):
    sys.exit("CUDA out of memory")
time.sleep(float(os.environ.get("LOADING_S", "0")))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(3)
        asked = os.environ.get("VLLM_API_KEY")
        known = not asked or self.headers["Authorization"] == f"Bearer {{asked}}"
        self.send_response(200 if self.path == "/v1/models" and known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({{"data": [{{"id": sys.argv[2]}}]}}).encode())

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
'''


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "vllm").write_text(STAND_IN.format(python=sys.executable))
    (folder / "vllm").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "VLLM_API_KEY")}
    return {**inherited, "PATH": f"{folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "4,5,6,7"}


def command(*words: str) -> list[str]:
    return ["bash", str(SCRIPT), *words]


@contextmanager
def started(words: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    told = ""
    while wanted not in told:
        line = process.stdout.readline() if process.stdout else ""
        assert line, f"{wanted!r} never came: {told}"
        told += line
    return told


def two_ports() -> int:
    """A free port with a free one behind it, below those that systems give to whoever asks for any."""
    for port in random.sample(range(20_000, 30_000, 2), 100):
        first, second = ("127.0.0.1", port), ("127.0.0.1", port + 1)
        with suppress(OSError), socket.create_server(first), socket.create_server(second):
            return port
    raise RuntimeError("no two free ports in a row")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def workers(logs: Path) -> list[int]:
    lines = [line for path in logs.glob("*.log") for line in path.read_text().splitlines()]
    return [int(line.split()[1]) for line in lines if line.startswith("worker")]


def assert_all_gone(logs: Path, count: int) -> None:
    pids = workers(logs)
    assert len(pids) == count
    end = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_a_dry_run_shows_replicas_on_gpus_of_their_own(environment: dict[str, str]) -> None:
    told = subprocess.run(
        command("both", "--gpus", "0,1,2,3,4,5,6,7", "--replicas", "2", "--tensor-parallel", "2", "--port", "9000",
                "--max-pixels", "1003520", "--dry-run", "--", "--quantization", "fp8"),
        env=environment, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    shares = [line.split()[0].partition("=")[2] for line in told[:4]]
    assert shares == ["0,1", "2,3", "4,5", "6,7"]
    assert all("'--tensor-parallel-size' '2'" in line and "'--quantization' 'fp8'" in line for line in told[:4])
    assert all("""'--mm-processor-kwargs' '{"max_pixels": 1003520}'""" in line for line in told[:4])
    models = [line.split()[3].strip("'") for line in told[:4]]
    assert models == ["Qwen/QVQ-72B-Preview"] * 2 + ["Qwen/Qwen2.5-VL-72B-Instruct"] * 2
    assert told[4].split(": ", 1)[1] == (
        "--reasoner http://127.0.0.1:9000/v1,http://127.0.0.1:9001/v1 --reasoner-model Qwen/QVQ-72B-Preview "
        "--writer http://127.0.0.1:9002/v1,http://127.0.0.1:9003/v1 --writer-model Qwen/Qwen2.5-VL-72B-Instruct"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "reasoner, writer or both?"),
        (("teacher",), "unknown word 'teacher'"),
        (("writer", "--gpu", "1"), "unknown option --gpu"),
        (("writer", "--port"), "--port needs a value"),
        (("writer", "--replicas", "none"), "'none' is given where a whole number"),
        (("writer",), "8 GPUs are needed, for 1 model(s) with 2 replica(s) on 4 each; there are 4 (4,5,6,7)"),
    ],
)
def test_what_cannot_be_started_ends_with_2_and_the_reason(
    words: tuple[str, ...], message: str, environment: dict[str, str]
) -> None:
    run = subprocess.run(command(*words), env=environment, capture_output=True, text=True)
    assert run.returncode == 2
    assert message in run.stderr


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_waits_for_slow_servers_and_leaves_no_process(
    end: signal.Signals, environment: dict[str, str], tmp_path: Path
) -> None:
    port, logs = two_ports(), tmp_path / "logs"
    words = command("writer", "--tensor-parallel", "2", "--port", str(port), "--logs", str(logs), "--writer-model", "m")
    secret = {"OPENAI_API_KEY": "sk-secret", "LOADING_S": "1.5"}
    with started(words, environment | secret) as process:
        told = read_until(process, "Ctrl-C stops")
        assert f"--writer http://127.0.0.1:{port}/v1,http://127.0.0.1:{port + 1}/v1 --writer-model m\n" in told
        assert "sk-secret" not in told
        first, second = ((logs / f"writer-{place}.log").read_text() for place in (0, 1))
        assert first.startswith("GPUs 4,5 key sk-secret serve m") and second.startswith("GPUs 6,7 key")
        assert all(map(alive, workers(logs)))
        os.killpg(process.pid, end)  # what the terminal does: all of the foreground
        assert "all servers are stopped" in read_until(process, "stopped")
        assert process.wait(20) == 128 + end
    assert_all_gone(logs, 2)


def test_a_server_that_dies_while_it_loads_stops_all_with_its_last_words(
    environment: dict[str, str], tmp_path: Path
) -> None:
    port, logs = two_ports(), tmp_path / "logs"
    words = command("writer", "--tensor-parallel", "2", "--port", str(port), "--logs", str(logs))
    run = subprocess.run(words, env=environment | {"DIES": str(port + 1)}, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "writer-1 has ended before it was ready" in run.stderr and "CUDA out of memory" in run.stderr
    assert "--writer-model" not in run.stdout
    assert_all_gone(logs, 2)


def test_a_server_that_never_answers_is_given_up(environment: dict[str, str], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    words = command("reasoner", "--tensor-parallel", "4", "--replicas", "1", "--wait", "1", "--logs", str(logs))
    words += ["--port", str(free_port())]
    run = subprocess.run(words, env=environment | {"LOADING_S": "60"}, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "reasoner-0 does not answer after 1 s (--wait)" in run.stderr
    assert_all_gone(logs, 1)


def test_the_others_go_on_until_the_last_has_ended(environment: dict[str, str], tmp_path: Path) -> None:
    port, logs = two_ports(), tmp_path / "logs"
    words = command("writer", "--tensor-parallel", "2", "--port", str(port), "--logs", str(logs))
    with started(words, environment) as process:
        read_until(process, "Ctrl-C stops")
        for place in (0, 1):
            with pytest.raises(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port + place}/die", timeout=5)
            assert "the end of" in read_until(process, f"writer-{place} has ended")
        assert process.wait(20) == 1
    assert_all_gone(logs, 2)


def test_a_port_in_use_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = command("reasoner", "--replicas", "1", "--port", str(port), "--logs", str(tmp_path / "logs"))
        run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and f"port {port} is in use" in run.stderr
