"""The recorded graph: its nodes, its inputs, the side effects beside it, and the code that calls it."""
