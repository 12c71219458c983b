"""The `logic` reward: does the reasoning text alone lead back to the answer?

The trainer asks the policy which answer a trace reaches, showing it nothing but the trace, and passes what it said as
the column `verdicts`. This file only compares.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewards.boxes import Size
from rewards.grading import same_answer
from rewards.response import parse, read_point
from rewards.settings import RewardSettings, completion_text


def logic_reward(
    completions: Sequence[object],
    *,
    settings: RewardSettings,
    verdicts: Sequence[str | None],
    answer: Sequence[str],
    width: Sequence[int],
    height: Sequence[int],
    **_: object,
) -> list[float | None]:
    """1 where the verdict equals the answer the completion gave (or, target `truth`, the true answer); else 0.

    verdicts: the answer the verifier reached, in the frame of the run, or None when it reached none. A completion
    that is not well-formed scores 0. Points agree within 1 % of the sides.
    """
    return [
        settings.pay(float(_agrees(completion_text(item), verdict, truth, (w, h), settings)))
        for item, verdict, truth, w, h in zip(completions, verdicts, answer, width, height, strict=True)
    ]


def logic_target(given: str, truth: str, image_size: Size, settings: RewardSettings) -> str:
    """The answer that a verdict is compared with, in the frame of the run. truth: in original pixels if a point."""
    return given if settings.logic_target == "generated" else truth_in_frame(truth, image_size, settings)


def truth_in_frame(truth: str, image_size: Size, settings: RewardSettings) -> str:
    """The true answer as the model would write it: a point, given in original pixels, in the frame of the run."""
    point = read_point(truth)
    if point is None:
        return truth
    return f"[{', '.join(str(round(value)) for value in settings.frame.to_model(point, image_size))}]"


def _agrees(text: str, verdict: str | None, truth: str, image_size: Size, settings: RewardSettings) -> bool:
    response = parse(text)
    if verdict is None or response.answer is None or not response.well_formed:
        return False
    target = logic_target(response.answer, truth, image_size, settings)
    return same_answer(verdict, target, settings.frame.size(image_size))
