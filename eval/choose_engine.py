"""From options to an engine, with what must be known of it: frame, prompt style, name, and what identifies it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from data_gen.command_line import UsageError
from eval.decoding import Decoding
from eval.engines import Engine, RandomEngine, SkippingEngine
from eval.hf_engine import HfEngine
from eval.replay import open_replayed
from eval.runner import PREDICTIONS_FILE, RUN_FILE, checkpoint_digest, read_facts
from rewards.boxes import CoordinateFrame

DEFAULT_STYLE = "located"
# Engines that do not open the images.
BLIND = ("random", "replay")
# The engine that an option stands for when no engine is named.
IMPLIED_BY = {"replay": "replay", "hf": "ckpt", "openai": "endpoint"}
NEEDS = {"hf": ("ckpt",), "vllm": ("ckpt",), "openai": ("endpoint", "endpoint_model"), "replay": ("replay",)}
MEANING = {
    "ckpt": "DIR_OR_HUB_ID (or: tiny, mini)",
    "endpoint": "http://HOST:PORT/v1",
    "endpoint_model": "NAME, as the server calls the model",
    "replay": "FILE_OR_FOLDER, a run folder of ours, or outputs of another harness",
}


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
    timeout_s: int = 120
    tensor_parallel: int = 1
    data_parallel: int = 1
    temperature: float = 0.0
    samples: int = 1

    @property
    def decoding(self) -> Decoding:
        """How a model's answers are decoded."""
        return Decoding(self.temperature, self.samples)


@dataclass(frozen=True)
class ChosenEngine:
    """An engine, the frame and style its outputs are in, and the model's name; `identity` tells two engines apart.

    decoding: None of a guesser, and of stored outputs where nothing tells it.
    """

    engine: Engine
    kind: str
    frame: CoordinateFrame
    style: str
    model: str
    label: str
    identity: dict[str, str]
    tiny: bool = False
    decoding: Decoding | None = None


def engine_kind(options: EngineOptions) -> str:
    """The engine asked for or implied. Raises UsageError when its own option is missing."""
    implied = [kind for kind, name in IMPLIED_BY.items() if getattr(options, name)]
    kind = options.engine or (implied[0] if implied else None)
    if kind is None:
        raise UsageError(
            "no model: give --ckpt DIR_OR_HUB_ID (or: tiny, mini), --endpoint URL with --endpoint-model NAME, "
            "--engine random, or --replay RUN_FOLDER"
        )
    if kind == "random" and options.ckpt:
        raise UsageError("the engine random asks no model: leave out --ckpt")
    for name in NEEDS.get(kind, ()):
        if not getattr(options, name):
            raise UsageError(f"the engine {kind} needs --{name.replace('_', '-')} {MEANING[name]}")
    if kind in BLIND and options.decoding != Decoding():
        raise UsageError(f"--temperature and --samples are for a model; leave them out with the engine {kind}")
    return kind


def default_label(options: EngineOptions) -> str:
    """A short name for the run: of the checkpoint, of the served model, of the replayed run, or `random`."""
    kind = engine_kind(options)
    if kind == "random":
        return "random"
    if kind == "openai":
        return Path(str(options.endpoint_model)).name
    path = Path(str(options.replay if kind == "replay" else options.ckpt))
    if path.name.startswith("checkpoint-") or path.name == PREDICTIONS_FILE:
        path = path.parent if kind == "replay" else path.parent / f"{path.parent.name}-{path.name}"
    name = path.resolve().name if path.exists() else path.name
    return f"replay-{name}" if kind == "replay" else name


def open_engine(options: EngineOptions) -> ChosenEngine:
    """Load the engine. Raises UsageError, also for a checkpoint that cannot be loaded, and RecordError."""
    chosen = {
        "hf": _open_hf,
        "vllm": _open_vllm,
        "openai": _open_openai,
        "random": _open_random,
        "replay": _open_replay,
    }[engine_kind(options)](options)
    if options.on_missing == "skip" and chosen.kind not in BLIND:
        return replace(chosen, engine=SkippingEngine(chosen.engine))
    return chosen


