"""Output folders: one that is not empty is refused unless the caller says what to do with it."""

from __future__ import annotations

import shutil
from pathlib import Path

MARKER = ".drive_spatial_rl"


def prepare_output(out: Path, resume: bool, overwrite: bool) -> None:
    """Make `out` ready to be written to.

    An empty or new folder gets a marker file. `resume` leaves what is there; `overwrite` empties the folder, but only
    one that carries the marker, so that a wrong path costs nothing. Raises FileExistsError with the remedy for any
    other folder with something in it, and for a file.
    """
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; give a folder to --out")
    filled = out.is_dir() and any(path.name != MARKER for path in out.iterdir())
    if filled and not resume and not overwrite:
        raise FileExistsError(
            f"{out} is not empty; go on from what is there with --resume, start anew with --overwrite, or choose "
            "another --out"
        )
    if filled and overwrite and not resume:
        _empty(out)
    out.mkdir(parents=True, exist_ok=True)
    if not filled or overwrite:
        (out / MARKER).touch()


def _empty(out: Path) -> None:
    if not (out / MARKER).exists():
        raise FileExistsError(f"{out} was not written by this project ({MARKER} is missing); delete it yourself first")
    for path in out.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
