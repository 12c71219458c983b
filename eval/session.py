"""What the evaluations of all benchmarks share: their options, the run folder, the engine, and what a run is about."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from data_gen.command_line import UsageError
from data_gen.folders import OutputFolder
from data_gen.images import MANIFEST, image_root
from eval.arguments import save_config
from eval.benchmarks import check_benchmark, question_file
from eval.choose_engine import ChosenEngine, EngineOptions, default_label, engine_kind, open_engine
from eval.engines import Request
from eval.replay import ReplayEngine
from eval.runner import CONFIG_FILE, RunFacts, asked_words, claim_folder, digest

# Options that count something; None is no choice.
AT_LEAST_ONE = (
    "max_pixels", "max_new_tokens", "batch_size", "limit", "concurrency", "timeout_s", "tensor_parallel",
    "data_parallel", "samples",
)  # fmt: skip


def option(default: Any, help: str) -> Any:
    """A field of a configuration with the text of its help."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class EvalConfig:
    """Options of an evaluation, whatever the benchmark. run_prefix: how its run folders are called unless told."""

    run_prefix: ClassVar[str] = "eval"

    data: str | None = option(None, "The questions.jsonl to ask, or its folder.")
    ckpt: str | None = option(None, "The model: a checkpoint folder, a hub id, or `tiny`.")
    images: str | None = option(None, "Folder of the images; by default the one that manifest.json names.")
    on_missing: Literal["error", "skip"] = option(
        "error", "An image that is not there or cannot be read ends the run, or its questions count as unanswered."
    )
    engine: Literal["hf", "vllm", "openai", "random", "replay"] | None = option(
        None, "Who answers; by default hf with --ckpt, openai with --endpoint, replay with --replay."
    )
    endpoint: str | None = option(None, "URL[,URL]: OpenAI-compatible servers of one model, used in turn (openai).")
    endpoint_model: str | None = option(None, "The servers' name of the model (openai).")
    concurrency: int = option(16, "Questions in flight at a time (openai).")
    timeout_s: int = option(120, "Seconds to wait for a reply before asking again (openai).")
    tensor_parallel: int = option(1, "GPUs that share one copy of the model (vllm).")
    data_parallel: int = option(1, "Copies of the model, each on GPUs of its own (vllm).")
    replay: str | None = option(None, "Stored outputs to score: a run folder, or those of another harness.")
    prompt_style: Literal["located", "reasoning", "direct"] | None = option(
        None, "Boxes, reasoning and answer (located, the default), reasoning and answer, or the answer only."
    )
    frame: Literal["original", "resized", "thousand"] | None = option(
        None, "Coordinates the model writes; by default those of its frame.json or its family."
    )
    max_pixels: int | None = option(None, "Pixel budget of a resized image; by default that of the checkpoint.")
    max_new_tokens: int = option(512, "Tokens after which an answer is cut.")
    batch_size: int = option(8, "Questions generated at a time.")
    limit: int | None = option(None, "Ask the first so many units of every task only (a mirrored pair is one unit).")
    label: str | None = option(None, "Name of the run in tables; by default that of the checkpoint.")
    temperature: float = option(0.0, "Draw tokens at this temperature, from all of them; 0 is greedy.")
    samples: int = option(1, "Answers drawn for every question; scores are their mean.")
    seed: int = option(0, "Seed of the draws, of the random engine and of the intervals.")
    out: str | None = option(
        None, "Run folder; by default runs/eval-LABEL (DriveMLLM, CyclingVQA: their name for eval)."
    )
    resume: bool = option(False, "Continue the run in the folder, or score it again.")
    overwrite: bool = option(False, "Replace the run in the folder.")

    def __post_init__(self) -> None:
        for name in AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        if self.seed < 0:
            raise UsageError(f"--seed must be at least 0, got {self.seed}")
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"--temperature must be 0 (greedy) or more, got {self.temperature}")
        if self.samples > 1 and not self.temperature:
            raise UsageError(
                f"--samples {self.samples} at temperature 0 would be the same answer every time; give --temperature 1.0"
            )

    @property
    def engine_options(self) -> EngineOptions:
        """The part that concerns the engine."""
        return EngineOptions(**{item.name: getattr(self, item.name) for item in fields(EngineOptions)})


@dataclass(frozen=True)
class Session:
    """A run in progress: its folder, ready to be written to, its name in tables, its question file and its engine."""

    folder: OutputFolder
    label: str
    data: Path
    chosen: ChosenEngine

    @property
    def out(self) -> Path:
        """The run folder."""
        return self.folder.path


