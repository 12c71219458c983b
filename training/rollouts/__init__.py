"""The completions of GRPO: sampled by transformers or vLLM, each image decoded once."""
