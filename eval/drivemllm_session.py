"""What a DriveMLLM run is about: its options, its questions, and the engine that answers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from data_gen.command_line import UsageError, read_options
from data_gen.drivemllm.records import DriveMLLMQuestion, read_images, read_questions
from data_gen.public_metadata import METADATA
from eval.choose_engine import ChosenEngine
from eval.drivemllm_random import RandomAnswers
from eval.drivemllm_replay import Published, is_published, read_published
from eval.drivemllm_summary import PUBLISHED_PROMPTS
from eval.published import OWN_PROMPTS
from eval.replay import ReplayEngine
from eval.runner import CONFIG_FILE, RUN_FILE, read_facts
from eval.session import EvalConfig, Session, greedy_only, open_session, option

BUILD_COMMAND = "python data_gen/build_drivemllm.py --nuscenes DIR --out data/drivemllm"
DEFAULT_SHOTS = 1
STYLES = {0: "0-shot", 1: "1-shot", 5: "5-shot"}


@dataclass(frozen=True)
class DriveMLLMConfig(EvalConfig):
    """Options of an evaluation on DriveMLLM."""

    run_prefix: ClassVar[str] = "drivemllm"

    scoring: Literal["official", "paper"] = option(
        "official", "The main scoring: of the published code, or by the paper's equations; both are computed and shown."
    )
    shots: Literal[0, 1, 5] | None = option(
        None, "Worked examples in a prompt, as text; by default 1, the paper's final setting, or those of the replay."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        greedy_only(self, "DriveMLLM")
        if self.prompt_style is not None:
            raise UsageError("--prompt-style is for SURDS: DriveMLLM has a prompt of its own; choose --shots 0, 1 or 5")


def load_questions(config: DriveMLLMConfig, data: Path) -> tuple[list[DriveMLLMQuestion], Published | None]:
    """The questions of the file, or with a folder of published outputs those that were asked there, and the outputs.

    Raises RecordError, and UsageError for a run whose outputs are to other questions.
    """
    questions = read_questions(data)
    if config.replay is None:
        return questions, None
    if not is_published(Path(config.replay)):
        check_own_questions(Path(config.replay))
        return questions, None
    images = read_images(data.parent / METADATA)
    published = read_published(Path(config.replay), images, questions[0].source)
    return published.questions, published


def check_own_questions(replay: Path) -> None:
    """Raise UsageError for a run that scored published outputs: its ids stand for other objects than a file's."""
    folder = replay if replay.is_dir() else replay.parent
    if not (folder / RUN_FILE).is_file() or read_facts(folder).prompts != PUBLISHED_PROMPTS:
        return
    outputs = read_options(folder / CONFIG_FILE).get("replay")
    raise UsageError(f"{folder} scored published outputs, which are about objects of another draw; replay {outputs}")


def chosen_questions(questions: Sequence[DriveMLLMQuestion], limit: int | None) -> list[DriveMLLMQuestion]:
    """The questions of the first `limit` units of every task, in file order."""
    if limit is None:
        return list(questions)
    units: dict[str, dict[str, None]] = {}
    for question in questions:
        units.setdefault(question.task, {})[question.unit_id] = None
    kept = {(task, unit) for task, names in units.items() for unit in list(names)[:limit]}
    return [question for question in questions if (question.task, question.unit_id) in kept]


def open_run(
    config: DriveMLLMConfig, data: Path, questions: Sequence[DriveMLLMQuestion], published: Published | None
) -> Session:
    """A session with DriveMLLM's own guesser or published outputs as the engine; its style is the number of shots."""
    if published:
        folder = Path(str(config.replay)).resolve()
        label = config.label or f"replay-{folder.parent.name}-{folder.name}"
        session = open_session(replace(config, engine="random", label=label), data)
        chosen = replace(
            session.chosen, engine=ReplayEngine(published.stored, prompts=PUBLISHED_PROMPTS), kind="replay",
            model=folder.name, identity={"model": f"outputs {published.digest}"},
            style="unknown shots" if published.shots is None else STYLES[published.shots],
        )  # fmt: skip
        return replace(session, chosen=chosen)
    session = open_session(config, data)
    chosen = session.chosen
    if chosen.kind == "random":
        chosen = replace(chosen, engine=RandomAnswers({q.id: q for q in questions}, chosen.frame, config.seed))
    if config.shots is None and chosen.style in STYLES.values():  # of the run that is replayed
        return replace(session, chosen=chosen)
    shots = DEFAULT_SHOTS if config.shots is None else config.shots
    return replace(session, chosen=replace(chosen, style=STYLES[shots]))


def prompts_of(chosen: ChosenEngine) -> str:
    """Whose wording the answers are to, as in RunFacts."""
    engine = chosen.engine
    return engine.prompts or OWN_PROMPTS if isinstance(engine, ReplayEngine) else OWN_PROMPTS
