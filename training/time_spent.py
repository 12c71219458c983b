"""The time that a training took, also when it was interrupted and taken up again: in its log, line by line."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import TrainerCallback

TIME_SPENT = "time_spent_s"  # name in `log_history` of trainer_state.json


class TimeSpent(TrainerCallback):
    """Puts into every line of the log the seconds of training up to it.

    By the clock on a GPU, else those that the process had of its cores: other work beside it does not make it dearer.
    Those up to the checkpoint that a run goes on from count; what was lost after it, and the time between, do not.
    """

    def __init__(self) -> None:
        self.now_s = time.monotonic if torch.cuda.is_available() else time.process_time
        self.begun_s = self.now_s()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer once it holds the state of its checkpoint, if there is one."""
        before_s = [line[TIME_SPENT] for line in state.log_history if TIME_SPENT in line]
        self.begun_s = self.now_s() - max(before_s, default=0.0)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the trainer after it has put a line at the end of the log."""
        state.log_history[-1][TIME_SPENT] = round(self.now_s() - self.begun_s, 2)
