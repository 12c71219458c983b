"""Exercises in reading, most of which need no picture: to repeat words, to pick a listed option by its number, to tell
the larger of two numbers, to find the range that holds a number, to say what answer a text ends with.

A large language model can do this before it sees its first question; without it a small one spends its few reasoning
traces on learning to copy an option. What an exercise names is not in any picture; only `listed_option` places an
object, and tells which option answers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from data_gen.compass import DIRECTIONS
from data_gen.depth_ranges import DepthRange
from data_gen.oracle_wording import WORDINGS, all_sentences
from data_gen.pretraining.pictures import SHOWN_PX, Seen
from data_gen.pretraining.texts import ALL_NAMES, Grounding, Said, box_text
from data_gen.prompts import verifier_text
from data_gen.questions import SAME, SAME_DEPTH, option_name

OPTIONS = (3, 4, 5)
WORDS_TO_REPEAT = (4, 24)
FILLED_SHARE, FILLING_WORDS = 0.5, (4, 80)
LARGEST_NUMBER, THINGS_TO_SORT = 100, (2, 6)
EQUAL_SHARE = 0.2  # of the comparisons
WITHIN = (4, 8, 50)  # the numbers of a comparison are less far apart than one of these
POINT_SHARE = 0.15  # of the answers to be read out of a text


def exercise(rng: np.random.Generator) -> Said:
    """A random exercise and its solution."""
    makers = [*_SHARES]
    return makers[rng.choice(len(makers), p=[*_SHARES.values()])](rng)


def listed_options(rng: np.random.Generator, count: int) -> tuple[str, ...]:
    """Some options of one kind: directions, ranges or names."""
    kind = rng.integers(3)
    if kind == 0:
        return tuple(DIRECTIONS[index] for index in rng.permutation(len(DIRECTIONS))[:count])
    if kind == 1:
        return tuple(_ranges(rng, count))
    return tuple(option_name(ALL_NAMES[index]) for index in rng.choice(len(ALL_NAMES), count, replace=False))


def listed_option(item: Seen, rng: np.random.Generator) -> Grounding:
    """A grounding question whose answer is an option by its number: directions and ranges in the trained format."""
    options = listed_options(rng, int(rng.choice(OPTIONS)))
    number = int(rng.integers(len(options)))
    question = f"Where is the {item.name}? Answer with option {number + 1}."
    think = f"I see the {item.name} in the box {box_text(item)}. The answer is {options[number]}."
    return Grounding(question, options, (item,), think, options[number])


def far_behind(said: Said, rng: np.random.Generator) -> Said:
    """The same for one half; for the other, words without meaning stand between the picture and the prompt.

    What finds an object of the picture from right behind it does not find it from behind a long prompt.
    """
    if rng.random() >= FILLED_SHARE:
        return said
    return replace(said, prompt=f"{_some_words(rng, FILLING_WORDS)} {said.prompt}")


def _repeat(rng: np.random.Generator) -> Said:
    chosen = _some_words(rng, WORDS_TO_REPEAT)
    return Said(f"Read: {chosen}", chosen, alone=True)


def _some_words(rng: np.random.Generator, count: tuple[int, int]) -> str:
    words = _words()
    return " ".join(words[index] for index in rng.integers(len(words), size=rng.integers(*count)))


def _option_by_number(rng: np.random.Generator) -> Said:
    options = listed_options(rng, int(rng.choice(OPTIONS)))
    number = int(rng.integers(len(options)))
    return Said("\n".join((f"Answer with option {number + 1}.", "Options:", *options)), options[number], alone=True)


def _sort(rng: np.random.Generator) -> Said:
    """Numbered things in order. It teaches to find whose a number is, where a name follows its number at once."""
    count = rng.integers(*THINGS_TO_SORT)
    names = [ALL_NAMES[index] for index in rng.choice(len(ALL_NAMES), count, replace=False)]
    numbers = rng.choice(np.arange(1, LARGEST_NUMBER), count, replace=False)
    things = [f"{number} {name}" for number, name in zip(numbers, names, strict=True)]
    word, rising = (("more", False), ("larger", False), ("fewer", True), ("smaller", True))[rng.integers(4)]
    order = np.argsort(numbers if rising else -numbers)
    return Said(f"{', '.join(things)}: {word} first", ", ".join(things[index] for index in order), alone=True)


def _larger(rng: np.random.Generator) -> Said:
    """Of two things the one of the larger number, with the number first, or Neither."""
    first, second = (ALL_NAMES[index] for index in rng.choice(len(ALL_NAMES), 2, replace=False))
    a, b = (int(value) for value in rng.integers(1, LARGEST_NUMBER, size=2))
    b = a if rng.random() < EQUAL_SHARE else b
    word, smaller = (("larger", False), ("more", False), ("smaller", True), ("fewer", True))[rng.integers(4)]
    solution = "Neither" if a == b else (f"{a} {first}", f"{b} {second}")[(a > b) == smaller]
    return Said(f"{a} {first}, {b} {second}. Which is {word}?", solution, alone=True)


def comparison(rng: np.random.Generator) -> Said:
    """Two numbers as a trace has them, mostly close ones, which is asked for and the answer that follows, a name or
    Yes or No.

    Where the numbers are one, both are about the same.
    """
    first, second = (ALL_NAMES[index] for index in rng.choice(len(ALL_NAMES), 2, replace=False))
    a = int(rng.integers(3, LARGEST_NUMBER))
    b = a if rng.random() < EQUAL_SHARE else abs(a + int(rng.choice((-1, 1)) * rng.integers(1, rng.choice(WITHIN))))
    unit, word = ("meters", "percent")[rng.integers(2)], ("fewer", "more")[rng.integers(2)]
    yes_no = rng.random() < 0.5
    asked = f"Is the {first} of {word} {unit}?" if yes_no else f"Which is of {word} {unit}?"
    prompt = f"{first} {a} {first}, {second} {b} {second}. {asked}"
    if a == b:
        return Said(prompt, f"Both are about the same. {_concluded(SAME, rng)}", alone=True)
    number, name = ((a, first), (b, second))[(a < b) != (word == "fewer")]
    found = _phrase("asked_number", rng).format(fewer=word, unit=unit, number=number, s=name)
    answer = ("Yes" if name == first else "No") if yes_no else name
    return Said(prompt, f"{found} {_concluded(answer, rng)}", alone=True)


def _concluded(answer: str, rng: np.random.Generator) -> str:
    return _phrase("answer", rng).format(answer=answer)


def _phrase(slot: str, rng: np.random.Generator) -> str:
    """One of the wordings of a trace's sentence, its fields not filled."""
    return WORDINGS[slot][rng.integers(len(WORDINGS[slot]))]


