"""Ways to name an object of an image, and the one wording they share."""
