"""Lists of hand-picked images: read, and found in a world by name or by where their objects are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_gen.drivemllm.keep_list import Listed, find_listed, read_keep_list
from data_gen.records import RecordError, write_rows


def test_a_keep_list_is_names_or_metadata(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("\ufeffa/b.webp\n\n  c.jpg  \nother/c.png\n")
    assert [item.stem for item in read_keep_list(tmp_path / "names.txt")] == ["b", "c"]
    write_rows(
        tmp_path / "metadata.jsonl",
        [{"file_name": "image/a.webp", "location3D": [[1.964, 0.786, 8.525]]}, {"file_name": "b.webp"}],
    )
    assert read_keep_list(tmp_path / "metadata.jsonl") == [
        Listed("image/a.webp", ((1.964, 0.786, 8.525),)), Listed("b.webp")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "names no image; one file name a line"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b'{"file": "a"}', "line 1: the field 'file_name' is missing"),
        (b'{"file_name": 3}', "line 1: a file_name is a text, got 3"),
        (b'{"file_name": "a", "location3D": [[1, 2]]}', "line 1: Expected .*array.* of length 3"),
    ],
)
def test_a_bad_keep_list_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=message):
        read_keep_list(path)


def test_images_are_found_by_name_or_by_where_their_objects_are() -> None:
    names = ["samples/CAM_FRONT/a.jpg", "samples/CAM_FRONT/b.jpg", "samples/CAM_FRONT/c.jpg"]
    first, second = (1.0, 0.5, 10.0), (-2.0, 0.5, 20.0)
    centres_m = [np.array([first, second]), np.zeros((0, 3)), np.array([first, (1.0, 0.5, 10.004)])]
    listed = [
        Listed("b.webp"),
        Listed("image_7.webp", ((-2.0, 0.5, 20.0004), (1.0003, 0.5, 10.0))),  # both are in a.jpg alone
        Listed("image_8.webp", ((1.0, 0.5, 10.004),)),  # a.jpg fits to 4 mm, c.jpg exactly
        Listed("image_9.webp", ((1.0, 0.5, 10.1),)),  # 10 cm off
        Listed("image_10.webp"),
    ]
    found = find_listed(listed, names, centres_m)
    assert found.images == {0: 1, 1: 0, 2: 2} and (found.by_name, found.by_centres) == (1, 2)
