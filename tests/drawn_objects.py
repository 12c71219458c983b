"""Pictures of plain patches on road grey, with an object to describe per patch."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from data_gen.descriptions import Asked, AskedImage

SIZE = (400, 300)
Rgb = tuple[int, int, int]
RED, BLUE, GREEN, BLACK, GREY, WHITE = (
    (200, 30, 30), (36, 84, 208), (28, 148, 62), (20, 20, 22), (110, 110, 110), (235, 235, 235),
)  # fmt: skip
Patch = tuple[str, tuple[int, int, int, int], Rgb]  # category, box, colour


def picture(path: Path, *patches: Patch) -> AskedImage:
    """Draw the patches and write the picture; annotations are called after the file, as in "a-0"."""
    image = Image.new("RGB", SIZE, (120, 120, 120))
    for _, box, colour in patches:
        image.paste(colour, box)
    image.save(path, quality=95)
    asked = tuple(
        Asked(f"{path.stem}-{place}", category, tuple(map(float, box)))
        for place, (category, box, _) in enumerate(patches)
    )
    return AskedImage(path, SIZE, asked)
