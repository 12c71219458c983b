"""The one standard wording of descriptions, and the questions that ask a model for what goes into it."""

from __future__ import annotations

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
PLURAL_GARMENTS = frozenset({"trousers", "jeans", "shorts", "leggings", "overalls"})


def is_person(category: str) -> bool:
    """Whether an object is named by what it wears, not by its own colour."""
    return category.startswith("human.") and category != "human.pedestrian.stroller"


def noun_of(category: str) -> str:
    """What an object of a nuScenes category is called."""
    return NOUNS.get(category, category.rsplit(".", 1)[-1].replace("_", " "))


def wording(category: str, colour: str, garment: str = "shirt") -> str:
    """The standard description: "white and black car", "adult wearing an orange vest"; only people wear garments."""
    if not is_person(category):
        return f"{colour} {noun_of(category)}"
    article = "" if garment in PLURAL_GARMENTS else "an " if colour[0] in "aeiou" else "a "
    return f"{noun_of(category)} wearing {article}{colour} {garment}"


def question_about(category: str) -> str:
    """What a model is asked about the crop of an object."""
    noun = noun_of(category)
    if is_person(category):
        return f"Which garment does the {noun} in the middle wear on the upper body, and in what colour?"
    return f"What colour is the {noun} in the middle?"


def answer_form(category: str) -> str:
    """How a model that follows instructions shall answer the question."""
    example = (
        "colour and garment, as in: blue shirt" if is_person(category) else "the colour, as in: white, or: red and grey"
    )
    return f"Answer with nothing but {example}. If it cannot be made out, answer: unclear."
