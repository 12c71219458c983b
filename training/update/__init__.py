"""The update of GRPO with image and prompt encoded once per group."""
