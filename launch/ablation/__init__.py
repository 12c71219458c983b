"""The sweeps of launch/ablate.py: what is run, in which order, what of it is done, and how it stands."""
