"""The one standard wording of descriptions."""

from __future__ import annotations

from data_gen.colours import COLOURS
from data_gen.describe import Description

NOUNS = {
    "human.pedestrian.adult": "adult",
    "human.pedestrian.child": "child",
    "human.pedestrian.construction_worker": "construction worker",
    "human.pedestrian.personal_mobility": "scooter rider",
    "human.pedestrian.police_officer": "police officer",
    "human.pedestrian.stroller": "stroller",
    "human.pedestrian.wheelchair": "wheelchair user",
    "vehicle.bicycle": "bicycle",
    "vehicle.bus.bendy": "bus",
    "vehicle.bus.rigid": "bus",
    "vehicle.car": "car",
    "vehicle.construction": "construction vehicle",
    "vehicle.emergency.ambulance": "ambulance",
    "vehicle.emergency.police": "police car",
    "vehicle.motorcycle": "motorcycle",
    "vehicle.trailer": "trailer",
    "vehicle.truck": "truck",
}
# Mostly gaps: most pixels of their boxes show what is behind them.
SEE_THROUGH = frozenset({"vehicle.bicycle", "vehicle.motorcycle", "human.pedestrian.stroller"})
_COLOUR_WORDS = frozenset({*COLOURS, "gray", "silver", "gold", "golden", "cyan", "teal", "turquoise", "maroon"})


def wording(category: str, colour: str) -> str:
    """The standard description: vehicles by colour and type, pedestrians by what they wear."""
    noun = NOUNS.get(category, category.rsplit(".", 1)[-1].replace("_", " "))
    if not category.startswith("human.") or category in SEE_THROUGH:
        return f"{colour} {noun}"
    article = "an" if colour[0] in "aeiou" else "a"
    return f"{noun} wearing {article} {colour} shirt"


def judged(text: str) -> Description:
    """A description with its problem if it is empty or names no colour."""
    words = " ".join(text.split())
    if not words:
        return Description(problem="no_description")
    if not _COLOUR_WORDS & set(words.lower().replace("-", " ").split()):
        return Description(problem="vague_description")
    return Description(words)
