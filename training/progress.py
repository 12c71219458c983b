"""A progress bar with the few figures a person watches; the whole log is in `trainer_state.json`."""

from __future__ import annotations

from typing import Any

from transformers import Trainer
from transformers.trainer_callback import ProgressCallback

WATCHED = {  # name in the log -> name on the terminal
    "loss": "loss", "eval_loss": "eval loss", "mean_token_accuracy": "token accuracy", "reward": "reward", "kl": "kl",
    "held_out/score": "held-out score", "stage": "stage", "dynamic/replaced": "groups replaced",
    "completions/mean_length": "length", "completions/clipped_ratio": "cut off",
    "frac_reward_zero_std": "groups without spread", "train_runtime": "seconds",
}  # fmt: skip


class TerseProgress(ProgressCallback):
    """The stock progress bar, writing only the watched figures and the mean of each reward."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Write one line per log entry on the main process."""
        if not state.is_world_process_zero or self.training_bar is None or not logs:
            return
        shown = [name for name in logs if name in WATCHED or (name.startswith("rewards/") and name.endswith("/mean"))]
        figures = [f"{_short(name)} {logs[name]:.4g}" for name in shown if isinstance(logs[name], int | float)]
        if figures:
            self.training_bar.write(f"step {state.global_step}: {', '.join(figures)}")


def _short(name: str) -> str:
    return WATCHED.get(name, name.removeprefix("rewards/").removesuffix("/mean"))


def watch(trainer: Trainer) -> None:
    """Replace the trainer's stock progress bar."""
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(TerseProgress)
