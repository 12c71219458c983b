"""Output folders: one that is not empty is refused unless the caller says what to do with it."""

from __future__ import annotations

import shutil
from pathlib import Path

MARKER = ".drive_spatial_rl"


def check_output(out: Path, resume: bool, overwrite: bool) -> None:
    """Raise FileExistsError, with the remedy, when `prepare_output` would refuse; touches nothing."""
    if resume and overwrite:
        raise FileExistsError("--resume keeps what is there, --overwrite removes it: give one of the two")
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; give a folder to --out")
    filled = _is_filled(out)
    if filled and not resume and not overwrite:
        raise FileExistsError(
            f"{out} is not empty; go on from what is there with --resume, start anew with --overwrite, or choose "
            "another --out"
        )
    if filled and overwrite and not (out / MARKER).exists():
        raise FileExistsError(f"{out} was not written by this project ({MARKER} is missing); delete it yourself first")


def prepare_output(out: Path, resume: bool, overwrite: bool) -> None:
    """Make `out` ready to be written to.

    An empty or new folder gets a marker file. `resume` leaves what is there; `overwrite` empties the folder, but only
    one that carries the marker, so that a wrong path costs nothing. Raises FileExistsError with the remedy for any
    other folder with something in it, and for a file.
    """
    check_output(out, resume, overwrite)
    filled = _is_filled(out)
    if filled and overwrite:
        _empty(out)
    out.mkdir(parents=True, exist_ok=True)
    if not filled or overwrite:  # a foreign folder that is gone on in stays unmarked, and so safe from --overwrite
        (out / MARKER).touch()


def _is_filled(out: Path) -> bool:
    return out.is_dir() and any(path.name != MARKER for path in out.iterdir())


def _empty(out: Path) -> None:
    for path in out.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
