"""The part of the SFT trainer that, on a CPU, hands only the places to the head that predict a learnt token.

TRL's head does so by itself on a GPU; on a CPU it scores every place of prompt, picture and padding, then masks.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

IGNORED = -100


class LearntOnly:
    """Mix-in for TRL's SFTTrainer: losses and metrics of training are TRL's, up to rounding."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[misc]
        # Label smoothing and losses from outside want all logits.
        plain = not self.args.label_smoothing_factor and self.compute_loss_func is None
        self.learnt_only = plain and self.accelerator.device.type == "cpu"
        if self.learnt_only:
            model = self.accelerator.unwrap_model(self.model)
            whole = model.get_base_model() if hasattr(model, "get_base_model") else model
            whole.base_model.register_forward_hook(_keep_learnt, with_kwargs=True)

    def compute_loss(self: Any, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """TRL's, on labels (1, N) of the learnt places in place of those of all places (B, L)."""
        if self.learnt_only and self.model.training:
            inputs = learnt_inputs(inputs)
        return super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]


def learnt_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs, `labels` (B, L) replaced by `shift_labels` (1, N) and `learnt` (B, L - 1), where they belong.

    The inputs themselves where nothing is learnt: the head must have something to compute.
    """
    following: Tensor = inputs["labels"][:, 1:]
    learnt = following != IGNORED
    if not learnt.any():
        return inputs
    others = {name: value for name, value in inputs.items() if name != "labels"}
    return {**others, "shift_labels": following[learnt][None], "learnt": learnt}


def _keep_learnt(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Hand only the hidden states of the learnt places, (1, N, hidden), to the head."""
    learnt: Tensor | None = kwargs.get("learnt")
    if learnt is not None:
        output.last_hidden_state = output.last_hidden_state[:, :-1][learnt][None]
    return output
