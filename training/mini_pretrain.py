"""Pretrain the mini model, a Qwen2.5-VL of two million parameters that names and places rendered objects.

    python training/mini_pretrain.py --out runs/mini
    python training/mini_pretrain.py --size midi --workers 16 --out runs/midi     25 million, on a GPU

About 110 minutes on one core. Stages, each with its own checkpoint, which is written every minute; an interrupted run
goes on with --resume:

    pictures  some 13,000 pictures of the rendered world, in memory and as arrays under OUT/pictures
    vision    the tower below a throw-away head that tells for every image token what is there
    reading   exercises in reading, without pictures: to repeat words, to pick a listed option, to compare numbers
    places    captions, boxes of named objects, names of boxes; the tower is trained along
    format    grounding questions with prompt and response as the six tasks have them, beside all the rest
    grounding more of them: far behind a picture, in a long prompt, objects are hard to place
    measuring how far ahead and how far to the right named objects are, in numbers

OUT/model is the result: a folder that --model and --ckpt take, with `scores.json`: how well it names and places objects
of pictures that it was not trained on. `--model mini` is what seed 0 gave.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.build_folder import check_same
from data_gen.command_line import UsageError, positive
from data_gen.files import read_json, write_json
from data_gen.folders import OutputFolder, alone_in

if TYPE_CHECKING:
    from training.mini_stages.loop import Stage

SIZES = ("mini", "midi")
SCENES, HELD_OUT_SCENES = 1200, 60
HELD_OUT_SEED = -1
QUESTIONS = 300
SETTINGS = "settings.json"


def pretrain(options: argparse.Namespace) -> None:
    """Run all stages, as far as they are not finished, and write and score the model."""
    import torch

    from data_gen.pretraining.pictures import rendered
    from training.linear_patches import embed_patches_linearly
    from training.mini_stages.architecture import new_mini
    from training.mini_stages.score import seeing_scores
    from training.mini_stages.speech import Speech
    from training.mini_stages.stages import Course, teach
    from training.tiny import train_tokenizer

    out, seed, device, workers = options.out, options.seed, options.device, options.workers
    # A GPU takes up faster than one process draws; those that draw for it are forked from one of a single thread.
    torch.set_num_threads(1 if device == "cuda" else options.threads)
    pictures = rendered(out / "pictures", seed, max(1, SCENES // options.shorten), workers)
    tokenizer = train_tokenizer()
    model = new_mini(tokenizer, seed, options.size).to(device)
    if device == "cpu":
        embed_patches_linearly(model)
    print(f"{len(pictures)} pictures, {model.num_parameters():,} parameters", flush=True)
    course = Course(model, Speech(tokenizer), pictures, seed, device, workers if device == "cuda" else 1)
    for stage in stages_of(options):
        teach(course, stage, out / f"{stage.name}.pt")
    processor = write_model(out / "model", model, tokenizer)
    held_out = rendered(out / "pictures", HELD_OUT_SEED, max(1, HELD_OUT_SCENES // options.shorten), workers)
    torch.set_num_threads(workers if device == "cuda" else options.threads)  # the processor gives what a CPU takes
    scores = asdict(seeing_scores(model.eval(), processor, held_out, max(1, QUESTIONS // options.shorten)))
    (out / "model" / "scores.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    print(f"{out / 'model'}: {scores}")


def stages_of(options: argparse.Namespace) -> list[Stage]:
    """The stages of a size, with other numbers of steps where --steps gives them, shortened."""
    from training.mini_stages.stages import STAGES

    stages = STAGES[options.size]
    steps = options.steps or [stage.steps for stage in stages]
    return [replace(stage, steps=max(1, count // options.shorten)) for stage, count in zip(stages, steps, strict=True)]


def keep_settings(options: argparse.Namespace) -> None:
    """Note what a run is made with. Raises FileExistsError when the folder holds another's."""
    steps = {stage.name: stage.steps for stage in stages_of(options)}
    settings = {"seed": options.seed, "size": options.size, "shorten": options.shorten, "steps": steps}
    path = options.out / SETTINGS
    if path.exists():
        check_same(options.out, read_json(path), settings)
    write_json(path, settings)


def write_model(folder: Path, model: Any, tokenizer: Any) -> Any:
    """Write weights, processor and frame into a folder; gives the processor."""
    from data_gen.pretraining.pictures import FRAME, MAX_PIXELS
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
    parser.add_argument(
        "--workers", type=positive, default=1, help="that render pictures, and draw for a GPU (default: %(default)s)"
    )
    parser.add_argument("--size", choices=SIZES, default="mini", help="of the model (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="of the training (default: the GPU, if there is one)")
    parser.add_argument("--steps", type=positive, nargs=6, metavar="N", help="of the stages, in order, not as planned")
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
    import torch

    gpu = torch.cuda.is_available()
    options.device = options.device or ("cuda" if gpu else "cpu")
    try:
        if options.seed < 0:
            raise UsageError(f"the seed must not be negative, got {options.seed}")
        if options.device == "cuda" and not gpu:
            raise UsageError("--device cuda, but torch sees no GPU; use --device cpu")
        OutputFolder(options.out, "mini-pretraining", options.resume, options.overwrite).prepare()
        with alone_in(options.out):
            keep_settings(options)
            pretrain(options)
    except (FileExistsError, UsageError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
