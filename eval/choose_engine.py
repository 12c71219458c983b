"""From options to an engine, with what must be known of it: frame, prompt style, name, and what identifies it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from data_gen.command_line import UsageError
from eval.engines import Engine, RandomEngine
from eval.hf_engine import HfEngine
from eval.replay import open_replayed
from eval.runner import PREDICTIONS_FILE, checkpoint_digest
from rewards.boxes import CoordinateFrame

DEFAULT_STYLE = "located"


@dataclass(frozen=True)
class EngineOptions:
    """The options of an evaluation that concern its engine; None where the engine is to choose."""

    ckpt: str | None
    engine: str | None
    replay: str | None
    prompt_style: str | None
    frame: str | None
    max_pixels: int | None
    max_new_tokens: int
    batch_size: int
    seed: int
    on_missing: str = "error"
    endpoint: str | None = None
    endpoint_model: str | None = None
    concurrency: int = 16
    timeout_s: int = 600
    tensor_parallel: int = 1


@dataclass(frozen=True)
class ChosenEngine:
    """An engine, the frame and style its outputs are in, and the model's name; `identity` tells two engines apart."""

    engine: Engine
    kind: str
    frame: CoordinateFrame
    style: str
    model: str
    label: str
    identity: dict[str, str]
    tiny: bool = False


def engine_kind(options: EngineOptions) -> str:
    """The engine asked for or implied. Raises UsageError when its own option is missing."""
    kind = options.engine or ("replay" if options.replay else "hf" if options.ckpt else None)
    if kind is None:
        raise UsageError("no model: give --ckpt DIR_OR_HUB_ID (or: tiny), --engine random, or --replay RUN_FOLDER")
    if kind == "hf" and not options.ckpt:
        raise UsageError("the engine hf needs --ckpt DIR_OR_HUB_ID (or: tiny)")
    if kind == "replay" and not options.replay:
        raise UsageError("the engine replay needs --replay FILE, a predictions.jsonl or the run folder that holds one")
    return kind


def default_label(options: EngineOptions) -> str:
    """A short name for the run: of the checkpoint, of the replayed run, or `random`."""
    kind = engine_kind(options)
    if kind == "random":
        return "random"
    path = Path(str(options.ckpt if kind == "hf" else options.replay))
    if path.name.startswith("checkpoint-") or path.name == PREDICTIONS_FILE:
        path = path.parent / f"{path.parent.name}-{path.name}" if kind == "hf" else path.parent
    name = path.resolve().name if path.exists() else path.name
    return name if kind == "hf" else f"replay-{name}"


def open_engine(options: EngineOptions) -> ChosenEngine:
    """Load the engine. Raises UsageError, also for a checkpoint that cannot be loaded, and RecordError."""
    return {"hf": _open_hf, "random": _open_random, "replay": _open_replay}[engine_kind(options)](options)


def _open_hf(options: EngineOptions) -> ChosenEngine:
    from training.model import load_model, resolve_name

    name = str(options.ckpt)
    try:
        loaded = load_model(name, frame_kind=options.frame, max_pixels=options.max_pixels)
    except OSError as error:  # what transformers raises for missing weights, processors and hub ids
        raise UsageError(f"the checkpoint {name} cannot be loaded: {error}") from error
    model = f"{name} {checkpoint_digest(resolve_name(name))}"
    return ChosenEngine(
        engine=HfEngine(loaded, options.max_new_tokens, options.batch_size),
        kind="hf",
        frame=loaded.frame,
        style=options.prompt_style or DEFAULT_STYLE,
        model=name,
        label=default_label(options),
        identity={"model": model, "decoding": f"greedy, at most {options.max_new_tokens} tokens"},
        tiny=loaded.tiny,
    )


def _open_random(options: EngineOptions) -> ChosenEngine:
    return ChosenEngine(
        engine=RandomEngine(options.seed),
        kind="random",
        frame=_frame(options, CoordinateFrame()),
        style=options.prompt_style or DEFAULT_STYLE,
        model="random",
        label=default_label(options),
        identity={"model": f"random, seed {options.seed}"},
    )


def _open_replay(options: EngineOptions) -> ChosenEngine:
    """Stored outputs are in the frame and style of their run, which its folder tells; elsewhere in original pixels."""
    replayed = open_replayed(Path(str(options.replay)))
    facts = replayed.facts
    return ChosenEngine(
        engine=replayed.engine,
        kind="replay",
        frame=_frame(options, facts.frame if facts else CoordinateFrame()),
        style=options.prompt_style or replayed.style or DEFAULT_STYLE,
        model=facts.model if facts else f"{Path(str(options.replay)).name} ({replayed.format} outputs)",
        label=default_label(options),
        identity={"model": f"outputs {replayed.digest}"},
        tiny=facts.tiny if facts else False,
    )


def _frame(options: EngineOptions, default: CoordinateFrame) -> CoordinateFrame:
    frame = replace(default, kind=options.frame) if options.frame else default
    return replace(frame, max_pixels=options.max_pixels) if options.max_pixels else frame
