"""Pretrain the mini model, a Qwen2.5-VL of two million parameters that names and places rendered objects.

    python training/mini_pretrain.py --out runs/mini

About 40 minutes on one core. Stages, each with its own checkpoint, which is written every minute; an interrupted run
goes on with --resume:

    pictures some 13,000 pictures of the rendered world, in memory and as arrays under OUT/pictures
    vision   the tower below a throw-away head that tells for every image token what is there
    places   captions, boxes of named objects, names of boxes; the tower is trained along
    reading  exercises in reading: to repeat words, to pick a listed option, to compare two numbers
    format   places and names, and grounding questions with prompt and response as the six tasks have them
    together everything for a while

OUT/model is the result: a folder that --model and --ckpt take, with `scores.json`: how well it names and places objects
of pictures that it was not trained on. `--model mini` is what seed 0 gave.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from data_gen.command_line import positive
from data_gen.folders import OutputFolder

SCENES, HELD_OUT_SCENES = 1200, 60
HELD_OUT_SEED = -1
QUESTIONS = 300


def pretrain(out: Path, seed: int, shorten: int, workers: int) -> None:
    """Run all stages, as far as they are not finished, and write and score the model.

    shorten: divides pictures, steps and questions, to try the whole.
    """
    from training.mini_stages import stages
    from training.mini_stages.architecture import new_mini
    from training.mini_stages.pictures import rendered
    from training.mini_stages.score import seeing_scores
    from training.mini_stages.speech import Speech
    from training.tiny import train_tokenizer

    pictures = rendered(out / "pictures", seed, max(1, SCENES // shorten), workers)
    tokenizer = train_tokenizer()
    speech, model = Speech(tokenizer), new_mini(tokenizer, seed)
    print(f"{len(pictures)} pictures, {model.num_parameters():,} parameters", flush=True)
    vision, places, reading, form, together = (
        replace(stage, steps=max(1, stage.steps // shorten))
        for stage in (stages.VISION, stages.PLACES, stages.READING, stages.FORMAT, stages.TOGETHER)
    )
    stages.teach_vision(model, pictures, out / "vision.pt", seed, vision)
    stages.teach_places(model, speech, pictures, out / "places.pt", seed, places)
    stages.teach_reading(model, speech, pictures, out / "reading.pt", seed, reading)
    stages.teach_format(model, speech, pictures, out / "format.pt", seed, form)
    stages.teach_together(model, speech, pictures, out / "together.pt", seed, together)
    processor = write_model(out / "model", model, tokenizer)
    held_out = rendered(out / "pictures", HELD_OUT_SEED, max(1, HELD_OUT_SCENES // shorten), workers)
    scores = asdict(seeing_scores(model.eval(), processor, held_out, max(1, QUESTIONS // shorten)))
    (out / "model" / "scores.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    print(f"{out / 'model'}: {scores}")


def write_model(folder: Path, model: Any, tokenizer: Any) -> Any:
    """Write weights, processor and frame into a folder; gives the processor."""
    from training.mini_stages.pictures import FRAME, MAX_PIXELS
    from training.model import save_frame
    from training.processor import ImageOnlyProcessor, Qwen2VLImageProcessorPil
    from training.tiny import CHAT_TEMPLATE

    processor = ImageOnlyProcessor(
        Qwen2VLImageProcessorPil(size={"shortest_edge": FRAME.min_pixels, "longest_edge": MAX_PIXELS}),
        tokenizer,
        CHAT_TEMPLATE,
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    save_frame(folder, FRAME, tiny=False)
    return processor


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/mini"), help="folder to write (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of pictures, weights and draws (default: %(default)s)")
    parser.add_argument("--threads", type=positive, default=1, help="of the training (default: %(default)s)")
    parser.add_argument("--workers", type=positive, default=1, help="that render pictures (default: %(default)s)")
    parser.add_argument(
        "--shorten",
        type=positive,
        default=1,
        metavar="N",
        help="divide pictures, steps, questions by N, for a trial",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on from the checkpoints in the folder")
    existing.add_argument("--overwrite", action="store_true", help="empty the folder first")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Entry point; exits with 2 on a folder or a seed that cannot be used."""
    options = parse_arguments(arguments)
    try:
        if options.seed < 0:
            raise ValueError(f"the seed must not be negative, got {options.seed}")
        OutputFolder(options.out, "mini-pretraining", options.resume, options.overwrite).prepare()
    except (FileExistsError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    import torch

    torch.set_num_threads(options.threads)
    pretrain(options.out, options.seed, options.shorten, options.workers)


if __name__ == "__main__":
    main()