def data_path(given: str | None, build_command: str, benchmark: str) -> Path:
    """The question file.

    Raises UsageError, with the remedy, when there is none or it is of another benchmark; RecordError.
    """
    if given is None:
        raise UsageError(f"no questions: give --data questions.jsonl; build one with: {build_command}")
    path = question_file(Path(given))
    if not path.is_file():
        raise UsageError(f"--data: no question file at {path}; build one with: {build_command}")
    check_benchmark(path, benchmark)
    return path


def check_engine(config: EvalConfig) -> None:
    """Raise UsageError when no engine is asked for, or its own option is missing."""
    engine_kind(config.engine_options)


def greedy_only(config: EvalConfig, benchmark: str) -> None:
    """Raise UsageError for options of sampling."""
    if config.temperature or config.samples > 1:
        raise UsageError(f"--temperature and --samples are for eval/surds.py: {benchmark} is scored on greedy answers")


def looks(config: EvalConfig) -> bool:
    """Whether the engine opens the images."""
    return engine_kind(config.engine_options) not in ("random", "replay")


def checks_images(config: EvalConfig) -> bool:
    """Whether every image must be there before the first question is asked; else the engine skips what is not."""
    return looks(config) and config.on_missing == "error"


def picture_root(data: Path, config: EvalConfig) -> Path:
    """The folder of the images. Where they only illustrate the report, the data's own folder will do."""
    if looks(config) or config.images or (data.parent / MANIFEST).is_file():
        return image_root(data, Path(config.images) if config.images else None)
    return data.parent


def open_session(config: EvalConfig, data: Path) -> Session:
    """The folder, checked and not yet touched, and the engine, loaded.

    Raises UsageError, RecordError, FileExistsError.
    """
    label = config.label or default_label(config.engine_options)
    out = Path(config.out or f"runs/{config.run_prefix}-{label}")
    inputs = tuple(Path(name) for name in (data, config.ckpt, config.replay) if name)
    folder = OutputFolder(out, "evaluation", config.resume, config.overwrite, inputs)
    folder.check()
    return Session(folder, label, data, open_engine(config.engine_options))


def check_replayed(chosen: ChosenEngine, ids: Sequence[str]) -> None:
    """Say how many questions have no stored output. Raises UsageError when none has one."""
    if not isinstance(chosen.engine, ReplayEngine):
        return
    missing = [name for name in ids if name not in chosen.engine.stored]
    if len(missing) == len(ids):
        raise UsageError(f"no stored output has the id of a question, such as {missing[0]!r}: other questions?")
    if missing:
        print(f"{len(missing)} of {len(ids)} questions have no stored output and count as wrong, the first is "
              f"{missing[0]}", file=sys.stderr)  # fmt: skip


def check_same_questions(chosen: ChosenEngine, asked: str) -> None:
    """Raise UsageError when a replayed run answered as many questions, but others; warn when it answered more or fewer.

    Question files of other builds share ids.
    """
    before = chosen.engine.asked if isinstance(chosen.engine, ReplayEngine) else ""
    if not before or before == asked:
        return
    told = f"the replayed run answered {before}, --data gives {asked}"
    if before.split()[0] == asked.split()[0]:
        raise UsageError(f"{told}: other questions under the same ids; give the question file of that run")
    print(f"warning: {told}; where it is not a part of the same file, the scores mean nothing", file=sys.stderr)


def begin(
    session: Session,
    config: EvalConfig,
    benchmark: str,
    root: Path,
    questions: Sequence[Any],
    requests: Sequence[Request],
    prompts_of: str = "own",
) -> RunFacts:
    """Make the folder ready and write into it what the run is about: questions, prompts, engine, options.

    prompts_of: whose wording the prompts are, as in RunFacts. Raises UsageError when the folder holds another run.
    """
    session.folder.prepare()
    chosen = session.chosen
    asked, prompts = asked_words(questions), digest("\n".join(request.prompt for request in requests))
    check_same_questions(chosen, asked)
    facts = RunFacts(
        benchmark=benchmark,
        label=session.label,
        engine=chosen.kind,
        model=chosen.model,
        tiny=chosen.tiny,
        frame=chosen.frame,
        decoding=chosen.decoding,
        prompt_style=chosen.style,
        data=str(session.data.resolve()),
        image_root=str(root.resolve()),
        identity={
            "engine": chosen.kind,
            **chosen.identity,
            "questions": asked,
            "prompts": f"{chosen.style} {prompts}",
            "frame": str(chosen.frame),
        },
        prompts=prompts_of,
    )
    claim_folder(session.out, facts)
    save_config(config, session.out / CONFIG_FILE)
    return facts
