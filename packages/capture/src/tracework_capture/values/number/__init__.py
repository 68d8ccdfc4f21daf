"""Numbers that are not known while tracing."""
