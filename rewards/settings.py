"""What all rewards of a run share: the frame the model writes in, the values paid, and each reward's variant."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewards.boxes import CoordinateFrame

LOC_KINDS = ("mean", "all", "linear", "giou")
ACC_KINDS = ("strict", "linear")
LOGIC_TARGETS = ("generated", "truth")


@dataclass(frozen=True)
class RewardSettings:
    """Settings of the rewards; `values` are what 0 and 1 are paid as (`-1, 1` for the ablation)."""

    frame: CoordinateFrame = field(default_factory=CoordinateFrame)
    values: tuple[float, float] = (0.0, 1.0)
    loc_kind: str = "mean"
    acc_kind: str = "strict"
    logic_target: str = "generated"

    def __post_init__(self) -> None:
        for name, allowed in (("loc_kind", LOC_KINDS), ("acc_kind", ACC_KINDS), ("logic_target", LOGIC_TARGETS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}; known: {', '.join(allowed)}")

    def pay(self, score: float) -> float:
        """A score in 0..1 on the scale of `values`."""
        low, high = self.values
        return low + (high - low) * score


def completion_text(completion: object) -> str:
    """The text of a completion, plain or as a list of chat messages with text or text blocks."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"]  # type: ignore[index]
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)
