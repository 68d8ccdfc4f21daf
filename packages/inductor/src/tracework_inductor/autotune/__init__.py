"""Which way a computation takes, and with which block sizes: what is known of it, predicted, measured and kept."""
