"""The stages of the mini model's pretraining, in order: what each draws for a step, and its losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.cpu_attention import attend_on_cpu, mixed_precision
from training.mini_stages.architecture import standardise_tokens
from training.mini_stages.dense import cell_truth, dense_losses, new_head
from training.mini_stages.forward import image_tokens, patches_of, text_loss
from training.mini_stages.loop import Stage, train
from training.mini_stages.pictures import Pictures, Pixels, Seen, nameable
from training.mini_stages.reading import exercise, listed_option
from training.mini_stages.speech import Speech
from training.mini_stages.texts import Grounding, Said, caption, grounding, name_in_box, place, tagged

VISION = Stage("vision", 1, steps=6000, pictures_per_step=24, learning_rate=2e-3)
PLACES = Stage("places", 2, steps=2200, pictures_per_step=16, learning_rate=1.5e-3)
READING = Stage("reading", 5, steps=450, pictures_per_step=16, learning_rate=1.5e-3)
FORMAT = Stage("format", 3, steps=600, pictures_per_step=16, learning_rate=1e-3)
TOGETHER = Stage("together", 4, steps=100, pictures_per_step=16, learning_rate=1.5e-3)
# As large as the text's embeddings are at first.
IMAGE_TOKEN_SCALE = 0.1
SAMPLES = 128
EXERCISES = 5  # for each picture, while reading is taught
LISTED_SHARE = 0.4  # of the pictures that are asked about in the format: a listed option as well
About = Callable[[Sequence[Seen], np.random.Generator], list[Said]]


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


def teach_vision(model: Any, pictures: Pictures, checkpoint: Path, seed: int, stage: Stage = VISION) -> None:
    """Train the tower below a head that is thrown away, then bring its tokens to the scale of text."""
    visual = model.model.visual
    torch.manual_seed(seed)
    head = new_head(visual.config.out_hidden_size)

    def losses_of(rng: np.random.Generator) -> dict[str, Tensor]:
        pixels_NHWC, objects = draw_pictures(pictures, stage.pictures_per_step, rng)
        with mixed_precision():
            tokens_NTC = image_tokens(visual, patches_of(pixels_NHWC))
        return dense_losses(head(tokens_NTC), cell_truth(objects))

    train(stage, [visual, head], losses_of, checkpoint, seed)
    with torch.no_grad():
        samples = image_tokens(visual, patches_of(pictures.pixels[:SAMPLES]))
    standardise_tokens(visual.merger, samples.flatten(0, 1), IMAGE_TOKEN_SCALE)


def teach_places(
    model: Any, speech: Speech, pictures: Pictures, checkpoint: Path, seed: int, stage: Stage = PLACES
) -> None:
    """Captions, and the places and names of objects, with the tower trained along."""

    def about(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
        return [caption(seen), *_places_and_a_name(seen, rng)]

    _teach_texts(model, speech, pictures, checkpoint, seed, stage, about)


def teach_reading(
    model: Any, speech: Speech, pictures: Pictures, checkpoint: Path, seed: int, stage: Stage = READING
) -> None:
    """Exercises in reading, beside places and names, which would be forgotten."""

    def about(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
        return [*(exercise(rng) for _ in range(EXERCISES)), *_places_and_a_name(seen, rng)]

    _teach_texts(model, speech, pictures, checkpoint, seed, stage, about)


def teach_format(
    model: Any, speech: Speech, pictures: Pictures, checkpoint: Path, seed: int, stage: Stage = FORMAT
) -> None:
    """Grounding questions with prompts and replies in the format of the tasks, beside places and names."""

    def about(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
        asked = [*_grounding_questions(seen, rng), *_grounding_questions(seen, rng)]
        return [*_places_and_a_name(seen, rng), exercise(rng), *(tagged(question, rng) for question in asked)]

    _teach_texts(model, speech, pictures, checkpoint, seed, stage, about)


def teach_together(
    model: Any, speech: Speech, pictures: Pictures, checkpoint: Path, seed: int, stage: Stage = TOGETHER
) -> None:
    """Everything at once: captions are forgotten while they are not asked for, and come back in a few steps."""

    def about(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
        asked = _grounding_questions(seen, rng)
        told = [caption(seen), *_places_and_a_name(seen, rng), exercise(rng)]
        return [*told, *(tagged(question, rng) for question in asked)]

    _teach_texts(model, speech, pictures, checkpoint, seed, stage, about)


def _grounding_questions(seen: Sequence[Seen], rng: np.random.Generator) -> list[Grounding]:
    """One about what is seen, if it can be asked about, now and then one that is answered by a listed option."""
    question, known = grounding(seen, rng), nameable(seen)
    listed = [listed_option(known[0], rng)] if known and rng.random() < LISTED_SHARE / 2 else []
    return [*([question] if question else []), *listed]


def _places_and_a_name(seen: Sequence[Seen], rng: np.random.Generator) -> list[Said]:
    known = nameable(seen)
    names = [name_in_box(known[rng.integers(len(known))])] if known else []
    return [*map(place, known), *names]


def _teach_texts(
    model: Any, speech: Speech, pictures: Pictures, checkpoint: Path, seed: int, stage: Stage, about: About
) -> None:
    def losses_of(rng: np.random.Generator) -> dict[str, Tensor]:
        pixels_NHWC, objects = draw_pictures(pictures, stage.pictures_per_step, rng)
        rows = speech.rows([about(seen, rng) for seen in objects])
        with mixed_precision():
            return {"text": text_loss(model, image_tokens(model.model.visual, patches_of(pixels_NHWC)), rows)}

    attend_on_cpu(model)
    train(stage, [model], losses_of, checkpoint, seed)
    model.set_attn_implementation("sdpa")
