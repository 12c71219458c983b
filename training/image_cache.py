"""Each distinct image of a generation batch is decoded and processed once."""

from __future__ import annotations


class DecodeOnce:
    """Mix-in for TRL's GRPOTrainer."""
