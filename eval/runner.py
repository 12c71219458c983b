"""A run folder that can be left and taken up again: replies are written as they come and never asked for twice.

config.yaml         the resolved options
run.json            what the run is about: model, frame, prompt style, data; and what makes it that run
predictions.jsonl   one line per question (and sample); in the order of the replies, and of the data at the end
summary.json        the scores
report.html         the scores with pictures
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from data_gen.command_line import UsageError
from data_gen.files import write_json, write_whole
from eval.decoding import Decoding, sample_id
from eval.engines import Engine, Reply, Request
from rewards.boxes import CoordinateFrame

Kind = TypeVar("Kind")
RUN_FILE = "run.json"
PREDICTIONS_FILE = "predictions.jsonl"
SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.html"
CONFIG_FILE = "config.yaml"
_SAMPLED_BYTES = 1 << 20


@dataclass(frozen=True)
class RunFacts:
    """What a run folder is about. `identity` holds what two runs must share for their predictions to be one run's.

    prompts: whose wording was asked: `own`, `templates SHA`, or of replayed outputs `official (...)`, `unknown (...)`.
    decoding: None of guesses, and of outputs of which nothing tells it.
    """

    benchmark: str
    label: str
    engine: str
    model: str
    tiny: bool
    frame: CoordinateFrame
    prompt_style: str
    data: str
    image_root: str
    identity: dict[str, str] = field(default_factory=dict)
    prompts: str = "own"
    decoding: Decoding | None = None

    @property
    def fingerprint(self) -> str:
        """One short name for `identity`."""
        return digest(json.dumps(self.identity, sort_keys=True))

    @property
    def in_summary(self) -> dict[str, Any]:
        """What the summary of a run repeats of it, whatever the benchmark."""
        return {
            "benchmark": self.benchmark,
            "label": self.label,
            "engine": self.engine,
            "model": self.model,
            "tiny": self.tiny,
            "prompt_style": self.prompt_style,
            "asked": self.identity.get("questions", ""),
            "fingerprint": self.fingerprint,
        }


def told_apart(labels: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The labels, with the name of the run folder behind those that occur more than once."""
    return [
        f"{label} ({folder.resolve().name})" if labels.count(label) > 1 else label
        for label, folder in zip(labels, folders, strict=True)
    ]


def digest(text: str) -> str:
    """The first 16 hexadecimal digits of a text's sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def asked_words(questions: Sequence[Any]) -> str:
    """How many questions (records) and a digest of all that is in them: what two runs were asked, in short."""
    return f"{len(questions)} questions {hashlib.sha256(msgspec.json.encode(questions)).hexdigest()[:16]}"


def file_digest(path: Path) -> str:
    """The first 16 hexadecimal digits of a file's sha256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def checkpoint_digest(name: str) -> str:
    """What a checkpoint is: of a folder its files (of large ones size, head and tail), of a hub id the name."""
    folder = Path(name)
    if not folder.is_dir():
        return name
    files = sorted(path for path in folder.iterdir() if path.suffix in {".json", ".safetensors", ".bin", ".jinja"})
    known = hashlib.sha256()
    for path in files:
        known.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            known.update(file.read(_SAMPLED_BYTES))
            file.seek(max(0, path.stat().st_size - _SAMPLED_BYTES))
            known.update(file.read())
    return known.hexdigest()[:16]


def claim_folder(out: Path, facts: RunFacts) -> None:
    """Write the facts of a run, or check that the folder belongs to the same run.

    Raises UsageError naming what differs.
    """
    path = out / RUN_FILE
    if path.exists():
        before = read_facts(out).identity
        changed = [
            f"{name}: {before.get(name)} there, {facts.identity.get(name)} now"
            for name in sorted(before.keys() | facts.identity.keys())
            if before.get(name) != facts.identity.get(name)
        ]
        if changed:
            listed = "\n  ".join(changed)
            raise UsageError(f"{out} holds another run, and runs are not mixed. What differs:\n  {listed}\n"
                             "Give another --out, or --overwrite to replace it.")  # fmt: skip
    elif (out / PREDICTIONS_FILE).exists():
        raise UsageError(f"{out} holds predictions but no {RUN_FILE}; give another --out")
    write_json(path, {**asdict(facts), "fingerprint": facts.fingerprint})


def read_facts(folder: Path) -> RunFacts:
    """The facts of a run folder. Raises UsageError when it is none."""
    path = folder / RUN_FILE
    if not path.is_file():
        raise UsageError(f"{folder} is no run folder: it has no {RUN_FILE}; make one with: python eval/surds.py")
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunFacts)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no record of a run ({error}); score again with --overwrite") from error


def write_summary(summary: Any, folder: Path) -> None:
    """Write the scores of a run, a dataclass, as `summary.json`, for people too."""
    text = msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()
    write_whole(folder / SUMMARY_FILE, text + "\n")


def read_summary(folder: Path, kind: type[Kind]) -> Kind:
    """The scores of a finished run. Raises UsageError when there are none, or those of another benchmark or version."""
    path = folder / SUMMARY_FILE
    if not path.is_file():
        raise UsageError(f"{folder} has no {SUMMARY_FILE}: the run is not finished, or none; continue it with --resume")
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path} is no summary of a run on this benchmark by this version ({error}); evaluate again with --resume"
        ) from error


def stored_replies(path: Path) -> dict[str, Reply]:
    """The replies already in a predictions file by request; a last line that a kill cut short is removed from the file.

    Raises UsageError for a broken line anywhere else.
    """
    if not path.exists():
        return {}
    whole = path.read_bytes()
    complete = whole[: whole.rfind(b"\n") + 1]
    if complete != whole:
        path.write_bytes(complete)
    replies = {}
    for number, line in enumerate(complete.split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
            name = sample_id(row["id"], row.get("sample", 0))
            replies[name] = Reply(name, row["output"], row["tokens"])
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{path}, line {number}: no prediction ({error})"
            raise UsageError(f"{reason}; repair it or give --overwrite") from error
    return replies


def collect(
    path: Path, engine: Engine, requests: Sequence[Request], to_row: Callable[[Reply], dict[str, Any]]
) -> list[Reply]:
    """All replies in the order of the requests: those in the file, and new ones, each appended as it comes.

    to_row: a reply as its line of the file. Raises RuntimeError when the engine leaves a request unanswered.
    """
    from tqdm import tqdm

    # Empty replies stand for images that were missing, or outputs: they may be there by now.
    replies = {name: reply for name, reply in stored_replies(path).items() if reply.output or reply.tokens}
    progress = tqdm(total=len(requests), initial=len(replies), unit="question", mininterval=1)
    with path.open("a", encoding="utf-8") as file, progress:
        for reply in engine.replies(requests, frozenset(replies)):
            file.write(json.dumps(to_row(reply), ensure_ascii=False) + "\n")
            file.flush()
            replies[reply.id] = reply
            progress.update()
    unanswered = [request.id for request in requests if request.id not in replies]
    if unanswered:
        raise RuntimeError(f"the engine left {len(unanswered)} requests unanswered, the first is {unanswered[0]}")
    return [replies[request.id] for request in requests]
