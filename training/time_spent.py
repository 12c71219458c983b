"""The time that a training took, also when it was interrupted and taken up again: in its log, line by line."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback

TIME_SPENT = "time_spent_s"  # name in `log_history` of trainer_state.json


class TimeSpent(TrainerCallback):
    """Puts into every line of the log the seconds of training up to it.

    Those up to the checkpoint that a run goes on from count; what was lost after it, and the time between, do not.
    """

    def __init__(self) -> None:
        self.begun_s = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer once it holds the state of its checkpoint, if there is one."""
        before_s = [line[TIME_SPENT] for line in state.log_history if TIME_SPENT in line]
        self.begun_s = time.monotonic() - max(before_s, default=0.0)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer after it has put a line at the end of the log."""
        state.log_history[-1][TIME_SPENT] = round(time.monotonic() - self.begun_s, 2)
