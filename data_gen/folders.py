"""Output folders: nothing of the user's is lost in one. Each carries a marker that says what it holds."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from data_gen.command_line import UsageError

MARKER = ".drive_spatial_rl"
FINISHED = "manifest.json"


@dataclass(frozen=True)
class OutputFolder:
    """A folder to write to: what it is to hold, what to do with what is there, and what is read meanwhile.

    kind: one word that only another output of the same kind shares; a folder of another kind, or without a marker, is
    neither gone on in nor emptied. inputs: files and folders that must not lie in it.
    """

    path: Path
    kind: str
    resume: bool = False
    overwrite: bool = False
    inputs: tuple[Path, ...] = ()

    def check(self) -> None:
        """Raise FileExistsError, with the remedy, when `prepare` would refuse; touches nothing."""
        out = self.path
        if self.resume and self.overwrite:
            raise FileExistsError("--resume keeps what is there, --overwrite removes it: give one of the two")
        if out.exists() and not out.is_dir():
            raise FileExistsError(f"{out} is a file; give a folder to --out")
        if inside := _first_inside(out, self.inputs):
            raise FileExistsError(f"{inside} is read from the folder that is written to, {out}; choose another --out")
        if not is_filled(out):
            return
        if not self.resume and not self.overwrite:
            raise FileExistsError(
                f"{out} is not empty; go on from what is there with --resume, start anew with --overwrite, or choose "
                "another --out"
            )
        held = (
            (out / MARKER).read_text(encoding="utf-8", errors="replace").strip() if (out / MARKER).is_file() else None
        )
        if held != self.kind:
            what = f"holds {held}, no {self.kind}" if held else f"was not written by this project (no {MARKER})"
            raise FileExistsError(f"{out} {what}; choose another --out, or delete it yourself first")

    def prepare(self) -> None:
        """Make the folder ready: new and marked, emptied (`overwrite`), or as it is (`resume`).

        Raises FileExistsError when it must not be touched or cannot be made.
        """
        self.check()
        try:
            if self.overwrite and is_filled(self.path):
                _empty(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / MARKER).write_text(self.kind + "\n", encoding="utf-8")
        except OSError as error:
            raise FileExistsError(f"{self.path} cannot be written to ({error}); choose another --out") from error


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a prepared folder, so that no two processes add to the same files; ends with the process, killed or not.

    Raises UsageError when another holds it.
    """
    with (folder / MARKER).open("a", encoding="utf-8") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process writes to {folder}; wait for its end, or choose another --out") from None
        yield


def is_filled(folder: Path) -> bool:
    """Whether a folder is there and holds more than a marker."""
    return folder.is_dir() and any(path.name != MARKER for path in folder.iterdir())


def _first_inside(folder: Path, inputs: Iterable[Path]) -> Path | None:
    return next((path for path in inputs if path.resolve().is_relative_to(folder.resolve())), None)


def _empty(folder: Path) -> None:
    """Remove what a folder holds, what says that it is finished first and whose it is last: a kill may come between."""
    for path in sorted(folder.iterdir(), key=lambda path: (path.name == MARKER, path.name != FINISHED)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
