"""Score a model on the benchmarks and show what it did."""
