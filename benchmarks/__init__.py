"""Measures eager, torch.compile and tracework on named models: `python -m benchmarks --help`."""
