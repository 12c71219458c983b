"""Multiple choice: what free text settles on, what it leaves open."""

from __future__ import annotations

import pytest

from rewards.choice import read_choice

LANES = ("Lane 2", "Lane 0", "Lane 1")
SIGNS = ("no cycling", "no entry", "no entry for lorries", "speed limit 30 km/h")
REGIONS = ("<1>", "<2>", "<3>", "<4>")
RIDE = ("No, cycling is forbidden on it", "Yes, cyclists may use it")
FRAMES = ("Image 1", "Image 2")

SETTLED = [
    ("b", LANES, "B"),
    ("(C)", LANES, "C"),
    ("B<|im_end|>", LANES, "B"),
    ("A</s>", LANES, "A"),
    ("<think>Lane 2? Answer: A</think>\n<answer>B</answer>", LANES, "B"),
    ("<think>Answer: A</think>\n\nC", LANES, "C"),
    ("<answer>Lane 1</answer>", LANES, "C"),
    ("<answer>the region <2></answer>", REGIONS, "B"),
    ("A. not it. B. nor that.\nThe final answer is $\\boxed{C}$", LANES, "C"),
    ("so \\boxed{\\text{Lane 0}}", LANES, "B"),
    ("The answer is A because the sign says so.", LANES, "A"),
    ("The answer is B, I think.", LANES, "B"),
    ("The correct option is (C).", LANES, "C"),
    ("Option A shows a footpath. Option C is the correct one.", LANES, "C"),
    ("I would choose B.", LANES, "B"),
    ("I would not choose A. I would choose B.", LANES, "B"),
    ("It is not the footpath, so the answer is B.", LANES, "B"),
    ("answer B", LANES, "B"),
    ('{"answer": "B"}', LANES, "B"),
    ("### Final Answer: **B. Lane 0**", LANES, "B"),
    ("<answer>Option B</answer>", LANES, "B"),
    ("**Final answer:** B", LANES, "B"),
    ("Answer:\nC", LANES, "C"),
    ("Answer: lane 1.", LANES, "C"),
    ("Answer: A\nNo, wait.\nAnswer: Lane 0", LANES, "B"),
    ("The answer is region <3>.", REGIONS, "C"),
    ("C. Region <3> shows a round sign with a red rim.", REGIONS, "C"),
    ("B. <2> is a sign. Region <1> is none.", REGIONS, "B"),
    ("**B.** Lane 0 has a bicycle painted on it.", LANES, "B"),
    ("A. no cycling\nIt has a red rim.", SIGNS, "A"),
    ("B\nBecause the surface is red.", LANES, "B"),
    ("The surface of it is red.\n\nB", LANES, "B"),
    ("Lane 1\nIts surface is red.", LANES, "C"),
    ("Lane 1, because its surface is red.", LANES, "C"),
    ("no entry for lorries", SIGNS, "C"),
    ("Answer: no entry for lorries", SIGNS, "C"),
    ("Yes, a bicycle is painted there.", RIDE, "B"),
    ("No.", RIDE, "A"),
    ("Option B fits.", LANES, "B"),
    ("Image 2", FRAMES, "B"),
    ("The answer is A. Wait, actually B.", LANES, "B"),
    ("The answer is A. Wait, the answer is B.", LANES, "B"),
    ("The answer is A. No, B.", LANES, "B"),
    ("The answer is A, or rather B.", LANES, "B"),
    ("The answer is A. Hmm, wait, it's (C), because that one is red.", LANES, "C"),
    ("The answer is A. On second thought, Lane 0.", LANES, "B"),
    ("The answer is A. Sorry, I meant B.", LANES, "B"),
    ("The answer is A. Actually, B is correct.", LANES, "B"),
    ("The answer is A. Wait, B. No, wait, the answer is C.", LANES, "C"),
    ("The answer is A. Wait, actually B. Wait, let me look again. Yes.", LANES, "B"),
    ("A. Lane 2 is red. Wait, actually C.", LANES, "C"),
    ("\\boxed{A} Wait, \\boxed{B}", LANES, "B"),
    ("\\boxed{A} Wait, actually B.", LANES, "B"),
    ("<answer>A. Wait, actually B</answer>", LANES, "B"),
    ("I think the answer is A.\nFinal answer: B", LANES, "B"),
    ("I think the answer is A, but my final answer is B.", LANES, "B"),
    ("The answer is A. Wait, let me check the surface again. It is red.", LANES, "A"),
    ("The answer is A, as the lane is actually red.", LANES, "A"),
    ("The answer is A. Cyclists have to wait, B being closed to them.", LANES, "A"),
    ("The answer is A. Wait. A cyclist rides on it.", LANES, "A"),
    ("The answer is A. So the answer is A.", LANES, "A"),
    ("The answer is A or B. The answer is B.", LANES, "B"),
    ("Answer: A. No, cycling is forbidden on it", RIDE, "A"),
    ("Answer: No, cycling is forbidden on it", RIDE, "A"),
    ("No. A sign forbids it.", RIDE, "A"),
]

