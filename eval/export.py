"""Write SURDS questions for another harness; answers are scored by our functions there too.

    python eval/export.py --format lmms-eval --data data/surds/questions.jsonl --out packs/lmms-eval
    python -m lmms_eval --include_path packs/lmms-eval --tasks drive_surds --model qwen2_5_vl ...

    python eval/export.py --format vlmevalkit --data data/surds/questions.jsonl --out packs/vlmevalkit
    cp packs/vlmevalkit/SURDS.tsv ~/LMUData/ && python run.py --data SURDS --model MODEL --mode infer
    python eval/plugins/vlmevalkit.py outputs/MODEL/MODEL_SURDS.xlsx --data data/surds/questions.jsonl

lmms-eval imports this project: install it there with `pip install --no-deps -e .` (numpy, msgspec and pillow are all it
needs). The coordinates a model writes are those of --frame; prompts say them in words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_gen.command_line import HelpFormatter, UsageError
from data_gen.folders import OutputFolder
from data_gen.images import check_images, image_root
from data_gen.prompts import STYLES
from data_gen.records import RecordError, read_questions
from eval.plugins.lmms_eval_task import Terms, write_pack
from eval.plugins.vlmevalkit import TABLE_NAME, write_table
from eval.session import data_path
from rewards.boxes import FRAME_KINDS, CoordinateFrame
from rewards.grading import SCORINGS

FORMATS = ("lmms-eval", "vlmevalkit")
BUILD_COMMAND = "python data_gen/build_surds.py --nuscenes DIR --out data/surds"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the export; 0, or 2 with the remedy when it cannot be done."""
    options = make_parser().parse_args(argv)
    try:
        print(export(options))
    except (UsageError, RecordError, FileExistsError, FileNotFoundError) as error:
        print(f"eval/export.py: {error}", file=sys.stderr)
        return 2
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--format", choices=FORMATS, required=True, help="the harness")
    parser.add_argument("--data", help="the questions.jsonl to export, or its folder")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the export")
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of the images (default: manifest.json's)")
    parser.add_argument("--prompt-style", choices=STYLES, default=Terms.style, help="of the lmms-eval prompts")
    parser.add_argument("--frame", choices=FRAME_KINDS, default="original", help="coordinates the model writes")
    parser.add_argument("--max-pixels", type=int, metavar="N", help="pixel budget, for --frame resized")
    parser.add_argument("--scoring", choices=SCORINGS, default=Terms.scoring, help="of the lmms-eval task")
    parser.add_argument("--overwrite", action="store_true", help="replace an export in the folder")
    return parser


def export(options: argparse.Namespace) -> str:
    """Write the export; returns a line on it. Raises UsageError, RecordError, FileExistsError, FileNotFoundError."""
    data = data_path(options.data, BUILD_COMMAND, "surds")
    folder = OutputFolder(options.out, "export", overwrite=options.overwrite, inputs=(data,))
    folder.check()
    questions = read_questions(data)
    root = image_root(data, options.images)
    check_images(questions, root)
    budget = {"max_pixels": options.max_pixels} if options.max_pixels else {}
    frame = CoordinateFrame(options.frame, **budget)
    folder.prepare()
    if options.format == "lmms-eval":
        write_pack(questions, root, Terms(options.prompt_style, frame, options.scoring), options.out)
        return f"{len(questions)} questions for lmms-eval in {options.out}; use it with --include_path {options.out}"
    write_table(questions, root, frame, options.out / TABLE_NAME)
    return f"{len(questions)} questions for VLMEvalKit in {options.out / TABLE_NAME}; copy it into its LMUData folder"


if __name__ == "__main__":
    sys.exit(main())
