"""What the mini model is pretrained on: pictures of the rendered world, texts about them, exercises in reading."""
