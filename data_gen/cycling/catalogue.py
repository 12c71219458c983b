"""What traffic signs say, in our own words: where wrong choices come from when the user brings no catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from data_gen.records import RecordError
from rewards.normal_form import normalise

SIGN_LABELS = (
    "lane for cyclists only",
    "path shared by pedestrians and cyclists",
    "path divided into one side for pedestrians and one for cyclists",
    "path for pedestrians only",
    "no cycling",
    "no entry",
    "no entry, cyclists excepted",
    "closed to motor vehicles",
    "speed limit 30 km/h",
    "give way",
    "stop and give way",
    "priority road",
    "one-way street",
    "street for cyclists, others are guests",
    "bicycle parking",
    "no stopping",
    "danger",
    "uneven road",
    "children may cross",
    "pedestrian crossing",
    "road works",
)


def read_catalogue(path: Path) -> tuple[str, ...]:
    """The labels of a text file, one a line. Raises RecordError when there are fewer than two."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"the catalogue {path} cannot be read: {error}") from error
    labels = tuple(line.strip() for line in lines if line.strip())
    if len(set(map(normalise, labels))) < 2:
        raise RecordError(f"{path}: a catalogue holds at least two labels, one a line")
    return labels


def without(labels: Iterable[str], unwanted: Iterable[str]) -> list[str]:
    """The labels, each once, without those that say the same as an unwanted one."""
    seen, kept = set(map(normalise, unwanted)), []
    for label in labels:
        if normalise(label) not in seen:
            seen.add(normalise(label))
            kept.append(label)
    return kept
