"""Merge a LoRA adapter into its base model: a plain checkpoint to train on from, to serve or to share.

python training/merge.py --model runs/sft-lora --out runs/sft-merged
"""

from __future__ import annotations

import argparse
from pathlib import Path

from data_gen.folders import OutputFolder
from training.model import load_model, save_frame


def merge(adapter: str, out: Path) -> None:
    """Write weights, processor and frame of the merged model into `out`."""
    loaded = load_model(adapter, dtype="float32", device=None)
    loaded.model.save_pretrained(out)
    loaded.processor.save_pretrained(out)
    save_frame(out, loaded.frame, loaded.tiny)


def main() -> None:
    """Merge; exits with 2 when the adapter is missing or the output folder holds something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the adapter")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="empty the output folder first")
    options = parser.parse_args()
    if not (Path(options.model) / "adapter_config.json").exists():
        parser.error(f"{options.model} holds no adapter (adapter_config.json); --use_peft of training/sft.py makes one")
    try:
        OutputFolder(options.out, "checkpoint", overwrite=options.overwrite, inputs=(Path(options.model),)).prepare()
        merge(options.model, options.out)
    except OSError as error:
        parser.exit(2, f"error: {error}\n")
    print(f"merged into {options.out}")


if __name__ == "__main__":
    main()
