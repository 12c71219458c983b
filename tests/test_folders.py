"""Output folders: nothing of the user's is overwritten, emptied or mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_gen.folders import MARKER, OutputFolder


@pytest.fixture()
def ours(tmp_path: Path) -> Path:
    folder = tmp_path / "ours"
    OutputFolder(folder, "traces").prepare()
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("x")
    return folder


def test_a_new_or_empty_folder_is_marked_with_what_it_holds(tmp_path: Path) -> None:
    for _ in range(2):  # nothing was written after the first time
        OutputFolder(tmp_path / "a" / "b", "traces").prepare()
    assert (tmp_path / "a" / "b" / MARKER).read_text() == "traces\n"


def test_resume_keeps_and_overwrite_empties_what_is_of_the_same_kind(ours: Path) -> None:
    OutputFolder(ours, "traces", resume=True).prepare()
    assert (ours / "deep" / "file").exists()
    OutputFolder(ours, "traces", overwrite=True).prepare()
    assert [path.name for path in ours.iterdir()] == [MARKER]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "is not empty"),
        ({"kind": "questions", "resume": True}, "holds traces, no questions"),
        ({"kind": "questions", "overwrite": True}, "holds traces, no questions"),
        ({"resume": True, "overwrite": True}, "one of the two"),
        ({"overwrite": True, "inputs": "deep/file"}, "is read from the folder"),
        ({"resume": True, "inputs": "."}, "is read from the folder"),
    ],
)
def test_what_is_refused(ours: Path, change: dict[str, object], reason: str) -> None:
    if "inputs" in change:
        change = {**change, "inputs": (ours / str(change["inputs"]),)}
    with pytest.raises(FileExistsError, match=reason):
        OutputFolder(**{"path": ours, "kind": "traces", **change}).prepare()  # type: ignore[arg-type]
    assert (ours / "deep" / "file").read_text() == "x"


def test_a_foreign_folder_is_neither_gone_on_in_nor_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for words in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(FileExistsError, match="was not written by this project"):
            OutputFolder(tmp_path, "traces", **words).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_path_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is a file"):
        OutputFolder(tmp_path / "file", "traces").prepare()
    with pytest.raises(FileExistsError, match="cannot be written to"):
        OutputFolder(tmp_path / "file" / "sub", "traces").prepare()


def test_an_input_above_the_output_is_fine(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    OutputFolder(tmp_path / "eval", "evaluation", inputs=(tmp_path,)).prepare()


def test_a_folder_is_emptied_from_the_sign_that_it_is_finished_to_the_sign_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill at any moment leaves a folder that is neither taken for finished nor for a stranger's."""
    out = tmp_path / "out"
    OutputFolder(out, "traces").prepare()
    for name in ("a", "manifest.json", "z"):
        (out / name).touch()
    removed = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **_: (removed.append(path.name), unlink(path))[1])
    OutputFolder(out, "traces", overwrite=True).prepare()
    assert removed[0] == "manifest.json" and removed[-1] == ".drive_spatial_rl" and set(removed[1:-1]) == {"a", "z"}
