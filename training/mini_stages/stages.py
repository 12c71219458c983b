"""The stages of the mini model's pretraining, in order: what each draws for a step, and its losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data_gen.pretraining.pictures import Pictures, Pixels, Seen, nameable
from data_gen.pretraining.reading import comparison, exercise, far_behind, listed_option
from data_gen.pretraining.texts import Grounding, Said, caption, grounding, measured, name_in_box, place, tagged
from training.cpu_attention import attend_on_cpu
from training.mini_stages.architecture import standardise_tokens
from training.mini_stages.dense import CellTruth, cell_truth, dense_losses, new_head
from training.mini_stages.forward import Conversation, alone_loss, image_tokens, patches_of, shared_rows, text_loss
from training.mini_stages.loop import Stage, train
from training.mini_stages.speech import Speech

# Size of the model -> its stages, in order. Reading comes before places: a model that can copy learns to name and place
# objects in half the steps, and it does not learn to copy in reasonable time after them. Those of midi are for a GPU,
# and untried: about twice the pictures in a fraction of the steps, at about half the rates, as a wider model wants.
STAGES = {
    "mini": (
        Stage("vision", 1, steps=6000, examples_per_step=24, learning_rate=2e-3),
        Stage("reading", 5, steps=1500, examples_per_step=64, learning_rate=3e-3),
        Stage("places", 2, steps=1600, examples_per_step=16, learning_rate=2e-3),
        Stage("format", 3, steps=300, examples_per_step=16, learning_rate=1e-3),
        Stage("grounding", 4, steps=500, examples_per_step=16, learning_rate=1e-3),
        Stage("measuring", 6, steps=600, examples_per_step=16, learning_rate=1e-3),
    ),
    "midi": (
        Stage("vision", 1, steps=1000, examples_per_step=256, learning_rate=1e-3),
        Stage("reading", 5, steps=400, examples_per_step=256, learning_rate=8e-4),
        Stage("places", 2, steps=700, examples_per_step=64, learning_rate=8e-4),
        Stage("format", 3, steps=300, examples_per_step=64, learning_rate=6e-4),
        Stage("grounding", 4, steps=200, examples_per_step=64, learning_rate=6e-4),
        Stage("measuring", 6, steps=200, examples_per_step=64, learning_rate=6e-4),
    ),
}
# Of image tokens, in scales of first weights: as large as the text's embeddings are at first.
IMAGE_TOKEN_SCALE = 2.0
SAMPLES = 128
CAPTION_SHARE = 0.3  # of the pictures, while the format is taught: what is not asked for is forgotten
QUESTIONS_PER_PICTURE, MEASURES_PER_PICTURE, COMPARISONS_PER_PICTURE = 3, 2, 3  # at last
LISTED_SHARE = 0.2  # of the times a picture is asked about in the format: a listed option as well
About = Callable[[Sequence[Seen], np.random.Generator], list[Said]]


@dataclass(frozen=True)
class Course:
    """Who is taught with what. device: of the model, `cpu` or `cuda`; workers: processes that draw what is taught."""

    model: Any
    speech: Speech
    pictures: Pictures
    seed: int
    device: str = "cpu"
    workers: int = 1


def draw_pictures(pictures: Pictures, count: int, rng: np.random.Generator) -> tuple[Pixels, list[tuple[Seen, ...]]]:
    """Some pictures and their objects, about half of them as seen in a mirror."""
    chosen = rng.integers(len(pictures), size=count)
    mirrored = rng.random(count) < 0.5
    pixels_NHWC = pictures.pixels[chosen]
    pixels_NHWC = np.where(mirrored[:, None, None, None], pixels_NHWC[:, :, ::-1], pixels_NHWC)
    objects = [pictures.objects[index] for index in chosen]
    objects = [
        tuple(item.mirrored() for item in seen) if turned else seen
        for seen, turned in zip(objects, mirrored, strict=True)
    ]
    return pixels_NHWC, objects


def teach(course: Course, stage: Stage, checkpoint: Path) -> None:
    """Do one stage, as far as the checkpoint has not done it."""
    if stage.name == "vision":
        _teach_vision(course, stage, checkpoint)
    elif stage.name == "reading":
        _teach_reading(course, stage, checkpoint)
    else:
        _teach_texts(course, stage, checkpoint, ABOUT[stage.name])


def _teach_vision(course: Course, stage: Stage, checkpoint: Path) -> None:
    """Train the tower below a head that is thrown away, then bring its tokens to the scale of text."""
    visual = course.model.model.visual
    torch.manual_seed(course.seed)
    head = new_head(visual.config.out_hidden_size).to(course.device)

    def draw(rng: np.random.Generator) -> tuple[Pixels, CellTruth]:
        pixels_NHWC, objects = draw_pictures(course.pictures, stage.examples_per_step, rng)
        return pixels_NHWC, cell_truth(objects)

    def losses_of(drawn: tuple[Pixels, CellTruth]) -> dict[str, Tensor]:
        pixels_NHWC, truth = drawn
        with torch.autocast(course.device, torch.bfloat16):
            tokens_NTC = image_tokens(visual, patches_of(pixels_NHWC, course.device))
        return dense_losses(head(tokens_NTC).cpu(), truth)  # so little that no GPU is needed

    train(stage, [visual, head], losses_of, checkpoint, course.seed, draw, course.workers)
    with torch.no_grad():
        samples = image_tokens(visual, patches_of(course.pictures.pixels[:SAMPLES], course.device))
    standardise_tokens(visual.merger, samples.flatten(0, 1), IMAGE_TOKEN_SCALE * visual.config.initializer_range)


def _teach_reading(course: Course, stage: Stage, checkpoint: Path) -> None:
    """Exercises in reading, without pictures."""
    model, speech = course.model, course.speech

    def draw(rng: np.random.Generator) -> list[Conversation]:
        return [speech.conversation(exercise(rng)) for _ in range(stage.examples_per_step)]

    def losses_of(drawn: list[Conversation]) -> dict[str, Tensor]:
        with torch.autocast(course.device, torch.bfloat16):
            return {"text": alone_loss(model, drawn, speech.tokenizer.pad_token_id, course.device)}

    if course.device == "cpu":
        attend_on_cpu(model)
    train(stage, [model], losses_of, checkpoint, course.seed, draw, course.workers)
    model.set_attn_implementation("sdpa")


def _teach_texts(course: Course, stage: Stage, checkpoint: Path, about: About) -> None:
    """Train the whole model on what is said about pictures."""
    model, speech = course.model, course.speech

    def draw(rng: np.random.Generator) -> tuple[Pixels, list[list[Conversation]]]:
        pixels_NHWC, objects = draw_pictures(course.pictures, stage.examples_per_step, rng)
        said = [about(seen, rng) for seen in objects]
        return pixels_NHWC, [[speech.conversation(each) for each in of_picture] for of_picture in said]

    def losses_of(drawn: tuple[Pixels, list[list[Conversation]]]) -> dict[str, Tensor]:
        pixels_NHWC, conversations = drawn
        rows = shared_rows(speech.head, conversations, speech.tokenizer.pad_token_id, course.device)
        with torch.autocast(course.device, torch.bfloat16):
            tokens_NTC = image_tokens(model.model.visual, patches_of(pixels_NHWC, course.device))
            return {"text": text_loss(model, tokens_NTC, rows)}

    if course.device == "cpu":
        attend_on_cpu(model)
    train(stage, [model], losses_of, checkpoint, course.seed, draw, course.workers)
    model.set_attn_implementation("sdpa")


def _about_places(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
    """Captions, and the places and names of objects, with the tower trained along; an exercise, to keep reading."""
    return [caption(seen), *_places_and_a_name(seen, rng), exercise(rng)]


def _about_format(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
    """Grounding questions with prompts and replies in the format of the tasks, beside all that was taught before."""
    asked = [tagged(question, rng) for question in _grounding_questions(seen, rng)]
    told = [caption(seen)] if rng.random() < CAPTION_SHARE else []
    return [*told, *_places_and_a_name(seen, rng), exercise(rng), *asked]


def _about_grounding(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
    """Several grounding questions for each picture: far behind it, in a long prompt, objects are hard to place."""
    asked = [question for _ in range(QUESTIONS_PER_PICTURE) for question in _grounding_questions(seen, rng)]
    told = [caption(seen)] if rng.random() < CAPTION_SHARE else []
    return [*told, *_places_and_a_name(seen, rng), exercise(rng), *(tagged(question, rng) for question in asked)]


def _about_measures(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
    """How far and where the named objects are, in numbers, and what two numbers tell, beside less of all the rest."""
    known = nameable(seen)
    told = [caption(seen)] if rng.random() < CAPTION_SHARE else []
    measures = [far_behind(measured(known, rng), rng) for _ in range(MEASURES_PER_PICTURE if known else 0)]
    read = [exercise(rng), *(comparison(rng) for _ in range(COMPARISONS_PER_PICTURE))]
    asked = [tagged(question, rng) for _ in range(2) for question in _grounding_questions(seen, rng)]
    return [*told, *_places_and_a_name(seen, rng), *measures, *read, *asked]


def _grounding_questions(seen: Sequence[Seen], rng: np.random.Generator) -> list[Grounding]:
    """One about what is seen, if it can be asked about, now and then one that is answered by a listed option."""
    question, known = grounding(seen, rng), nameable(seen)
    listed = [listed_option(known[0], rng)] if known and rng.random() < LISTED_SHARE else []
    return [*([question] if question else []), *listed]


def _places_and_a_name(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
    known = nameable(seen)
    names = [name_in_box(known[rng.integers(len(known))])] if known else []
    return [far_behind(said, rng) for said in (*map(place, known), *names)]


ABOUT: dict[str, About] = {
    "places": _about_places, "format": _about_format, "grounding": _about_grounding, "measuring": _about_measures,
}  # fmt: skip
