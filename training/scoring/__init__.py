"""Rewards that are checked, figures per task, and a held-out score while GRPO runs."""