def _larger_number(rng: np.random.Generator) -> Said:
    a, b = (int(value) for value in rng.integers(1, LARGEST_NUMBER, size=2))
    word, solution = (("larger", max(a, b)), ("smaller", min(a, b)))[rng.integers(2)]
    return Said(f"Which is {word}, {a} or {b}?", str(solution), alone=True)


def _range_of(rng: np.random.Generator) -> Said:
    ranges = _ranges(rng, 3)
    number = int(rng.integers(len(ranges)))
    low, high = (int(word) for word in ranges[number].split() if word.isdigit())
    return Said(
        "\n".join((f"Which range fits {rng.integers(low, high + 1)} meters?", *ranges)), ranges[number], alone=True
    )


def _conclusion(rng: np.random.Generator) -> Said:
    """Sentences in any order, then one that gives the answer: what the verifier is asked, where it is plainly said."""
    sentences = _sentences()
    premises = [sentences[index] for index in rng.integers(len(sentences), size=rng.integers(1, 4))]
    answer = _some_answer(rng)
    told = f"[{answer}]" if answer.startswith("[") else answer.removeprefix("The ")
    text = " ".join([*premises, _concluded(told, rng)])
    return Said(verifier_text(text), f"<answer>{answer}</answer>", alone=True)


# To repeat words is what copying is learnt from: each of them counts.
_SHARES = {
    _repeat: 0.25, _sort: 0.3, _larger: 0.1, _larger_number: 0.05, _option_by_number: 0.1, _range_of: 0.1,
    _conclusion: 0.1,
}  # fmt: skip


def _some_answer(rng: np.random.Generator) -> str:
    if rng.random() < POINT_SHARE:
        return f"[{rng.integers(SHOWN_PX[0])}, {rng.integers(SHOWN_PX[1])}]"
    return ("Yes", "No", SAME, SAME_DEPTH, *listed_options(rng, 4))[rng.integers(8)]


def _ranges(rng: np.random.Generator, count: int) -> list[str]:
    """Ranges that lie apart, in any order."""
    low_m, found = int(rng.integers(1, 8)), []
    for _ in range(count):
        width_m = int(rng.integers(2, 8))
        found.append(str(DepthRange(low_m, low_m + width_m)))
        low_m += width_m + int(rng.integers(1, 6))
    return [found[index] for index in rng.permutation(count)]


@cache
def _sentences() -> tuple[str, ...]:
    concluding = tuple(wording.partition("{")[0] for wording in WORDINGS["answer"])
    return tuple(text for text in all_sentences() if not text.startswith(concluding))


@cache
def _words() -> tuple[str, ...]:
    return tuple(sorted({word for text in (*all_sentences(), *DIRECTIONS, *ALL_NAMES) for word in text.split()}))
