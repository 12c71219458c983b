"""Ablations: what is kept of a trained row, and the tables and pages made of it."""
