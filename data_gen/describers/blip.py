"""Descriptions by InstructBLIP, the describer of the paper, on this machine: batches of crops, greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, tee
from typing import TYPE_CHECKING, Any

from data_gen.command_line import UsageError
from data_gen.describers.crops import crop_of, read_image
from data_gen.describers.standardise import standardise
from data_gen.describers.wording import question_about
from data_gen.descriptions import UNREADABLE, Asked, AskedImage, Describer, Description

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_NEW_TOKENS = 24
Crop = tuple["Image | None", Asked]  # None: the image could not be read


def blip_describer(model_name: str, batch_size: int) -> Describer:
    """A describer that asks the InstructBLIP of a folder or hub id about `batch_size` objects at a time.

    The weights are loaded when the first image comes. Raises UsageError for a model that is not there, or is none.
    """
    processor = _load_processor(model_name)

    def describe(images: Iterable[AskedImage]) -> Iterator[list[Description]]:
        generate = _load_generate(model_name, processor)
        return in_batches(images, batch_size, lambda batch: _describe_batch(generate, batch))

    return describe


def in_batches(
    images: Iterable[AskedImage], batch_size: int, describe_batch: Callable[[Sequence[Crop]], list[Description]]
) -> Iterator[list[Description]]:
    """Descriptions image by image, made in batches of objects that may span images; a batch of images is held."""
    for_crops, for_counts = tee(images)
    crops = chain.from_iterable(map(_crops, for_crops))
    batches = iter(lambda: list(islice(crops, batch_size)), [])
    described = chain.from_iterable(map(describe_batch, batches))
    return (list(islice(described, len(image.objects))) for image in for_counts)


def _crops(image: AskedImage) -> list[Crop]:
    opened = read_image(image)
    return [(opened and crop_of(opened, item.box_xyxy_px), item) for item in image.objects]


def _describe_batch(
    generate: Callable[[list[Image], list[str]], list[str]], batch: Sequence[Crop]
) -> list[Description]:
    """Descriptions of a batch; what lies in unreadable images is not asked about."""
    asked = [(crop, item) for crop, item in batch if crop is not None]
    texts = iter(
        generate([crop for crop, _ in asked], [f"{question_about(item.category)} Answer:" for _, item in asked])
        if asked
        else []
    )
    return [UNREADABLE if crop is None else standardise(next(texts), item.category) for crop, item in batch]


def _load_processor(model_name: str) -> Any:
    """The processor of an InstructBLIP. Raises UsageError where there is none."""
    from transformers import AutoConfig, InstructBlipProcessor

    try:
        kind = AutoConfig.from_pretrained(model_name).model_type
        processor = InstructBlipProcessor.from_pretrained(model_name) if kind == "instructblip" else None
    except (OSError, ValueError) as error:
        raise UsageError(f"no InstructBLIP at {model_name!r}, give one with --describer-model: {error}") from error
    if processor is None:
        raise UsageError(f"--describer blip needs an InstructBLIP as --describer-model, {model_name!r} is a {kind}")
    return processor


def _load_generate(model_name: str, processor: Any) -> Callable[[list[Image], list[str]], list[str]]:
    """Load the weights, over all GPUs if there are any; returns crops and questions -> texts."""
    import torch
    from transformers import InstructBlipForConditionalGeneration

    on_gpu = torch.cuda.is_available()
    half = torch.bfloat16 if on_gpu and torch.cuda.is_bf16_supported() else torch.float16
    placed = {"dtype": half, "device_map": "auto"} if on_gpu else {"dtype": torch.float32}
    model = InstructBlipForConditionalGeneration.from_pretrained(model_name, **placed).eval()
    decoder_only = not model.language_model.config.is_encoder_decoder
    if decoder_only:  # what is generated follows the last token; the Q-Former's tokens stay padded on the right
        processor.tokenizer.padding_side = "left"

    def generate(crops: list[Image], questions: list[str]) -> list[str]:
        inputs = processor(images=crops, text=questions, padding=True, return_tensors="pt")
        inputs = inputs.to(model.device, dtype=model.dtype)
        with torch.inference_mode():
            tokens = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False, num_beams=1)
        new = tokens[:, inputs["input_ids"].shape[1] :] if decoder_only else tokens
        return [text.strip() for text in processor.tokenizer.batch_decode(new, skip_special_tokens=True)]

    return generate
