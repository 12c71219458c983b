"""The engine `hf`: transformers, greedy or sampled; questions about the same images share the encoding of these."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.decoding import draw_seed
from eval.engines import Reply, Request, by_image, open_shown, windows

if TYPE_CHECKING:
    from PIL.Image import Image

    from training.going_on import Choose
    from training.model import LoadedModel

# A checkpoint's own sampling settings would make greedy decoding warn, or no longer greedy. Samples are drawn by
# `DrawTokens` inside of it, which none of these settings reach.
GREEDY: dict[str, Any] = {
    "do_sample": False, "temperature": None, "top_p": None, "top_k": None, "repetition_penalty": 1.0
}  # fmt: skip


@dataclass(frozen=True)
class HfEngine:
    """Decoding in batches. Both ways give the same tokens, up to rounding, however the batches are cut.

    share_images: encode the images of a group of questions once, and only the texts question by question, each once
    for all of its samples; answers that have ended are carried no further. Only for models that `training.prefill`
    knows; others encode every request whole, in batches of similar length. temperature: 0 is greedy. seed: of draws.
    """

    loaded: LoadedModel
    max_new_tokens: int = 512
    batch_size: int = 8
    share_images: bool = True
    temperature: float = 0.0
    seed: int = 0

    def replies(self, requests: Sequence[Request], done: Collection[str] = ()) -> Iterator[Reply]:
        """Replies batch by batch. Raises RecordError for an image that cannot be read or has another size."""
        from training.prefill import can_share

        shared = self.share_images and can_share(self.loaded.model)
        if self.share_images and not shared:
            family = self.loaded.model.config.model_type
            print(f"hf: images of {family} are encoded anew for every question about them", file=sys.stderr)
        # Batches are cut before the finished requests are left out, so that a resumed run forms the same ones.
        for window in (image_batches if shared else length_batches)(requests, self.batch_size):
            left = [[request for request in batch if request.id not in done] for batch in window]
            opened = _open([request for batch in left for request in batch])
            for batch in filter(None, left):
                images = [[opened[path] for path in request.images] for request in batch]
                yield from (self._shared if shared else self._plain)(batch, images)

    def _plain(self, batch: Sequence[Request], images: Sequence[Sequence[Image]]) -> list[Reply]:
        """Every prompt encoded whole, with its images."""
        import torch

        texts = [chat_text(self.loaded.processor, request) for request in batch]
        inputs = _processed(self.loaded, texts, images)
        with torch.inference_mode():
            sequences = self.loaded.model.generate(**inputs, **self._settings(batch))  # type: ignore[operator]
        return self._read(batch, sequences[:, inputs["input_ids"].shape[1] :].tolist())

    def _shared(self, batch: Sequence[Request], images: Sequence[Sequence[Image]]) -> list[Reply]:
        """What prompts with the same images have in front, up to the last image, encoded once."""
        from training.going_on import go_on
        from training.prefill import Continuation, Prefixes, begin_rows

        tokenizer = self.loaded.processor.tokenizer
        halves = [split_after_images(self.loaded.processor, request) for request in batch]
        heads = [(head, request.images) for (head, _), request in zip(halves, batch, strict=True)]
        shown = dict(zip(heads, images, strict=True))
        inputs = _processed(self.loaded, [head for head, _ in shown], list(shown.values()))
        tails = tokenizer([tail for _, tail in halves], add_special_tokens=False)["input_ids"]
        place = {head: index for index, head in enumerate(shown)}
        rows = [Continuation(place[head], tuple(ids)) for head, ids in zip(heads, tails, strict=True)]
        prefixes = Prefixes(**{field.name: inputs[field.name] for field in fields(Prefixes)})
        model = self.loaded.model
        begun = begin_rows(model, prefixes, rows, tokenizer.pad_token_id)
        return self._read(batch, go_on(model, begun, self._choose(batch), end_tokens(model), self.max_new_tokens))

    def _choose(self, batch: Sequence[Request]) -> Choose:
        """How tokens are chosen from their logits."""
        from eval.sampling import uniform_numbers
        from training.going_on import draw

        if not self.temperature:
            return lambda step, rows, logits: logits.argmax(dim=-1)
        seeds = [draw_seed(self.seed, request.id) for request in batch]
        uniforms = uniform_numbers(seeds, self.max_new_tokens).to(self.loaded.model.device)
        return lambda step, rows, logits: draw(logits, uniforms[rows, step], self.temperature)

    def _settings(self, batch: Sequence[Request]) -> dict[str, Any]:
        """What `generate` is told."""
        settings = {"max_new_tokens": self.max_new_tokens, **GREEDY}
        if not self.temperature:
            return settings
        from transformers import LogitsProcessorList

        from eval.sampling import DrawTokens

        seeds = [draw_seed(self.seed, request.id) for request in batch]
        draw = DrawTokens(seeds, self.max_new_tokens, self.temperature)
        return {**settings, "logits_processor": LogitsProcessorList([draw])}

    def _read(self, batch: Sequence[Request], new: Sequence[Sequence[int]]) -> list[Reply]:
        """Replies with special tokens kept, for the parser to judge, and their numbers of tokens."""
        ends, tokenizer = end_tokens(self.loaded.model), self.loaded.processor.tokenizer
        kept = [cut_at_end(ids, ends) for ids in new]
        return [
            Reply(request.id, tokenizer.decode(ids, skip_special_tokens=False), len(ids))
            for request, ids in zip(batch, kept, strict=True)
        ]


def image_batches(requests: Sequence[Request], batch_size: int) -> Iterator[list[list[Request]]]:
    """Windows of one batch of whole groups with the same images; a group larger than a batch is split."""
    batch: list[Request] = []
    for _, members in groupby(by_image(requests), key=lambda request: request.images):
        group = list(members)
        for start in range(0, len(group), batch_size):
            part = group[start : start + batch_size]
            if len(batch) + len(part) > batch_size:
                yield [batch]
                batch = []
            batch = batch + part
    if batch:
        yield [batch]


def length_batches(requests: Sequence[Request], batch_size: int) -> Iterator[list[list[Request]]]:
    """Windows of batches of similar prompt length; an image is shown in few windows."""
    for window in windows(requests, batch_size):
        yield [window[start : start + batch_size] for start in range(0, len(window), batch_size)]


def cut_at_end(ids: Sequence[int], ends: Collection[int]) -> list[int]:
    """Generated ids up to the first end token, without it."""
    return list(ids[: next((place for place, token in enumerate(ids) if token in ends), len(ids))])


def end_tokens(model: Any) -> set[int]:
    """The token ids at which a model stops."""
    ends = model.generation_config.eos_token_id
    return set(ends) if isinstance(ends, list) else {ends}


def chat_text(processor: Any, request: Request) -> str:
    """The chat of one question: images first, one mark for each, then the text."""
    content = [*({"type": "image"} for _ in request.images), {"type": "text", "text": request.prompt}]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )


def split_after_images(processor: Any, request: Request) -> tuple[str, str]:
    """The chat of one question up to its last image mark, and the rest.

    A mark is a special token, which bounds what a tokenizer merges: the halves have the tokens of the whole.
    """
    text, end = chat_text(processor, request), 0
    for _ in request.images:
        end = text.index(processor.image_token, end) + len(processor.image_token)
    return text[:end], text[end:]


def _processed(loaded: LoadedModel, texts: Sequence[str], images: Sequence[Sequence[Image]]) -> Any:
    """Model inputs of texts with their images, padded on the left."""
    return loaded.processor(
        text=list(texts),
        images=[list(shown) for shown in images],
        padding=True,
        padding_side="left",
        return_tensors="pt",
    ).to(loaded.model.device, dtype=loaded.model.dtype)


def _open(requests: Sequence[Request]) -> dict[Path, Image]:
    """The images of some requests, each opened once."""
    asked = {path: size for request in requests for path, size in zip(request.images, request.sizes, strict=True)}
    return {path: open_shown(path, size) for path, size in asked.items()}
