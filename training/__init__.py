"""SFT and GRPO: models, data columns, trainers."""