def _open_hf(options: EngineOptions) -> ChosenEngine:
    from training.model import load_model, resolve_name

    name = str(options.ckpt)
    try:
        loaded = load_model(name, frame_kind=options.frame, max_pixels=options.max_pixels)
    except (OSError, ValueError) as error:  # what transformers raises for missing weights, processors and hub ids
        raise UsageError(f"the checkpoint {name} cannot be loaded: {error}") from error
    model = f"{name} {checkpoint_digest(resolve_name(name))}"
    return ChosenEngine(
        engine=HfEngine(
            loaded, options.max_new_tokens, options.batch_size, temperature=options.temperature, seed=options.seed
        ),
        kind="hf",
        frame=loaded.frame,
        style=options.prompt_style or DEFAULT_STYLE,
        model=name,
        label=default_label(options),
        identity={"model": model, "decoding": _decoding(options)},
        decoding=options.decoding,
        tiny=loaded.tiny,
    )


def _open_openai(options: EngineOptions) -> ChosenEngine:
    from data_gen.chat import ChatClient
    from eval.chat_engine import ChatEngine

    name = str(options.endpoint_model)
    urls = [url.strip() for url in str(options.endpoint).split(",") if url.strip()]
    client = ChatClient(urls, name, timeout_s=options.timeout_s)
    client.check()
    if not options.frame:
        print(f"openai: coordinates of {name} are read as pixels of the original image; --frame says otherwise",
              file=sys.stderr)  # fmt: skip
    return ChosenEngine(
        engine=ChatEngine(client, options.max_new_tokens, options.concurrency, options.temperature, options.seed),
        kind="openai",
        frame=_frame(options, CoordinateFrame()),
        style=options.prompt_style or DEFAULT_STYLE,
        model=name,
        label=default_label(options),
        identity={"model": f"{name}, served", "decoding": _decoding(options)},
        decoding=options.decoding,
    )


def _open_vllm(options: EngineOptions) -> ChosenEngine:
    from eval.vllm_engine import VllmEngine, load_vllm, read_checkpoint, require_vllm
    from eval.vllm_parallel import ParallelVllm
    from training.model import resolve_name

    require_vllm()
    name, longest, draws = str(options.ckpt), options.max_new_tokens, (options.temperature, options.seed)
    path = resolve_name(name)
    processor, frame, tiny = read_checkpoint(path, options.frame, options.max_pixels)
    engine: Engine
    if options.data_parallel > 1:
        gpus = options.tensor_parallel, options.data_parallel
        engine = ParallelVllm(path, processor, frame, longest, *gpus, *draws)
    else:
        engine = VllmEngine(load_vllm(path, options.tensor_parallel), processor, frame, longest, *draws)
    return ChosenEngine(
        engine=engine,
        kind="vllm",
        frame=frame,
        style=options.prompt_style or DEFAULT_STYLE,
        model=name,
        label=default_label(options),
        identity={"model": f"{name} {checkpoint_digest(path)}", "decoding": _decoding(options)},
        decoding=options.decoding,
        tiny=tiny,
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
    path = Path(str(options.replay))
    _check_one_sample(path if path.is_dir() else path.parent)
    replayed = open_replayed(path)
    facts = replayed.facts
    return ChosenEngine(
        engine=replayed.engine,
        kind="replay",
        frame=_frame(options, facts.frame if facts else CoordinateFrame()),
        style=options.prompt_style or replayed.style or DEFAULT_STYLE,
        model=facts.model if facts else f"{path.name} ({replayed.format} outputs)",
        label=default_label(options),
        identity={"model": f"outputs {replayed.digest}"},
        tiny=facts.tiny if facts else False,
        decoding=facts.decoding if facts else None,
    )


def _check_one_sample(folder: Path) -> None:
    """Raise UsageError for a run with several samples of every question: a replay has one output for each."""
    if not (folder / RUN_FILE).is_file():
        return
    decoding = read_facts(folder).decoding
    if decoding and decoding.samples > 1:
        raise UsageError(f"{folder} has {decoding.samples} samples of every question, and a replay takes one of each; "
                         "score that run again in its own folder, with its own options and --resume")  # fmt: skip


def _decoding(options: EngineOptions) -> str:
    limit = f"at most {options.max_new_tokens} tokens"
    return f"{options.decoding}, seed {options.seed}, {limit}" if options.temperature else f"greedy, {limit}"


def _frame(options: EngineOptions, default: CoordinateFrame) -> CoordinateFrame:
    frame = replace(default, kind=options.frame) if options.frame else default
    return replace(frame, max_pixels=options.max_pixels) if options.max_pixels else frame
