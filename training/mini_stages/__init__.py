"""The parts of the mini model's pretraining: architecture, what is learnt from a text or a picture, stages, scores."""
