"""The parts of the mini model's pretraining: pictures, texts, architecture, stages, scores."""
