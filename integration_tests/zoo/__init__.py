"""Real architectures, small and with random weights, compiled and compared with eager: `python -m zoo`."""