OPEN = [
    ("", LANES),
    ("   ", LANES),
    ("<think>Answer: A", LANES),
    ("<think>Answer: A</think>", LANES),
    ("<answer>A</answer> <think>wait", ()),
    ("Answer: E", LANES),
    ("ANSWER: AB", LANES),
    ("Answer: A or B", LANES),
    ("Answer: A, B", LANES),
    ("The answer is not A.", LANES),
    ("The answer is a red lane.", LANES),
    ("The answer is A red lane.", LANES),
    ("Option A is wrong.", LANES),
    ("I would not choose A.", LANES),
    ("I do not think that option A is correct.", LANES),
    ("It is not clear that the answer is A.", LANES),
    ("To pick B would be wrong.", LANES),
    ("Option A is plausible, and so is option B.", LANES),
    ("A. Lane 2\nB. Lane 0\nC. Lane 1", LANES),
    ("A. Lane 1 is the one.", LANES),
    ("Answer: Lane 1 or Lane 0", LANES),
    ("Answer: not Lane 1", LANES),
    ("Image 1 shows the sign near, so Image 2 came first.", FRAMES),
    ("Image 1, where the sign is near, came after Image 2.", FRAMES),
    ("No sign is visible.", RIDE),
    ("Lane 10", LANES),
    ("A cyclist may ride here.", RIDE),
    ("I see a road.", LANES),
    ("A\n\nB", LANES),
    ("The answer is A. The answer is B.", LANES),
    ("The answer is A. I would choose Lane 0; the answer is B.", LANES),
    ("Option A is correct. Option B is the right one.", LANES),
    ("\\boxed{A} or \\boxed{B}", LANES),
    ("The answer is B. The answer is A or B.", LANES),
    ("The answer is A. Wait, B shows a footpath.", LANES),
    ("The answer is A. Wait, is it not Lane 0?", LANES),
    ("The answer is A. Wait, the answer is not A but B.", LANES),
    ("The answer is A. Actually, B or C.", LANES),
    ("The answer is A. Wait, the answer is B. The answer is C.", LANES),
]


@pytest.mark.parametrize(("text", "options", "letter"), SETTLED, ids=[text[:40] for text, *_ in SETTLED])
def test_a_text_that_settles(text: str, options: tuple[str, ...], letter: str) -> None:
    assert read_choice(text, options) == letter


@pytest.mark.parametrize(("text", "options"), OPEN, ids=[repr(text[:40]) for text, _ in OPEN])
def test_a_text_that_leaves_it_open(text: str, options: tuple[str, ...]) -> None:
    assert read_choice(text, options) is None


LONG = (
    "answer ",
    "answer is ",
    "A. ",
    "A.\n",
    "\\boxed{",
    "<|",
    "<answer>",
    "option A ",
    "* ",
    "Lane 1, ",
    "wait, ",
    "answer is A. Wait, B ",
    "(",
    " ",
    "$",
)


@pytest.mark.parametrize("piece", LONG)
def test_a_very_long_text_is_read_all_the_same(piece: str) -> None:
    read_choice(piece * (200_000 // len(piece)), LANES)
