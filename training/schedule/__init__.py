"""What GRPO is trained on, in which order: stages, curriculum, dynamic sampling."""
