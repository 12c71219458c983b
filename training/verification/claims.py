"""What a well-formed completion claims: that its reasoning leads to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_gen.prompts import masked_verifier_text
from rewards.boxes import Size
from rewards.grading import same_answer
from rewards.literal import GAP, cut_out, says_literally
from rewards.logic import logic_target, truth_in_frame
from rewards.normal_form import normalise
from rewards.response import parse
from rewards.settings import RewardSettings

Figure = tuple[str, float]


@dataclass(frozen=True)
class Claim:
    """Trace and answers of one completion, all in the frame of the run.

    target: the answer that the verifier must reach. written: the same with the blanks that the completion has around
    its own answer. options: empty for a point.
    """

    think: str
    own: str
    truth: str
    target: str
    written: str
    options: tuple[str, ...]
    frame_size: Size

    def reached_by(self, verdict: str | None) -> bool:
        """Whether a verdict says the target."""
        return self._same(verdict, self.target)

    def figures(self, verdict: str | None) -> dict[str, bool]:
        """What is logged of one verdict: agreement with the own answer, with the truth; and of the trace."""
        return {
            "logic/agrees_own": self._same(verdict, self.own),
            "logic/agrees_truth": self._same(verdict, self.truth),
            "logic/literal": says_literally(self.think, self.own),
        }

    def _same(self, verdict: str | None, answer: str) -> bool:
        return verdict is not None and same_answer(verdict, answer, self.frame_size)

    @property
    def own_place(self) -> int | None:
        """Where the own answer stands among the options; None if it is none of them or there is no choice."""
        forms = [normalise(option) for option in self.options]
        return forms.index(normalise(self.own)) if len(forms) > 1 and normalise(self.own) in forms else None

    def own_comes_first(self, scores: Sequence[float]) -> float:
        """1 where the own answer has the highest score among the options, else 0."""
        return float(scores.index(max(scores)) == self.own_place)

    @property
    def masked_request(self) -> str:
        """The verifier's request with the own answer cut out of the trace and the options shown."""
        return masked_verifier_text(cut_out(self.think, self.own), GAP, self.options)


def claim_of(row: dict[str, Any], text: str, settings: RewardSettings) -> Claim | None:
    """The claim of a completion's text on a row of the dataset, or None when the text is not well-formed."""
    response = parse(text)
    if not response.well_formed or not response.think or not response.answer:
        return None
    size = (row["width"], row["height"])
    target = logic_target(response.answer, row["answer"], size, settings)
    around = text.partition("<answer>")[2].partition("</answer>")[0].partition(response.answer)
    return Claim(
        think=response.think,
        own=response.answer,
        truth=truth_in_frame(row["answer"], size, settings),
        target=target,
        written=f"{around[0]}{target}{around[2]}",
        options=() if row["task"] == "pixel" else tuple(row["options"]),
        frame_size=settings.frame.size(size),
    )


def claim_figures(claims: Sequence[Claim | None], verdicts: Sequence[str | None]) -> list[Figure]:
    """(name in the log, 0 or 1) of every claim's figures."""
    return [
        (name, float(value))
        for claim, verdict in zip(claims, verdicts, strict=True)
        if claim
        for name, value in claim.figures(verdict).items()
    ]


def disagreements(
    claims: Sequence[Claim | None], verdicts: Sequence[str | None], others: Sequence[str | None]
) -> list[Figure]:
    """Of every claim, whether two verifiers differ on it: one reaches the target, the other does not."""
    return [
        ("logic/modes_disagree", float(claim.reached_by(verdict) != claim.reached_by(other)))
        for claim, verdict, other in zip(claims, verdicts, others, strict=True)
        if claim
    ]
