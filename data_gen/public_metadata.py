"""The public SURDS metadata, from a folder or the Hugging Face hub, as scene records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from data_gen.command_line import UsageError
from data_gen.images import upright_size
from data_gen.records import RecordError
from data_gen.scene_records import SceneImage, read_scenes

METADATA = "metadata.jsonl"
SPLIT_FOLDERS = {"train": ("train", "training"), "val": ("validation", "val")}


@dataclass(frozen=True)
class PublicMetadata:
    """A metadata file and its scenes, in file order; image names are relative to the file's folder."""

    path: Path
    scenes: list[SceneImage]
    missing_images: int

    @property
    def image_root(self) -> Path:
        """The folder of the images."""
        return self.path.parent


def read_public_metadata(source: str, split: str = "all") -> PublicMetadata:
    """The metadata of a local folder or file, or of a dataset on the hub; `split` chooses where there are several.

    Scenes have the size that their row tells, else nuScenes' own. Raises UsageError when nothing usable is found,
    RecordError on a bad line, or an image of another size.
    """
    path = find_metadata(_local(source, split), split)
    scenes = read_scenes(path)
    if not scenes:
        raise RecordError(f"{path} holds no image")
    missing = sum(not (path.parent / scene.file_name).is_file() for scene in scenes)
    return PublicMetadata(path, [_checked(scene, path.parent, split) for scene in scenes], missing)


def find_metadata(source: Path, split: str) -> Path:
    """The metadata file that a path means: itself, the one in the folder, or that of the split's folder below it."""
    if source.is_file():
        return source
    if (source / METADATA).is_file():
        named = [name for name, folders in SPLIT_FOLDERS.items() if source.resolve().name in folders]
        if split != "all" and named and split not in named:
            raise UsageError(f"{source} holds the split {named[0]}, not {split}")
        return source / METADATA
    found = sorted(source.rglob(METADATA))
    chosen = [path for path in found if split == "all" or path.parent.name in SPLIT_FOLDERS[split]]
    if len(chosen) == 1:
        return chosen[0]
    listed = ", ".join(str(path.relative_to(source)) for path in found) or "none"
    raise UsageError(f"{source} must hold one {METADATA}, or one for --split train|val; found: {listed}")


def _local(source: str, split: str) -> Path:
    """The source itself if it is on disk, else the hub's copy of the dataset of that name, of one split if told."""
    if Path(source).exists():
        return Path(source)
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise UsageError(
            f"nothing at {source}; give a folder with {METADATA}, or a dataset's name on the hub: ORG/NAME"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        wanted = None if split == "all" else [f"{folder}/*" for folder in SPLIT_FOLDERS[split]]
        return Path(snapshot_download(source, repo_type="dataset", allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise UsageError(f"{source} is no folder here, and the hub did not give it: {error}") from error


def _checked(scene: SceneImage, root: Path, split: str) -> SceneImage:
    """The scene with its split. Raises RecordError where its image is not of the size that its boxes are about."""
    path = root / scene.file_name
    if path.is_file() and (found := upright_size(path)) != (scene.width, scene.height):
        there, wanted = ("{}x{}".format(*size) for size in (found, (scene.width, scene.height)))
        raise RecordError(f"the image {path} is {there} pixels, the boxes of its record are about {wanted}")
    return replace(scene, split=_split(scene, split))


def _split(scene: SceneImage, split: str) -> str:
    return scene.split or ("" if split == "all" else split)
