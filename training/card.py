"""The README of a trained folder: what was trained, from what, and how to go on. Only what the run knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.model import LoadedModel

_CARD = """\
# {name}

A checkpoint by {stage} from `{base}` on {rows}.

- Every option: `config.yaml`. The log of all steps: `trainer_state.json`.
- Coordinates are written in the frame of `frame.json` ({kind}, images of at most {max_pixels} pixels).
- Score it: `python eval/surds.py --ckpt DIR --data questions.jsonl`
{notes}"""
_TINY = "- A tiny model: it shows that the chain works, not what a real model scores.\n"
_TERMS = "- What was trained on nuScenes images falls under their non-commercial terms.\n"


class OwnCard:
    """Mix-in for a TRL trainer, whose own card would name neither base model, data nor frame."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Nothing: `write_card` writes one when the run is saved."""


def write_card(folder: Path, loaded: LoadedModel, stage: str, rows: str) -> None:
    """Write `README.md`. stage: `SFT` or `GRPO`. rows: what it was trained on, in words."""
    notes = _TERMS + (_TINY if loaded.tiny else "")
    frame = loaded.frame
    text = _CARD.format(
        name=folder.name, stage=stage, base=loaded.name, rows=rows, kind=frame.kind, max_pixels=frame.max_pixels,
        notes=notes,
    )  # fmt: skip
    (folder / "README.md").write_text(text, encoding="utf-8")
