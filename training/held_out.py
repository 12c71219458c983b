"""A score on questions of other scenes while GRPO runs, by the code of the evaluator."""

from __future__ import annotations


class HeldOutScore:
    """Mix-in for TRL's GRPOTrainer."""
