"""The words that count in a description: colours, garments, vehicles, people, and parts with colours of their own."""

from __future__ import annotations

COLOURS = {
    **{name: name for name in ("black", "white", "grey", "silver", "gold", "red", "orange", "yellow", "green", "blue")},
    **{name: name for name in ("turquoise", "purple", "pink", "brown", "beige")},
    **{"gray": "grey", "golden": "gold", "teal": "turquoise", "cyan": "turquoise", "aqua": "turquoise"},
    **{"tan": "beige", "cream": "beige", "khaki": "beige", "ivory": "white", "bronze": "brown", "olive": "dark green"},
    **{"violet": "purple", "lavender": "light purple", "magenta": "pink", "fuchsia": "pink", "lime": "light green"},
    **{"crimson": "red", "scarlet": "red", "maroon": "dark red", "burgundy": "dark red", "navy": "dark blue"},
    **{"charcoal": "dark grey"},
}
SHADES = {"dark": "dark", "deep": "dark", "light": "light", "pale": "light"}
WITHOUT_SHADE = frozenset({"black", "white", "silver", "gold"})
NO_ONE_COLOUR = frozenset({*SHADES, "multi", "multicolored", "multicoloured", "colorful", "colourful", "rainbow"})
UPPER = {
    **{name: name for name in ("shirt", "blouse", "top", "sweater", "sweatshirt", "hoodie", "jacket", "coat", "vest")},
    **{name: name for name in ("cardigan", "blazer", "jersey", "dress", "suit", "uniform", "overalls", "robe")},
    **{"tshirt": "t-shirt", "tee": "t-shirt", "polo": "shirt", "pullover": "sweater", "jumper": "sweater"},
    **{"parka": "jacket", "windbreaker": "jacket", "raincoat": "coat", "overcoat": "coat", "waistcoat": "vest"},
    **{"gown": "dress", "coverall": "overalls", "coveralls": "overalls", "jumpsuit": "overalls", "tank": "top"},
}
LOWER = {
    **{name: name for name in ("trousers", "jeans", "shorts", "leggings", "skirt")},
    **{"pants": "trousers", "slacks": "trousers"},
}
GARMENTS = UPPER | LOWER
FOUR_WHEELS, TWO_WHEELS, ANY_WHEELS = "four wheels", "two wheels", ""
VEHICLES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("car", "suv", "sedan", "van", "minivan", "hatchback", "taxi", "cab"), ("car", FOUR_WHEELS)),
    **dict.fromkeys(("coupe", "jeep", "automobile", "wagon", "convertible", "ambulance"), ("car", FOUR_WHEELS)),
    **dict.fromkeys(("truck", "lorry", "pickup", "trailer", "semi", "excavator", "crane"), ("truck", FOUR_WHEELS)),
    **dict.fromkeys(("bus", "coach", "minibus"), ("bus", FOUR_WHEELS)),
    **dict.fromkeys(("bicycle", "bike", "motorcycle", "motorbike", "scooter", "moped"), ("cycle", TWO_WHEELS)),
    **dict.fromkeys(("vehicle", "stroller", "pram", "pushchair", "buggy"), ("", ANY_WHEELS)),
}
PEOPLE = frozenset((
    "man", "woman", "person", "boy", "girl", "adult", "child", "kid", "baby", "pedestrian", "worker", "officer",
    "policeman", "policewoman", "guy", "lady", "gentleman", "rider", "cyclist", "motorcyclist", "driver",
    "individual", "human",
))  # fmt: skip
SEVERAL_PEOPLE = frozenset({*(f"{word}s" for word in PEOPLE), "people", "men", "women", "children", "babies"})
SEVERAL_VEHICLES = frozenset({*(f"{word}s" for word in VEHICLES), "buses", "lorries", "coaches"})
PARTS = frozenset((
    "roof", "window", "windshield", "windscreen", "glass", "wheel", "tire", "tyre", "rim", "stripe", "line", "logo",
    "text", "letter", "lettering", "writing", "hood", "bonnet", "bumper", "door", "lights", "lamp", "headlight",
    "taillight", "plate", "mirror", "seat", "basket", "trim", "accent", "detail", "interior", "frame", "curtain",
    "sign", "hair", "skin", "face", "beard", "head", "hat", "cap", "helmet", "scarf", "tie", "glove", "shoe",
    "boot", "sneaker", "sock", "bag", "backpack", "purse", "handbag", "suitcase", "umbrella", "phone", "mask",
    "belt", "glasses", "sunglasses", "road", "street", "sky", "wall", "building", "background", "tree",
))  # fmt: skip
