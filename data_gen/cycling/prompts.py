"""What a model is shown of an item, after its images: the question, the lettered choices, how to answer.

standard    the letter alone
reasoning   reasoning and answer in tags, as models trained to reason write them
cot         step by step in plain words, the answer in the last line
"""

from __future__ import annotations

from data_gen.cycling.records import CyclingItem

STYLES = ("standard", "reasoning", "cot")
_TWO_IMAGES = "Two images are shown: the first is Image 1, the second is Image 2."
_HOW_TO_ANSWER = {
    "standard": "Reply with the letter of the right choice and nothing else.",
    "reasoning": (
        "First reason about what you see, inside <think> and </think>. Then give the letter of the right choice inside "
        "<answer> and </answer>."
    ),
    "cot": (
        "Work towards the answer step by step: what is marked, what it shows, what follows for each choice. "
        'Finish with a line that reads "Answer:" and the letter of the right choice.'
    ),
}


def item_prompt(item: CyclingItem, style: str) -> str:
    """The text that follows the images of an item; `style` is one of STYLES."""
    head = [_TWO_IMAGES] if len(item.images) == 2 else []
    choices = [f"{letter}. {text}" for letter, text in zip(item.letters, item.choices, strict=True)]
    return "\n".join([*head, item.question, *choices, _HOW_TO_ANSWER[style]])
