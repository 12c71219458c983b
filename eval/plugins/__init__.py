"""Our questions in other harnesses, lmms-eval and VLMEvalKit, scored by our own functions."""
